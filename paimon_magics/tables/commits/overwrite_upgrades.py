"""Puts the files of an overwrite on the highest level, where nothing is below them any more.

As Paimon's `FileStoreCommitImpl.tryUpgrade` (the option `overwrite-upgrade`). Files of tables whose
compactions look rows up, or are full after every write, stay on level 0: the compaction after the
statement moves them. So do files with deletes, which those tables would show as rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pypaimon.table.row.generic_row import GenericRowSerializer
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.planning.compaction.inline import compacts_inline, is_full
from paimon_magics.planning.compaction.picks import PickOptions
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.tables.commits.compaction_conflicts import overlapping_places
from paimon_magics.tables.table import Table

__all__ = ["upgrade_overwritten"]


def upgrade_overwritten(table: Table, messages: Sequence[CommitMessage]) -> None:
    """Set the level of the new files of an overwrite, which replace what their buckets had."""
    schema = table.schema
    if not schema.is_primary_key_table or not schema.flag("overwrite-upgrade"):
        return
    if schema.flag("pk-clustering-override"):
        return
    files = [file for message in messages for file in message.new_files]
    if any(file.level > 0 for file in files) or any(m.bucket < 0 for m in messages if m.new_files):
        return
    options = PickOptions.of(schema)
    buckets: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for message in messages:
        buckets[tuple(message.partition), message.bucket] += message.new_files
    candidates = [of for of in buckets.values() if not _is_compacted(schema, options, len(of))]
    candidates = [of for of in candidates if all(file.delete_row_count == 0 for file in of)]
    overlapping = _overlapping(schema, candidates)
    for place, members in enumerate(candidates):
        if place not in overlapping:
            for file in members:
                file.level = options.level_count - 1


def _is_compacted(schema: TableSchema, options: PickOptions, files: int) -> bool:
    """Whether a writer compacts a bucket of so many new files after the statement."""
    if not compacts_inline(schema):
        return False
    return options.forces_level_0_up or is_full(schema) or files >= options.compaction_trigger


def _overlapping(schema: TableSchema, buckets: Sequence[Sequence[Any]]) -> set[int]:
    """The places of buckets in which the keys of two files overlap."""
    places = [place for place, files in enumerate(buckets) if len(files) > 1 for _ in files]
    several = [file for files in buckets if len(files) > 1 for file in files]
    if not several:
        return set()
    columns = {
        "place": pa.array(places, pa.int64()),
        "level": pa.array([0] * len(several), pa.int64()),
        "file_name": pa.array([file.file_name for file in several]),
        "min_key": _keys(file.min_key for file in several),
        "max_key": _keys(file.max_key for file in several),
    }
    return set(overlapping_places(pa.table(columns), schema))


def _keys(rows: Any) -> pa.Array:
    return pa.array([GenericRowSerializer.to_bytes(row) for row in rows], pa.large_binary())
