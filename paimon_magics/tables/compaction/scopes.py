"""The partitions that a compaction may be limited to: those that have files, with their values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.binary_rows import decode_rows
from paimon_magics.errors import InvalidValueError, UnknownNameError, nearest
from paimon_magics.planning.compaction.append_tables import AppendRules
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.tables.manifests.columns import creation_instants
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.schema.types import arrow_type
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.table import Table

_Bools = npt.NDArray[np.bool_]


_PLACE = ["partition", "bucket"]


@dataclass(frozen=True)
class StoredPartitions:
    """Partitions that have files: serialized, the values of each partition column, and when the
    newest file of each was created, in milliseconds since 1970."""

    encoded: pa.Array
    values: list[pa.Array]
    written_ms: npt.NDArray[np.int64]


def stored_partitions(table: Table) -> StoredPartitions:
    """The partitions of the latest snapshot."""
    snapshot = latest_snapshot(table.paimon)
    types = [arrow_type(table.schema.column(key).type) for key in table.schema.partition_keys]
    if snapshot is None:
        none = [pa.array([], data_type) for data_type in types]
        return StoredPartitions(pa.array([], pa.large_binary()), none, np.zeros(0, dtype=np.int64))
    files = live_files(ManifestCache(table.paimon), snapshot)
    codes = files["partition"].combine_chunks().dictionary_encode()
    created = np.asarray(pc.fill_null(creation_instants(files), 0))
    newest = np.zeros(len(codes.dictionary), dtype=np.int64)
    np.maximum.at(newest, np.asarray(codes.indices), created)
    values = decode_rows(codes.dictionary, types) if types else []
    return StoredPartitions(codes.dictionary, values, newest)


def partitions_of(table: Table, encoded: Iterable[bytes]) -> StoredPartitions:
    """Partitions by their serialized values. When they were written is not known: 0."""
    types = [arrow_type(table.schema.column(key).type) for key in table.schema.partition_keys]
    distinct = pa.array(sorted(set(encoded)), pa.large_binary())
    values = decode_rows(distinct, types) if types else []
    return StoredPartitions(distinct, values, np.zeros(len(distinct), dtype=np.int64))


def partitions_of_specs(table: Table, stored: StoredPartitions, text: str) -> _Bools:
    """Marks the partitions that a text like `dt=2026-01-01,h=1;dt=2026-01-02` names.

    Raises UnknownNameError for a column that is no partition column, InvalidValueError for a text
    that is no value of its column.
    """
    named = np.zeros(len(stored.encoded), dtype=bool)
    for spec in filter(None, (part.strip() for part in text.split(";"))):
        matching = np.ones(len(stored.encoded), dtype=bool)
        for pair in spec.split(","):
            key, _, value = (part.strip() for part in pair.partition("="))
            matching &= _with_value(table, stored, key, value)
        named |= matching
    return named


def _with_value(table: Table, stored: StoredPartitions, key: str, value: str) -> _Bools:
    keys = table.schema.partition_keys
    if key not in keys:
        raise UnknownNameError(
            f"`{key}` is not a partition column of `{table.name}`.",
            hint=nearest(key, keys, what="partition columns")
            if keys
            else "The table is not partitioned.",
        )
    column = stored.values[keys.index(key)]
    if value == table.schema.partition_default_name:
        nulls: _Bools = np.asarray(column.is_null())
        return nulls
    data_type = table.schema.column(key).type
    if isinstance(data_type, AtomicType) and data_type.name == "CHAR":
        value = value.ljust(data_type.parameters[0])
    try:
        wanted = pa.scalar(value).cast(column.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidValueError(
            f"The partition column `{key}` of `{table.name}` can't be {value!r}: {error}",
            hint=f"Its type is {column.type}.",
        ) from error
    same: _Bools = np.asarray(pc.fill_null(pc.equal(column, wanted), False))
    return same


# How near a table's buckets are to their triggers.


def fullest_bucket(table: Table, manifests: ManifestCache) -> int:
    """The maximum number of sorted runs in a bucket of the table's latest snapshot. For a table
    without a key: the maximum number of small files in a bucket, or in a partition without
    buckets."""
    snapshot = latest_snapshot(table.paimon)
    if snapshot is None:
        return 0
    files = live_files(manifests, snapshot)
    if table.schema.is_primary_key_table:
        # A file of level 0 is a run of its own, those of another level are one together.
        numbers = pa.array(np.arange(1, files.num_rows + 1))
        run = pc.if_else(pc.equal(files["level"], 0), numbers, pc.negate(files["level"]))
        runs = files.select(_PLACE).append_column("run", run).group_by([*_PLACE, "run"])
        files = runs.aggregate([])
    else:
        small = AppendRules.of(table.schema).small_bytes
        files = files.filter(pc.less(files["file_size"], small))
    counts = files.group_by(_PLACE).aggregate([([], "count_all")])["count_all"]
    return int(pc.max(counts).as_py() or 0)
