"""A table together with small inserts that are acknowledged but not loaded yet.

The coordinator gives snapshot and buffered rows as of one moment, so no row is missing or counted
twice, and later loads do not change what the query sees. Records of older schemas are mapped as
loading will map them. Records that can't be loaded (future dead letters) are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from paimon_magics.coordinator.client.buffered_rows import buffered_entries
from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.reads.read_points import Latest, point_of_read
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.planning.writes.inserts import takes_small_inserts
from paimon_magics.session.connection import Connection
from paimon_magics.spark.combining import rows_with_keys, with_rows, without_keys
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from paimon_magics.session.queries.relations import Relation
    from paimon_magics.spark.handles import DataFrame
    from paimon_magics.tables.reading.changed_rows import Change

__all__ = ["frame_with_buffer"]


def frame_with_buffer(
    connection: Connection, relation: Relation, read: Callable[[Relation], DataFrame]
) -> DataFrame | None:
    """Return the rows that `relation` will have when all inserts acknowledged now are loaded. None
    if it takes no small inserts, or is not the table's current state. `read` gives the frame of the
    rows in the table.

    Raises InvalidValueError if the session has no coordinator to ask, CommitConflictError while the
    coordinator does not know what is acknowledged.
    """
    name = relation.name
    if name.system_table is not None or name.branch is not None or relation.options:
        return None
    relation = replace(relation, names_row_ids=False)  # such rows have no ids yet
    table = connection.tables.load(name)
    if not takes_small_inserts(table.schema) or _reads_another_state(table.schema):
        return None
    if connection.committer.inserts() is None:
        raise InvalidValueError(
            f"Acknowledged rows of `{name}` that are not loaded can't be read: this session has no "
            "coordinator.",
            hint="Connect with coordinator='embedded' or the address of a coordinator, or leave "
            "`include_buffer` (--include-buffer) out.",
        )
    found = connection.committer.administration().queues.buffer(name)
    if found.acknowledged == found.published:
        return read(replace(relation, snapshot_id=found.snapshot_id))
    entries = buffered_entries(found, table)
    keys = table.schema.primary_keys
    names = None if relation.names is None else relation.names | {key.lower() for key in keys}
    below = read(replace(relation, snapshot_id=found.snapshot_id, names=names))
    if not keys:
        return with_rows(connection.spark, below, _rows_of(entries, table.schema))
    whole = replace(relation, snapshot_id=found.snapshot_id, names=None, filters=())
    return _upserted(connection, table, below, entries, lambda: read(whole))


def _rows_of(entries: Sequence[pa.RecordBatch | Change], schema: TableSchema) -> pa.Table:
    """The rows that are inserted."""
    import pyarrow as pa

    batches = [one for one in entries if isinstance(one, pa.RecordBatch)]
    return pa.Table.from_batches(batches, arrow_schema(schema))


def _reads_another_state(schema: TableSchema) -> bool:
    """Whether the table's own options make a read one of an earlier state, or of changes."""
    return not isinstance(point_of_read(schema, {}), Latest)


def _upserted(
    connection: Connection,
    table: Table,
    below: DataFrame,
    entries: Sequence[pa.RecordBatch | Change],
    whole: Callable[[], DataFrame],
) -> DataFrame:
    """Return the frame as it will be when `entries` are loaded. `whole` gives the frame with all
    columns."""
    import pyarrow as pa

    from paimon_magics.tables.reading.buffered_rows import merged_on_top, needs_rows_below
    from paimon_magics.tables.reading.changed_rows import changed_rows, keys_of
    from paimon_magics.tables.schema.arrow_casting import conform

    spark, table_schema = connection.spark, table.schema
    rows = _rows_of(entries, table_schema)
    keys = rows.select(list(table_schema.primary_keys))
    schema = arrow_schema(table_schema)
    old = schema.empty_table()
    changed = keys_of(entries)
    if changed is not None:
        keys = pa.concat_tables([keys, changed.cast(keys.schema)])
    if changed is not None or needs_rows_below(table_schema):
        found = rows_with_keys(spark, whole(), keys)
        old = pa.Table.from_batches([conform(one, schema) for one in found.to_batches()], schema)
    if changed is not None:
        rows = changed_rows(table_schema, entries, lambda _: old)
    merged = merged_on_top(table_schema, old, rows)
    return with_rows(spark, without_keys(spark, below, keys), merged)
