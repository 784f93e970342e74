"""Names in a query → frames: Paimon's tables and system tables; the rest is Spark's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from paimon_magics.errors import PaimonMagicsError, UnknownNameError, UnsupportedStatementError
from paimon_magics.planning.reads import ReadPlan, plan_read
from paimon_magics.session.connection import Connection, located
from paimon_magics.session.leases import HeldSnapshots
from paimon_magics.session.parameters import bind
from paimon_magics.spark.queries import is_temporary_view, known_to_spark, query_frame
from paimon_magics.spark.reading import read_frame
from paimon_magics.spark.rows import frame_of_rows
from paimon_magics.statements.statement import QueryText, TableName, TableReference
from paimon_magics.tables.catalog import Table
from paimon_magics.tables.locations import local_path
from paimon_magics.tables.native import native_table
from paimon_magics.tables.scanning import scan, snapshot_identity
from paimon_magics.tables.system_tables import is_catalog_table, is_metadata, metadata_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "frame_of_query",
    "frame_of_table",
    "is_paimon_table",
    "read_plan",
    "resolve",
    "views_of_query",
]


def frame_of_query(
    connection: Connection, statement: str, query: QueryText, parameters: Mapping[str, object]
) -> DataFrame:
    """The lazy frame of a query inside `statement`. Raises errors with positions in it."""
    bound = bind(query.parameters, parameters, statement)
    held = HeldSnapshots(connection.committer)
    try:
        views = views_of_query(connection, statement, query, held)
        frame = query_frame(connection.spark, statement, query, views, bound)
        held.release_with(frame)
        return frame
    finally:
        held.release()
        connection.views.drop_passing()


def views_of_query(
    connection: Connection, statement: str, query: QueryText, held: HeldSnapshots
) -> list[tuple[TableReference, str]]:
    """The view in place of each reference to a Paimon table; the caller drops passing views, and
    sees to it that what they read is `held` for as long as they are used."""
    views = []
    for reference in query.references:
        name = resolve(connection, reference, statement)
        if name is None:
            continue
        try:
            views.append((reference, _view_of(connection, name, held)))
        except PaimonMagicsError as error:
            raise located(error, statement, reference.range.start) from None
    return views


def resolve(connection: Connection, reference: TableReference, statement: str) -> TableName | None:
    """The full name of the Paimon table that is referred to, or None for Spark's own.

    A temporary view shadows a Paimon table of the same name, a Paimon table shadows one of Spark's
    catalog. Raises UnknownNameError when nobody has the name.
    """
    name = reference.name
    ours = connection.settings.catalog_name
    if name.catalog is not None and name.catalog != ours:
        return None
    full = connection.full_name(name)
    if name.database is None and is_temporary_view(connection.spark, name.object_name):
        return None
    if is_paimon_table(connection, full):
        _refuse_clauses(reference, statement)
        return full
    parts = [p for p in (name.database, name.object_name) if p is not None]
    if name.catalog is None and known_to_spark(connection.spark, parts):
        return None
    if name.database is not None and _is_file_relation(name):
        return None
    try:
        connection.catalog.load(replace(full, system_table=None))
    except UnknownNameError as error:
        raise located(error, statement, reference.range.start) from None
    return full


def is_paimon_table(connection: Connection, name: TableName) -> bool:
    """Whether the catalog has the table (for a system table: the table that it is about; what is in
    the database `sys` always is)."""
    assert name.database is not None
    if is_catalog_table(name):
        return True
    return connection.catalog.database_exists(name.database) and connection.catalog.table_exists(
        replace(name, system_table=None)
    )


def frame_of_table(connection: Connection, name: TableName) -> DataFrame:
    """All rows of a table or metadata system table at its latest snapshot, as a lazy frame."""
    if is_metadata(name):
        return frame_of_rows(connection.spark, metadata_table(connection.catalog, name))
    held = HeldSnapshots(connection.committer)
    try:
        # A frame of the caller's own: the kept one stays for other queries.
        frame = _kept(connection, name, held)[1].select("*")
        held.release_with(frame)
        return frame
    finally:
        held.release()


def _view_of(connection: Connection, name: TableName, held: HeldSnapshots) -> str:
    if is_metadata(name):
        return connection.views.pass_by(frame_of_table(connection, name))
    return _kept(connection, name, held)[0]


def _kept(connection: Connection, name: TableName, held: HeldSnapshots) -> tuple[str, DataFrame]:
    """View and frame of the table's latest snapshot, kept for the next query on it."""
    table = connection.catalog.load(name)

    def make() -> DataFrame:
        return read_frame(
            connection.spark,
            read_plan(connection, table),
            table.definition.columns,
            native_table(table),
            connection.settings.batch_rows,
        )

    while True:
        before = snapshot_identity(table)
        if before is not None and not held.hold(name, before[0]):
            continue  # it was the latest, and is not any more
        key = (table.location, name.branch, table.definition, before)
        found = connection.views.find(key)
        if found is not None:
            return found
        made = connection.views.keep(key, make())
        # A commit in between belongs to another key than the one it would be kept under.
        if snapshot_identity(table) == before:
            return made
        connection.views.forget(key)


def read_plan(connection: Connection, table: Table) -> ReadPlan:
    """How the table's latest snapshot is read."""
    found = scan(table)
    return plan_read(
        table.definition.columns,
        found.schemas,
        found.splits,
        snapshot_id=found.snapshot_id,
        slots=connection.slots,
        spark_opens_store=local_path(table.location) is not None
        or table.location.startswith("hdfs:"),
    )


_FILE_RELATIONS = ("parquet", "orc", "avro", "csv", "json", "text", "binaryfile", "delta")


def _is_file_relation(name: TableName) -> bool:
    return name.database is not None and name.database.lower() in _FILE_RELATIONS


def _refuse_clauses(reference: TableReference, statement: str) -> None:
    if reference.time_travel is not None:
        raise UnsupportedStatementError(
            f"Time travel (`{reference.time_travel.kind.upper()} AS OF`) is not offered yet.",
            hint=f"Read `{reference.name}` at its latest snapshot.",
            statement=statement,
            position=reference.range.start,
        )
    if reference.options:
        raise UnsupportedStatementError(
            f"Read options (`WITH ('{reference.options[0][0]}' = …)`) are not offered yet.",
            hint=f"Read `{reference.name}` without options.",
            statement=statement,
            position=reference.range.start,
        )
