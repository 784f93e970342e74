"""Statements that change rows: INSERT and TRUNCATE."""

from __future__ import annotations

from collections.abc import Mapping

from paimon_magics.errors import UnconfirmedError
from paimon_magics.planning.commits.requests import (
    Append,
    InsertChange,
    OverwritePartitions,
    OverwriteTouched,
)
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.session.connection import Connection
from paimon_magics.session.statements.confirmation import SEE_PREVIEW, taken_away
from paimon_magics.session.statements.handler import Handler
from paimon_magics.session.statements.read_plans import query_lines
from paimon_magics.session.writes.merged_schemas import columns_told
from paimon_magics.session.writes.ordering import nothing_changed
from paimon_magics.session.writes.partitions import PartitionSpec, remove_partitions, truncate_specs
from paimon_magics.session.writes.prepare import PreparedInsert, distribution, prepare_insert
from paimon_magics.session.writes.replaced import Replaced, replaced_by_insert
from paimon_magics.session.writes.small_inserts import run_insert_statement
from paimon_magics.statements.statement import (
    Insert,
    TruncateTable,
)
from paimon_magics.statements.subjects import subject_of
from paimon_magics.tables.commits.replaced_partitions import sizes_of_replaced
from paimon_magics.tables.table import Table

__all__ = ["insert_handler", "truncate_handler"]


def insert_handler(
    connection: Connection,
    insert: Insert,
    parameters: Mapping[str, object],
    wait: str | None = None,
) -> Handler:
    """INSERT INTO and INSERT OVERWRITE."""

    def prepared() -> PreparedInsert:
        return prepare_insert(connection, insert, parameters)

    # The log keeps small inserts in order: nothing needs to be loaded before a VALUES list.
    changes = insert.overwrite or not insert.source.is_values
    return Handler(
        run=lambda: run_insert_statement(connection, insert, parameters, wait),
        dry_run=lambda: "Would run. " + " ".join(_insert_lines(connection, insert, parameters)),
        explain=lambda mode: _insert_lines(connection, insert, parameters),
        preview=lambda: replaced_by_insert(prepared()),
        unconfirmed=lambda mode: _unconfirmed_insert(connection, insert, mode),
        changed=(lambda: (insert.target,)) if changes else nothing_changed,
        needs=(insert.target, *subject_of(insert).sources),
    )


def truncate_handler(
    connection: Connection, statement: TruncateTable, parameters: Mapping[str, object]
) -> Handler:
    """TRUNCATE TABLE, for all or some partitions."""

    def table() -> Table:
        return connection.load(statement.name, statement.text, 0)

    def specs() -> tuple[PartitionSpec, ...]:
        return truncate_specs(connection, statement, table(), parameters)

    def unconfirmed(mode: str) -> UnconfirmedError | None:
        wanted = specs()
        sizes = sizes_of_replaced(table(), specs=wanted)
        if wanted and len(sizes) < 2:
            return None
        return taken_away(statement, f"TRUNCATE TABLE `{table().name}`", sizes, SEE_PREVIEW)

    return Handler(
        run=lambda: remove_partitions(
            connection, table(), statement.text, "TRUNCATE TABLE", specs()
        ),
        dry_run=lambda: f"Would remove rows of `{table().name}`.",
        explain=None,
        preview=lambda: Replaced(table(), sizes_of_replaced(table(), specs=specs())),
        unconfirmed=unconfirmed,
        changed=lambda: (statement.name,),
        needs=(statement.name,),
    )


def _unconfirmed_insert(
    connection: Connection, insert: Insert, mode: str
) -> UnconfirmedError | None:
    if not insert.overwrite or insert.partition is not None or mode == "dynamic":
        return None
    table = connection.load(insert.target, insert.text, 0)
    sizes = sizes_of_replaced(table, specs=()) if table.schema.is_partitioned else []
    instead = "PARTITION (…) after the table's name, or the dynamic overwrite mode, "
    instead += f"replaces less. {SEE_PREVIEW}"
    what = f"INSERT OVERWRITE `{table.name}` without PARTITION"
    return taken_away(insert, what, sizes, instead)


def _insert_lines(
    connection: Connection, insert: Insert, parameters: Mapping[str, object]
) -> list[str]:
    merged = columns_told(connection, insert, parameters)
    if merged:  # the rest is planned on the table's new columns
        return [f"Before the rows are written: {told}" for told in merged]
    prepared = prepare_insert(connection, insert, parameters)
    table, change = prepared.table, prepared.change
    lines = [
        f"{table.name}: {_replaced(change, table.schema)}.",
        f"Distribution: {_distribution(connection, prepared, insert)}.",
    ]
    casts = prepared.changeable()
    if casts:
        lines.append(f"Casts that may round or cut values: {', '.join(casts)}.")
    lines += [
        f"{line}." for line in query_lines(connection, insert.text, insert.source, parameters)
    ]
    return lines


def _replaced(change: InsertChange, schema: TableSchema) -> str:
    match change:
        case Append():
            if schema.is_primary_key_table:
                return "rows are merged in by key"
            keys = schema.stored_option("upsert-key")
            return f"rows are merged in by {keys}, as MERGE does" if keys else "rows are added"
        case OverwriteTouched():
            return "the partitions that receive rows are replaced"
        case OverwritePartitions(specs=()):
            return "the whole table is replaced"
        case OverwritePartitions(specs=specs):
            shown = ", ".join(f"{key} = {value}" for key, value in specs[0])
            return f"the partitions with {shown} are replaced"


def _distribution(connection: Connection, prepared: PreparedInsert, insert: Insert) -> str:
    if insert.source.is_values:
        return "the rows are written by this process, without a Spark job"
    return str(distribution(connection, prepared))
