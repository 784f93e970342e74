"""Global indexes of columns that get new values.

Paimon's engines build them over columns of data-evolution tables. Nobody keeps them up to date, so
that a changed column's index finds rows by their old values. What happens to it says the option
`global-index.column-update-action`, as in `MergeIntoPaimonDataEvolutionTable.checkUpdateResult`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from pypaimon.index.index_file_handler import IndexFileHandler
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.tables.manifests.file_kinds import DELETE
from paimon_magics.tables.table import Table

__all__ = ["check_indexed_columns", "drop_outdated_indexes"]

_ACTION = "global-index.column-update-action"


def check_indexed_columns(
    table: Table, snapshot: Any, assigned: Collection[str], partitions: Collection[tuple[Any, ...]]
) -> None:
    """Raise UnsupportedStatementError if a column that is `assigned` has an index at a snapshot in
    one of the partitions, whose option says that it must not change (the default)."""
    if _action(table) != "THROW_ERROR":
        return
    columns = {
        name
        for entry in _indexes(table, snapshot, assigned, partitions)
        for name in _names(table, entry) & set(assigned)
    }
    if columns:
        name = min(columns)
        raise UnsupportedStatementError(
            f"`{name}` of `{table.name}` has a global index, which would go on finding rows by the "
            "values that they have now.",
            hint=f"Let the statement drop the index: ALTER TABLE {table.name} SET TBLPROPERTIES "
            f"('{_ACTION}' = 'DROP_PARTITION_INDEX'), and build it again afterwards. With 'IGNORE' "
            "it stays, and is wrong for the rows that change.",
        )


def drop_outdated_indexes(
    table: Table, snapshot: Any, assigned: Collection[str], messages: list[CommitMessage]
) -> None:
    """Let messages remove the indexes of `assigned` columns in the partitions whose files they add
    to, where the table's option says so."""
    if _action(table) != "DROP_PARTITION_INDEX":
        return
    changed = {tuple(one.partition): one for one in messages if one.new_files}
    for entry in _indexes(table, snapshot, assigned, changed):
        message = changed[tuple(entry.partition.values)]
        message.index_deletes.append(replace(entry, kind=DELETE))


def _action(table: Table) -> str:
    return (table.schema.option(_ACTION) or "THROW_ERROR").upper()


def _indexes(
    table: Table, snapshot: Any, columns: Collection[str], partitions: Collection[tuple[Any, ...]]
) -> list[Any]:
    """The index entries over some of the columns in some of the partitions."""
    return [
        entry
        for entry in IndexFileHandler(table.paimon).scan(snapshot)
        if entry.index_file.global_index_meta is not None
        and tuple(entry.partition.values) in partitions
        and not _names(table, entry).isdisjoint(columns)
    ]


def _names(table: Table, entry: Any) -> set[str]:
    """The columns that an index entry is about, by their names of today."""
    meta = entry.index_file.global_index_meta
    ids = {meta.index_field_id, *(meta.extra_field_ids or ())}
    return {one.name for one in table.schema.columns if one.id in ids}
