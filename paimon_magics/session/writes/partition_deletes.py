"""A DELETE of whole partitions: they leave the table by metadata, as TRUNCATE removes them.

Source: `OptimizeMetadataOnlyDeleteFromPaimonTable` of Paimon's connector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.row_changes.partition_conditions import may_select_partitions
from paimon_magics.session.connection import Connection, located
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.writes.outcomes import NOTHING_WRITTEN
from paimon_magics.session.writes.partitions import (
    PartitionSpec,
    partition_texts,
    remove_partitions,
)
from paimon_magics.session.writes.row_selection import changed_outcome, selected_rows
from paimon_magics.spark.char_columns import with_char_columns
from paimon_magics.spark.failures import translate
from paimon_magics.spark.fetching import fetched
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.rows import frame_of_rows
from paimon_magics.statements.row_changes import Delete
from paimon_magics.tables.compaction.scopes import stored_partitions
from paimon_magics.tables.snapshots.latest import latest_snapshot_id
from paimon_magics.tables.table import Table

__all__ = ["delete_partitions", "deleted_partitions"]

_NUMBER = "__paimon_magics_number"


def deleted_partitions(
    connection: Connection, delete: Delete, table: Table, parameters: Mapping[str, object]
) -> tuple[PartitionSpec, ...] | None:
    """The partitions that a DELETE takes away as a whole; ((),) is the whole table, and () nothing.
    None for a DELETE that has to look at rows."""
    schema = table.schema
    if schema.flag("delete.force-produce-changelog"):
        return None
    where = delete.selection.condition
    if where is None:
        return ((),)
    condition = delete.text[where.start : where.end]
    others = set(schema.column_names) - set(schema.partition_keys)
    if not may_select_partitions(condition, others):
        return None
    if not schema.is_partitioned:
        return ((),) if condition.upper().strip("() ") == "TRUE" else None
    stored = stored_partitions(table)
    numbers = pa.array(range(len(stored.encoded)), pa.int64())
    rows = pa.table([*stored.values, numbers], names=[*schema.partition_keys, _NUMBER])
    frame = with_char_columns(frame_of_rows(connection.spark, rows), schema.columns)
    try:
        selected = selected_rows(
            connection, delete, parameters, table, latest_snapshot_id(table), frame
        )
    except PaimonMagicsError:
        return None  # it names other columns, or is wrong: then rows are looked at
    try:
        with cancellable(connection.spark):  # a subquery runs jobs
            found = fetched(selected.select(_NUMBER)).column(0).to_pylist()
    except Exception as error:
        raise located(translate(error), delete.text, where.start) from error
    values = [column.to_pylist() for column in stored.values]
    return tuple(_spec(table, [column[number] for column in values]) for number in sorted(found))


def _spec(table: Table, values: list[Any]) -> PartitionSpec:
    return tuple(partition_texts(table, values).items())


def delete_partitions(
    connection: Connection, delete: Delete, table: Table, specs: tuple[PartitionSpec, ...]
) -> Outcome:
    """Remove the partitions of `deleted_partitions` by one commit; without any, commit nothing."""
    if not specs:
        return changed_outcome(delete, table, None, 0, NOTHING_WRITTEN)
    whole = specs == ((),)
    return remove_partitions(connection, table, delete.text, "DELETE", () if whole else specs)
