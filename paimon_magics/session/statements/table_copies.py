"""CALL of the procedures that bring whole tables here: `copy` of Paimon's tables, file by file, and
`migrate_table` and `migrate_database` of those in Spark's own catalog, row by row.

A failure in the middle leaves both tables as they were: a table that was created for it is dropped
again, and the origin goes last, after its rows were counted here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import (
    InvalidTableError,
    InvalidValueError,
    OutdatedPlanError,
    PaimonMagicsError,
    UnconfirmedError,
    UnknownNameError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.planning.commits.expiry import with_time_retained
from paimon_magics.planning.commits.requests import OverwriteTouched, Transaction
from paimon_magics.planning.formatting import count_text, size_text
from paimon_magics.planning.job_progress import Work
from paimon_magics.planning.schemas.rules import check_schema
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.session.inserts.insert import run_insert
from paimon_magics.session.inserts.new_tables import filled
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.provenance import Operation
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.statements.compaction import ProcedureCall, chosen_partitions
from paimon_magics.session.statements.creation import create_table_handler
from paimon_magics.session.statements.handler import taken_away, unconfirmed
from paimon_magics.session.writes.outcomes import Replaced
from paimon_magics.session.writes.transactions import ToCommit, begun, transact
from paimon_magics.spark.queries import cancellable, kind_in_spark
from paimon_magics.spark.task_units import run_units
from paimon_magics.statements.clauses.names import named, spelled, table_text, text_literal
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.maintenance import CopyTable, MigrateDatabase, MigrateTable
from paimon_magics.statements.statement import CreateTable, Insert, TableName
from paimon_magics.statements.version_changes import Call
from paimon_magics.tables.commits.replaced_partitions import sizes_of_replaced
from paimon_magics.tables.compaction.file_copies import (
    CopyUnits,
    TableCopy,
    check_copied,
    plan_table_copy,
)
from paimon_magics.tables.compaction.plans import run_here
from paimon_magics.tables.snapshots.latest import latest_snapshot, state_of
from paimon_magics.tables.table import Table

# A job costs some tenths of a second before its first file.
_IN_PROCESS_BYTES_MAX = 64 << 20
_SOURCES = ("hive", "spark")
_OWN_CATALOG = "spark_catalog"
_NOTES_MAX = 20


# ---- copy ----


@dataclass(frozen=True)
class _Copying:
    """A copy as it was planned: `target` is None if the table `name` has to be created with
    `schema`. `snapshot` is pypaimon's, None for a source without rows."""

    source: Table
    snapshot: Any
    name: TableName
    schema: TableSchema
    target: Table | None
    partitions: frozenset[bytes] | None


def copied_tables(call: ProcedureCall, request: CopyTable) -> tuple[TableName, ...]:
    """The tables whose small inserts come before a copy."""
    return named(request.source), named(request.target)


def run_copy(call: ProcedureCall, request: CopyTable) -> Outcome:
    """Run CALL sys.copy. It returns true."""
    scope = call.scope
    planned = _planned(call, request)
    if planned.target is not None:
        return _copied(scope, call.statement, planned, planned.target)
    database = planned.name.database or ""
    if not scope.catalog.database_exists(database):
        scope.definitions.create_database(database, {}, if_not_exists=True)
        scope.note(f"The database `{database}` was created for the copy.")
    scope.definitions.create_table(planned.name, planned.schema)

    def fill() -> Outcome:
        target = scope.catalog.load(planned.name)
        return _copied(scope, call.statement, planned, target)

    outcome = filled(scope, planned.name, fill)
    outcome.kind = "CALL"
    return outcome


def copy_lines(call: ProcedureCall, request: CopyTable) -> list[str]:
    """What CALL sys.copy would do."""
    planned = _planned(call, request)
    how = "a new table" if planned.target is None else "the partitions that it replaces"
    if planned.snapshot is None:
        return [f"`{planned.source.name}` has no snapshot: would copy no rows to {how}."]
    target = planned.target or planned.source  # only for the places of new files
    plan = _plan(call.scope, planned, target)
    return [
        f"Would copy {count_text(len(plan.units), 'file')} ({size_text(plan.size_bytes)}) of "
        f"`{planned.source.name}`, snapshot {planned.snapshot.id}, to `{planned.name}`, {how}."
    ]


def loss_of_copy(call: ProcedureCall, request: CopyTable) -> UnconfirmedError | None:
    """The question before a copy replaces rows."""
    planned = _planned(call, request)
    target = planned.target
    if target is None or planned.snapshot is None:
        return None
    partitions = _plan(call.scope, planned, target).partitions
    is_whole = not target.schema.partition_keys
    sizes = (
        sizes_of_replaced(target, specs=())
        if is_whole
        else sizes_of_replaced(target, partitions=partitions)
    )
    return taken_away(call.statement, f"A copy to `{target.name}`", Replaced(target, sizes), "")


def _planned(call: ProcedureCall, request: CopyTable) -> _Copying:
    scope = call.scope
    with call.errors_located():
        source_name, name = (scope.full_name(named(text)) for text in copied(request))
        source = scope.tables.load(source_name)
        if source.name == name:
            raise InvalidValueError(
                f"`{name}` can't be copied to itself.", hint="Name another `target_table`."
            )
        if name.branch is not None:
            raise UnsupportedStatementError(
                f"`{name}` is a branch: a copy goes to a table.",
                hint="CALL sys.create_branch makes a branch.",
            )
        target = scope.tables.load(name) if scope.tables.exists(name) else None
        options = tuple(pair for pair in source.schema.options if pair[0] not in ("path", "branch"))
        schema = replace(source.schema, options=options, schema_id=0)
        if target is None:
            schema = with_time_retained(schema, scope.settings.snapshot_time_retained)
            check_schema(schema)
        check_copied(source, schema if target is None else target.schema, name)
        partitions = chosen_partitions(scope, source, None, request.where)
    return _Copying(source, latest_snapshot(source.paimon), name, schema, target, partitions)


def copied(request: CopyTable) -> tuple[str, str]:
    """The names of both tables, as they were written."""
    return request.source, request.target


def _plan(scope: StatementScope, planned: _Copying, target: Table) -> TableCopy:
    manifests = scope.manifests(planned.source)
    return plan_table_copy(planned.source, target, planned.snapshot, planned.partitions, manifests)


def _copied(scope: StatementScope, statement: Call, planned: _Copying, target: Table) -> Outcome:
    source, snapshot = planned.source, planned.snapshot
    rows = pa.table({"result": pa.array([True])})
    outcome = Outcome.of_rows(scope.spark, statement.text, "CALL", rows)
    outcome.table = str(target.name)
    if snapshot is None:
        outcome.message = f"`{source.name}` has no rows, so none were copied."
        return outcome
    with _leased(scope, source, snapshot.id):
        plan = _plan(scope, planned, target)
        base = state_of(latest_snapshot(target.paimon))
        transaction = begun(scope, target.name, base, Attempts(reruns_max=0))
        write = partial(_write, scope, statement, plan, transaction)
        receipt, _ = transact(scope, transaction, statement.text, write)
    outcome.snapshot_id, outcome.commit_kind = receipt.snapshot_id, receipt.commit_kind
    outcome.files_written = len(plan.units)
    outcome.message = (
        f"{count_text(len(plan.units), 'file')} ({size_text(plan.size_bytes)}) of "
        f"`{source.name}`, snapshot {snapshot.id}, copied to `{target.name}`"
        + (f" (snapshot {receipt.snapshot_id})." if receipt.snapshot_id is not None else ".")
    )
    return outcome


def _write(
    scope: StatementScope, statement: Call, plan: TableCopy, transaction: Transaction
) -> tuple[ToCommit, None]:
    work = Work(
        sources=(str(plan.source.name),),
        rows=plan.rows,
        size_bytes=plan.size_bytes,
        files=len(plan.units),
        target="files",
        is_plain=True,
    )
    with cancellable(scope.spark, lambda: work):
        copying, slots, repeated = plan.copying(transaction), scope.slots, False
        if plan.size_bytes <= _IN_PROCESS_BYTES_MAX:
            threads = min(slots, os.cpu_count() or 1)
            files = run_here(copying, plan.units, threads=threads)
        else:
            results = run_units(scope.spark, CopyUnits.of(copying, plan.units, slots))
            files = [file for group in results.results for file in group]
            repeated = results.repeated_attempts
        messages = plan.messages(transaction, files)
    operation = Operation("COPY", inserted=plan.rows)
    to_commit = ToCommit(
        messages,
        plan.rows,
        len(plan.units),
        operation,
        OverwriteTouched(),
        repeated_attempts=repeated,
    )
    return to_commit, None


@contextmanager
def _leased(scope: StatementScope, table: Table, snapshot_id: int) -> Iterator[None]:
    """Keep a snapshot from expiring while the body runs; those of branches don't expire here."""
    if table.name.branch is not None:
        yield
        return
    if not scope.committer.lease(table.name, snapshot_id):
        raise OutdatedPlanError(
            f"Snapshot {snapshot_id} of `{table.name}` expired before it was copied.",
            hint="Nothing was written. Run the statement again.",
        )
    try:
        yield
    finally:
        scope.committer.release(table.name, snapshot_id)


# ---- migrate ----


@dataclass(frozen=True)
class _Origin:
    """A table in Spark's own catalog: its name there, its columns as CREATE TABLE defines them and
    those of its partitions, the source of its rows (`parquet`) and its comment."""

    name: str
    columns: tuple[str, ...]
    partition_keys: tuple[str, ...]
    provider: str
    comment: str


@dataclass(frozen=True)
class _Migration:
    """A migration as it was planned, with the statements that make the table and fill it."""

    origin: _Origin
    target: TableName
    create: CreateTable
    insert: Insert


def run_migration(call: ProcedureCall, request: MigrateTable) -> Outcome:
    """Run CALL sys.migrate_table. It returns true."""
    scope = call.scope
    planned = _planned_migration(call, request)
    origin = planned.origin
    created = _filled(scope, planned)
    rows = pa.table({"result": pa.array([True])})
    outcome = Outcome.of_rows(scope.spark, call.text, "CALL", rows)
    outcome.table = str(planned.target)
    outcome.snapshot_id, outcome.commit_kind = created.snapshot_id, created.commit_kind
    outcome.notes = created.notes
    if request.parallelism is not None:
        outcome.notes = (*outcome.notes, "`parallelism` has no effect: a Spark job migrates.")
    reason = _dropped(scope, planned) if request.delete_origin else ""
    stays = reason or not request.delete_origin
    outcome.message = f"`{planned.target}` has the rows of {origin.name} ({origin.provider})" + (
        f", which {'stays' if stays else 'was dropped'}."
    )
    if reason:
        outcome.notes = (*outcome.notes, reason)
    return outcome


def migration_lines(call: ProcedureCall, request: MigrateTable) -> list[str]:
    """What CALL sys.migrate_table would do."""
    planned = _planned_migration(call, request)
    origin, end = planned.origin, " and then drop it" if request.delete_origin else ""
    by = ", ".join(origin.partition_keys)
    return [
        f"Would create `{planned.target}`"
        + (f", partitioned by {by}," if by else "")
        + f" with the rows of {origin.name} ({origin.provider}){end}."
    ]


def loss_of_migration(call: ProcedureCall, request: MigrateTable) -> UnconfirmedError | None:
    """The question before the origin is dropped."""
    if not request.delete_origin:
        return None
    planned = _planned_migration(call, request)
    return unconfirmed(
        call.statement,
        f"Migrating {planned.origin.name}",
        f"that table of Spark's own when `{planned.target}` has its rows",
        "With delete_origin => false it stays.",
    )


def run_database_migration(call: ProcedureCall, request: MigrateDatabase) -> Outcome:
    """Run CALL sys.migrate_database. It returns how many tables were migrated, in the words of
    Paimon's procedure. One that can't be migrated stays, and does not stop the others."""
    names = _tables_of(call, request)
    failed = []
    for table in names:
        try:
            run_migration(call, _of_table(request, table))
        except PaimonMagicsError as error:
            failed.append(f"{table}: {error.message}")
    text = (
        f"migrate database is finished, success cnt: {len(names) - len(failed)} , "
        f"failed cnt: {len(failed)}"
    )
    rows = pa.table({"result": pa.array([text])})
    outcome = Outcome.of_rows(call.scope.spark, call.text, "CALL", rows)
    outcome.message = f"{count_text(len(names) - len(failed), 'table')} migrated."
    left = len(failed) - _NOTES_MAX
    outcome.notes = (
        *failed[:_NOTES_MAX],
        *((f"{left:,} more failed.",) if left > 0 else ()),
    )
    return outcome


def database_migration_lines(call: ProcedureCall, request: MigrateDatabase) -> list[str]:
    """What CALL sys.migrate_database would do, a line for each table."""
    names = _tables_of(call, request)
    if not names:
        return [f"Spark's database `{request.database}` has no table: nothing to migrate."]
    lines = []
    for table in names:
        try:
            lines += migration_lines(call, _of_table(request, table))
        except PaimonMagicsError as error:
            lines.append(f"{table} can't be migrated: {error.message}")
    return lines


def loss_of_database_migration(
    call: ProcedureCall, request: MigrateDatabase
) -> UnconfirmedError | None:
    """The question before the origins are dropped."""
    names = _tables_of(call, request)
    if not names:
        return None
    return unconfirmed(
        call.statement,
        f"Migrating the database `{request.database}`",
        f"{count_text(len(names), 'table')} of Spark's own, each when its rows are here",
        "CALL sys.migrate_table with delete_origin => false keeps a table.",
    )


def _of_table(request: MigrateDatabase, table: str) -> MigrateTable:
    name = f"{spelled(request.database)}.{spelled(table)}"
    return MigrateTable(request.source_type, name, request.options, parallelism=request.parallelism)


def _tables_of(call: ProcedureCall, request: MigrateDatabase) -> list[str]:
    with call.errors_located():
        _check_source(request.source_type)
        place = f"{_OWN_CATALOG}.{spelled(request.database)}"
        databases = [
            row["namespace"]
            for row in call.scope.spark.sql(f"SHOW DATABASES IN {_OWN_CATALOG}").collect()
        ]
        if request.database not in databases:
            raise UnknownNameError(
                f"Spark's own catalog has no database `{request.database}`.",
                hint=nearest(request.database, databases, what="databases"),
            )
        listed = call.scope.spark.sql(f"SHOW TABLES IN {place}").collect()
    return sorted(row["tableName"] for row in listed if not row["isTemporary"])


def _check_source(source_type: str) -> None:
    if source_type.lower() not in _SOURCES:
        raise UnsupportedStatementError(
            f"Tables of the source '{source_type}' can't be migrated.",
            hint="`source_type` is 'hive': a table in Spark's own catalog, of Parquet or ORC files "
            "for example.",
        )


def _planned_migration(call: ProcedureCall, request: MigrateTable) -> _Migration:
    scope = call.scope
    with call.errors_located():
        _check_source(request.source_type)
        origin, table = _origin(scope, request.table)
        target = table if request.target is None else named(request.target)
        target = scope.full_name(target)
        if scope.tables.exists(target):
            raise InvalidTableError(
                f"The table `{target}` exists already.",
                hint="Name another `target_table`, or INSERT INTO it what the other one has.",
            )
        options = dict(request.options)
        if options.get("bucket", "-1") != "-1":
            raise InvalidValueError(
                f"A migrated table has no buckets, and the options say 'bucket' = "
                f"'{options['bucket']}'.",
                hint="Leave it out; CREATE TABLE … AS SELECT makes a table with buckets.",
            )
        create = parse_statement(_creation_text(origin, target, options))
        insert = parse_statement(f"INSERT INTO {table_text(target)} SELECT * FROM {origin.name}")
        assert isinstance(create, CreateTable) and isinstance(insert, Insert)
        # Its errors, of types and options, come before anything is written.
        handler = create_table_handler(scope, create, {})
        if handler.dry_run is not None:
            handler.dry_run()
    return _Migration(origin, target, create, insert)


def _filled(scope: StatementScope, planned: _Migration) -> Outcome:
    """Create the table and write its rows, as a statement of their own: notes on two tables of one
    name say nothing here."""
    own = scope.renewed()
    create_table_handler(own, planned.create, {}).run()
    return filled(own, planned.target, lambda: run_insert(own, planned.insert, {}))


def _creation_text(origin: _Origin, target: TableName, options: dict[str, str]) -> str:
    parts = [f"CREATE TABLE {table_text(target)} ({', '.join(origin.columns)})"]
    if origin.partition_keys:
        parts.append(f"PARTITIONED BY ({', '.join(map(spelled, origin.partition_keys))})")
    if origin.comment:
        parts.append(f"COMMENT {text_literal(origin.comment)}")
    if options:
        pairs = (f"{text_literal(key)} = {text_literal(text)}" for key, text in options.items())
        parts.append(f"TBLPROPERTIES ({', '.join(pairs)})")
    return " ".join(parts)


def _origin(scope: StatementScope, text: str) -> tuple[_Origin, TableName]:
    """The table in Spark's own catalog, and its name without the catalog. Raises UnknownNameError
    if there is none, UnsupportedStatementError for a view."""
    table = named(text)
    if table.catalog not in (None, _OWN_CATALOG):
        raise UnsupportedStatementError(
            f"`{text}` is in the catalog `{table.catalog}`.",
            hint=f"Only tables of Spark's own catalog, `{_OWN_CATALOG}`, are migrated. CREATE "
            "TABLE … AS SELECT copies rows of any other.",
        )
    database = table.database or "default"
    parts = (_OWN_CATALOG, database, table.object_name)
    if kind_in_spark(scope.spark, parts) is None:
        listed = _own_tables(scope, database)
        raise UnknownNameError(
            f"Spark's own catalog has no table `{database}.{table.object_name}`.",
            hint=nearest(table.object_name, listed, what="tables")
            if listed
            else f"SHOW TABLES IN {_OWN_CATALOG}.{database} lists them.",
        )
    name = ".".join(spelled(part) for part in parts)
    described = scope.spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    details = {row["col_name"]: row["data_type"] for row in described}
    provider = str(details.get("Provider", "")).lower()
    if details.get("Type") == "VIEW" or provider in ("", "paimon"):
        raise UnsupportedStatementError(
            f"{name} is {'a view' if provider != 'paimon' else 'a table of Paimon'}, which has no "
            "files to migrate.",
            hint="CREATE TABLE … AS SELECT makes a table of its rows.",
        )
    columns = scope.spark.catalog.listColumns(name)
    origin = _Origin(
        name,
        tuple(map(_definition, columns)),
        tuple(column.name for column in columns if column.isPartition),
        provider,
        str(details.get("Comment") or ""),
    )
    return origin, TableName(table.object_name, database)


def _definition(column: Any) -> str:
    """One of Spark's columns as CREATE TABLE defines it."""
    parts = [spelled(column.name), column.dataType]
    if not column.nullable:
        parts.append("NOT NULL")
    if column.description:
        parts.append(f"COMMENT {text_literal(column.description)}")
    return " ".join(parts)


def _own_tables(scope: StatementScope, database: str) -> list[str]:
    try:
        rows = scope.spark.sql(f"SHOW TABLES IN {_OWN_CATALOG}.{spelled(database)}").collect()
    except Exception:  # there is no such database
        return []
    return [row["tableName"] for row in rows]


def _dropped(scope: StatementScope, planned: _Migration) -> str:
    """Drop the origin, if its rows are all here; else return a sentence on why it stays."""
    snapshot = latest_snapshot(scope.catalog.load(planned.target).paimon)
    here = 0 if snapshot is None else snapshot.total_record_count
    there = scope.spark.sql(f"SELECT count(*) FROM {planned.origin.name}").collect()[0][0]
    if here != there:
        return (
            f"{planned.origin.name} stays: it has {there:,} rows now, and `{planned.target}` has "
            f"{here:,}. Somebody has changed one of them meanwhile."
        )
    try:
        scope.spark.sql(f"DROP TABLE {planned.origin.name}")
    except Exception as error:
        return f"{planned.origin.name} stays, since Spark can't drop it: {error}"
    return ""
