"""Checks whether rows of a primary-key table may be committed after rows that came later.

Of two rows of one key the one with the higher sequence number wins, whenever they were committed.
So a commit may be published late only if every later row of its keys has a higher number. Of a
commit that ran beside it, the rows of the same keys must all have higher numbers, or all lower
ones. Otherwise an older value or part of a commit would win. Only keys and sequence numbers of the
files are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc, parquet
from pypaimon.utils.file_store_path_factory import canonical_data_file_path

from paimon_magics.tables.table import Table

__all__ = ["Bucket", "Later", "order_problem"]

Bucket = tuple[tuple[Any, ...], int]
"""Partition values and bucket."""

_ROWS_MAX = 20_000_000
_SEQUENCE = "_SEQUENCE_NUMBER"


@dataclass(frozen=True, slots=True)
class Later:
    """The files that another snapshot added, by bucket, and the buckets that it compacted.

    With `beside` neither of the two commits saw the other; else the snapshot is the later one.
    """

    snapshot_id: int
    beside: bool
    files: Mapping[Bucket, Sequence[Any]] = field(default_factory=dict)
    compacted: frozenset[Bucket] = frozenset()


def order_problem(
    table: Table,
    files: Mapping[Bucket, Sequence[Any]],
    others: Sequence[Later],
    compacted: frozenset[Bucket],
) -> str:
    """Why `files` may not be committed after `others`, as a text; "" if they may.

    `compacted` are buckets that were compacted since, which may have dropped the delete of a key.
    """
    for bucket, ours in files.items():
        for other in others:
            theirs = _overlapping(ours, other.files.get(bucket, ()))
            if not theirs:
                continue
            problem = _problem(table, bucket, ours, other, theirs, bucket in compacted)
            if problem:
                return problem
    return ""


def _problem(
    table: Table,
    bucket: Bucket,
    ours: Sequence[Any],
    other: Later,
    theirs: Sequence[Any],
    compacted: bool,
) -> str:
    named = f"snapshot {other.snapshot_id}"
    if sum(file.row_count for file in [*ours, *theirs]) > _ROWS_MAX:
        return f"{named} wrote so many rows to the same buckets that their keys were not compared"
    try:
        common = _common(_numbers(table, bucket, ours), _numbers(table, bucket, theirs))
    except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError) as error:
        return f"the keys that {named} wrote can't be compared with its own: {error}"
    if common.num_rows == 0:
        return ""
    keys = f"{common.num_rows:,} of its keys"
    if compacted:
        return f"{named} wrote {keys} too, and their bucket was compacted since"
    later = pc.sum(pc.greater(common["min_b"], common["max_a"])).as_py()
    earlier = pc.sum(pc.less(common["max_b"], common["min_a"])).as_py()
    if later == common.num_rows or (other.beside and earlier == common.num_rows):
        return ""
    return f"{named} wrote {keys} too, with sequence numbers that do not come after its own"


def _overlapping(ours: Sequence[Any], theirs: Sequence[Any]) -> list[Any]:
    try:
        low = min(tuple(file.min_key.values) for file in ours)
        high = max(tuple(file.max_key.values) for file in ours)
        return [
            file
            for file in theirs
            if tuple(file.min_key.values) <= high and tuple(file.max_key.values) >= low
        ]
    except TypeError:  # values that have no order in Python
        return list(theirs)


def _common(a: pa.Table, b: pa.Table) -> pa.Table:
    keys = [name for name in a.column_names if not name.startswith(("min_", "max_"))]
    return a.rename_columns([*keys, "min_a", "max_a"]).join(
        b.rename_columns([*keys, "min_b", "max_b"]), keys, join_type="inner"
    )


def _numbers(table: Table, bucket: Bucket, files: Sequence[Any]) -> pa.Table:
    """Each key of some files with its least and greatest sequence number."""
    keys = [f"k{number}" for number in range(len(table.paimon.trimmed_primary_keys))]
    read = pa.concat_tables([_read(table, bucket, file, keys) for file in files])
    grouped = read.group_by(keys).aggregate([(_SEQUENCE, "min"), (_SEQUENCE, "max")])
    return grouped.select([*keys, f"{_SEQUENCE}_min", f"{_SEQUENCE}_max"]).rename_columns(
        [*keys, "min_", "max_"]
    )


def _read(table: Table, bucket: Bucket, file: Any, names: Sequence[str]) -> pa.Table:
    paimon = table.paimon
    path = file.external_path or canonical_data_file_path(paimon, *bucket, file.file_name)
    with paimon.file_io.new_input_stream(path) as source:
        content = pa.BufferReader(source.read())
    keys = list(paimon.trimmed_primary_keys)
    if file.file_name.endswith(".parquet"):
        stored = parquet.ParquetFile(content)
        known = set(stored.schema_arrow.names)
    elif file.file_name.endswith(".orc"):
        stored = orc.ORCFile(content)
        known = set(stored.schema.names)
    else:
        raise pa.ArrowNotImplementedError(f"{file.file_name} is neither Parquet nor ORC")
    # Files in thin mode have the keys among the values only.
    columns = [f"_KEY_{key}" if f"_KEY_{key}" in known else key for key in keys]
    read = stored.read(columns=[*columns, _SEQUENCE])
    return pa.table([read[column] for column in [*columns, _SEQUENCE]], names=[*names, _SEQUENCE])
