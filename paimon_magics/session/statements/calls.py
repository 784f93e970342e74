"""CALL of a procedure: which one it is, and who runs it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import pyarrow as pa

from paimon_magics.coordinator.client.compacting import Messages, compact_plan
from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    UnconfirmedError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.planning.commits.procedures import PlannedCall, plan_call
from paimon_magics.planning.commits.requests import CommitRequest, CompactManifests, Transaction
from paimon_magics.planning.formatting import count_text, size_text
from paimon_magics.planning.job_progress import Work
from paimon_magics.planning.options.values import memory_size_bytes, option_pairs
from paimon_magics.planning.writes.index_rules import file_indexes_of
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.parameters import bind
from paimon_magics.session.provenance import Operation, provenance
from paimon_magics.session.scope import StatementScope, errors_located, errors_translated
from paimon_magics.session.settings_checks import check_written
from paimon_magics.session.statements.compaction import (
    ProcedureCall,
    chosen_partitions,
    compaction_lines,
    rescale_lines,
    run_compaction,
    run_rescale,
)
from paimon_magics.session.statements.confirmations import loss_of_change
from paimon_magics.session.statements.definitions import dialect_lines, run_dialect_change
from paimon_magics.session.statements.functions import function_lines, run_function_request
from paimon_magics.session.statements.handler import Handler, Standing, no_preview
from paimon_magics.session.statements.removals import (
    removal_lines,
    removal_preview,
    run_removal,
    unconfirmed_removal,
)
from paimon_magics.session.statements.table_copies import (
    copied_tables,
    copy_lines,
    database_migration_lines,
    loss_of_copy,
    loss_of_database_migration,
    loss_of_migration,
    migration_lines,
    run_copy,
    run_database_migration,
    run_migration,
)
from paimon_magics.session.statements.tags_and_branches import (
    branch_merge_lines,
    run_branch_merge,
    run_version_change,
)
from paimon_magics.session.writes.compaction import SparkTransactions
from paimon_magics.session.writes.outcomes import Replaced
from paimon_magics.session.writes.transactions import begun, committed
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.task_units import run_units
from paimon_magics.statements.clauses.names import named
from paimon_magics.statements.maintenance import (
    AlterViewDialect,
    ChangeFunction,
    CompactDatabase,
    CompactManifest,
    CompactTable,
    CopyTable,
    DatabaseMaintenance,
    DefineFunction,
    MergeBranch,
    MigrateDatabase,
    MigrateTable,
    RemoveFunction,
    RescaleBuckets,
    RewriteFileIndex,
)
from paimon_magics.statements.removals import (
    PurgeFiles,
    RemoveOrphanFiles,
    RowRemoval,
    TableRemoval,
)
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.version_changes import Call, Parameter, VersionChange
from paimon_magics.tables.compaction.index_plan import (
    IndexRewriting,
    IndexUnits,
    needs_merged_manifests,
    plan_index_rewriting,
)
from paimon_magics.tables.compaction.planning import CompactionScope
from paimon_magics.tables.compaction.plans import run_here
from paimon_magics.tables.manifests.merging import ManifestCounts, counted_manifests
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.table import Table

_NOTES_MAX = 20


_TARGET = "manifest.target-file-size"
# All manifests are merged, so that these have no say; Paimon sets them, too.
_WITHOUT_EFFECT = ("manifest.merge-min-count", "manifest.full-compaction-threshold-size")


def call_handler(
    scope: StatementScope, statement: Call, parameters: Mapping[str, object]
) -> Handler:
    """CALL of a procedure."""

    def planned() -> tuple[_Executor, ProcedureCall, Any]:
        plan = _planned(scope, statement, parameters)
        executor, call = _EXECUTORS[type(plan.change)], _call(scope, statement, plan)
        with call.errors_located():
            for name in executor.tables(call, plan.change):
                check_written(scope, name, "A change of a table")
        return executor, call, plan.change

    def run() -> Outcome:
        executor, call, change = planned()
        return executor.run(call, change)

    def lines() -> list[str]:
        executor, call, change = planned()
        return executor.lines(call, change)

    def preview() -> Replaced | Standing:
        executor, call, change = planned()
        if executor.preview is None:
            raise no_preview(statement)
        return executor.preview(call, change)

    def unconfirmed() -> UnconfirmedError | None:
        executor, call, change = planned()
        return executor.question(call, change)

    def changed() -> Sequence[TableName]:
        executor, call, change = planned()
        return executor.changed(call, change)

    return Handler(
        run=run,
        dry_run=lambda: " ".join(lines()),
        explain=lambda mode: lines(),
        preview=preview,
        unconfirmed=lambda mode: unconfirmed(),
        changed=changed,
    )


def _planned(
    scope: StatementScope, statement: Call, parameters: Mapping[str, object]
) -> PlannedCall:
    names = [a.value.name for a in statement.arguments if isinstance(a.value, Parameter)]
    bound = bind(names, parameters, statement.text, scope.zone)
    return plan_call(statement, bound, scope.settings.catalog_name)


def _call(scope: StatementScope, statement: Call, planned: PlannedCall) -> ProcedureCall:
    """The call with the full name of its table; `*` is all tables of a procedure on several, and
    `db.*` all of a database, where that is allowed."""
    if isinstance(planned.change, DatabaseMaintenance):
        return ProcedureCall(scope, statement, TableName("*"), planned.position)
    text = planned.table or ""
    database, dot, every = text.rpartition(".")
    if isinstance(planned.change, RemoveOrphanFiles) and dot and every == "*":
        name = TableName("*", database=named(database).table)
    else:
        with errors_located(statement.text, planned.position):
            name = named(text)
        name = scope.full_name(name)
    return ProcedureCall(scope, statement, name, planned.position)


# CALL sys.compact_database: compacts the tables whose names match, one after the other.
#
# A table that can't be compacted does not stop the others; the notes give the reason.


def _run_database_compaction(call: ProcedureCall, request: CompactDatabase) -> Outcome:
    """Run CALL sys.compact_database. It returns how many tables were compacted and how many could
    not be, in the words of Paimon's `CompactDatabaseProcedure`."""
    tables = _tables(call, request)
    request_of_table = CompactTable(options=request.options)
    failed: list[str] = []
    for name in tables:
        try:
            run_compaction(replace(call, name=name), request_of_table)
        except PaimonMagicsError as error:
            failed.append(f"`{name}`: {error.message}")
    done = len(tables) - len(failed)
    text = f"Compact database finished. Success: {done}, Failed: {len(failed)}"
    rows = pa.table({"result": pa.array([text])})
    outcome = Outcome.of_rows(call.scope.spark, call.text, "CALL", rows)
    outcome.message = f"{count_text(done, 'table')} compacted, {len(failed)} failed."
    left = len(failed) - _NOTES_MAX
    more = (f"{left:,} more failed.",) if left > 0 else ()
    outcome.notes = (*failed[:_NOTES_MAX], *more)
    return outcome


def _database_lines(call: ProcedureCall, request: CompactDatabase) -> list[str]:
    """What CALL sys.compact_database would compact."""
    tables = _tables(call, request)
    if not tables:
        return ["No table matches: nothing to compact."]
    shown = ", ".join(f"`{name}`" for name in tables[:_NOTES_MAX])
    left = len(tables) - _NOTES_MAX
    return [
        f"{count_text(len(tables), 'table')} compacted as CALL sys.compact does: {shown}"
        + (f" and {left:,} more." if left > 0 else ".")
    ]


def _tables(call: ProcedureCall, request: CompactDatabase) -> list[TableName]:
    """The tables that match: `CompactDatabaseProcedure.shouldCompactTable`."""
    databases = _pattern(call.statement, "including_databases", request.including_databases or ".*")
    included = _pattern(call.statement, "including_tables", request.including_tables or ".*")
    excluded = None
    if request.excluding_tables is not None and request.excluding_tables.strip():
        excluded = _pattern(call.statement, "excluding_tables", request.excluding_tables)
    catalog = call.scope.catalog
    return [
        TableName(table, database=database)
        for database in sorted(catalog.list_databases())
        if databases.fullmatch(database)
        for table in sorted(catalog.list_tables(database))
        if included.fullmatch(f"{database}.{table}")
        and not (excluded is not None and excluded.fullmatch(f"{database}.{table}"))
    ]


def _pattern(statement: Call, parameter: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise InvalidValueError(
            f"`{parameter}` is not a regular expression: {error}.",
            hint=r"For example `shop\..*`, which matches all tables of the database shop.",
            statement=statement.text,
            position=statement.procedure_position,
        ) from None


# CALL sys.compact_manifest: a snapshot with the same files, whose manifests are merged.


def _run_manifest_compaction(call: ProcedureCall, request: CompactManifest) -> Outcome:
    """Run CALL sys.compact_manifest. It returns true, also where there was nothing to do."""
    scope = call.scope
    table, target_bytes = _checked(call, request)
    outcome = call.outcome(table)
    if request.dry_run:
        outcome.message = _described(table, counted_manifests(table, target_bytes))
        return outcome
    before = counted_manifests(table, target_bytes)
    attempts = Attempts(reruns_max=0)
    transaction = begun(scope, table.name, None, attempts, compacts=True)
    properties = provenance(scope, call.text, Operation("COMPACT"))
    commit = CommitRequest(transaction, CompactManifests(target_bytes), properties=properties)
    receipt = committed(scope, commit)
    outcome.notes = attempts.notes()
    outcome.snapshot_id, outcome.commit_kind = receipt.snapshot_id, receipt.commit_kind
    if receipt.snapshot_id is None:
        outcome.message = f"`{table.name}`: no manifests to merge."
        return outcome
    after = counted_manifests(table, target_bytes)
    outcome.message = (
        f"`{table.name}`: {count_text(before.files, 'manifest')} became {after.files:,} "
        f"(snapshot {receipt.snapshot_id})."
    )
    return outcome


def _manifest_lines(call: ProcedureCall, request: CompactManifest) -> list[str]:
    """The manifests that CALL sys.compact_manifest would be about."""
    table, target_bytes = _checked(call, request)
    return [_described(table, counted_manifests(table, target_bytes))]


def _described(table: Table, counts: ManifestCounts) -> str:
    """In the words of Paimon's `ManifestCompactDryRun`."""
    return (
        f"`{table.name}`: {count_text(counts.files, 'manifest')} ({size_text(counts.size_bytes)}); "
        f"{count_text(counts.deletions, 'deletion')} in {counts.with_deletions:,} of them, "
        f"{counts.small:,} smaller than {size_text(counts.target_bytes)}."
    )


def _checked(call: ProcedureCall, request: CompactManifest) -> tuple[Table, int | None]:
    """The table, and the target size that `options` give."""
    table = call.load()
    with call.errors_located():
        return table, _target_bytes(request.options)


def _target_bytes(options: str | None) -> int | None:
    target = None
    for key, value in option_pairs(options or "", f"{_TARGET}=16 mb"):
        if key not in (_TARGET, *_WITHOUT_EFFECT):
            raise InvalidValueError(
                f"The option '{key}' does not affect the merging of manifests.",
                hint=nearest(key, (_TARGET, *_WITHOUT_EFFECT), what="options"),
            )
        if key == _TARGET:
            target = memory_size_bytes(key, value)
    return target


# CALL sys.rewrite_file_index: files get the indexes that the table's options ask for now.


# A job costs some tenths of a second before its first row.
_IN_PROCESS_BYTES_MAX = 64 << 20


def run_file_index_rewriting(call: ProcedureCall, request: RewriteFileIndex) -> Outcome:
    """Run CALL sys.rewrite_file_index. It returns how many partitions and files got indexes."""
    table, extent = _extent(call, request)
    engine = _IndexEngine(call.scope, call.text)
    plan = engine.planned(table, extent)
    wait_ms = call.scope.settings.exclusive_wait_ms
    done = None if plan is None else compact_plan(engine, plan, extent, claims_wait_ms=wait_ms)
    files = 0 if done is None else done.files_after
    partitions = len(engine.partitions) if files else 0
    outcome = call.outcome(
        table,
        written_partitions=pa.array([partitions], pa.int32()),
        written_indexes=pa.array([files], pa.int32()),
    )
    if done is None or done.receipt is None or done.receipt.snapshot_id is None:
        outcome.message = f"`{table.name}`: all files have the requested indexes."
        return outcome
    outcome.notes = done.notes
    outcome.snapshot_id, outcome.commit_kind = done.receipt.snapshot_id, done.receipt.commit_kind
    outcome.message = (
        f"`{table.name}`: new indexes of {count_text(files, 'file')} "
        f"(snapshot {done.receipt.snapshot_id})."
    )
    return outcome


def file_index_lines(call: ProcedureCall, request: RewriteFileIndex) -> list[str]:
    """What CALL sys.rewrite_file_index would read."""
    table, extent = _extent(call, request)
    plan = _IndexEngine(call.scope, call.text).planned(table, extent)
    if plan is None:
        return [f"{table.name}: no file has an index, and none is requested."]
    wanted = [f"{index.kind} of {index.name}" for index in file_indexes_of(table.schema).indexes]
    return [
        f"{table.name}: would read {count_text(len(plan.units), 'file')} "
        f"({size_text(plan.rewritten_bytes)}) of snapshot {plan.snapshot_id} for "
        f"{', '.join(wanted) or 'no indexes any more'}."
    ]


def _extent(call: ProcedureCall, request: RewriteFileIndex) -> tuple[Table, CompactionScope]:
    table = call.load()
    with call.errors_located():
        if table.schema.data_evolution_enabled:
            raise UnsupportedStatementError(
                f"`{table.name}` has 'data-evolution.enabled' = 'true', and a file of it may have "
                "some columns of its rows only: such files get no indexes here.",
                hint="Index it with another engine.",
            )
        file_indexes_of(table.schema)
        partitions = chosen_partitions(call.scope, table, None, request.where)
    return table, CompactionScope(is_full=True, partitions=partitions)


@dataclass(frozen=True)
class _IndexEngine(SparkTransactions):
    """A `CompactionEngine` that indexes files. `partitions` are those of the files that got other
    indexes."""

    partitions: set[tuple[object, ...]] = field(default_factory=set)

    def planned(self, table: Table, extent: CompactionScope) -> IndexRewriting | None:
        """See `CompactionEngine.planned`."""
        snapshot = latest_snapshot(table.paimon)
        if snapshot is None:
            return None
        cache = self.scope.manifests(table)
        plan = plan_index_rewriting(table, snapshot, extent, cache)
        return None if plan.is_empty else plan

    def rewritten(self, plan: IndexRewriting, transaction: Transaction) -> Messages:
        """See `CompactionEngine.rewritten`."""
        with errors_translated(self.statement), cancellable(self.scope.spark, lambda: _work(plan)):
            rewrite, slots = plan.rewrite(transaction), self.scope.slots
            if plan.rewritten_bytes <= _IN_PROCESS_BYTES_MAX:
                threads = min(slots, os.cpu_count() or 1)
                indexed, repeated = run_here(rewrite, plan.units, threads=threads), False
            else:
                units = IndexUnits.of(rewrite, plan.units, slots)
                results = run_units(self.scope.spark, units)
                indexed = [file for group in results.results for file in group]
                repeated = results.repeated_attempts
            messages = plan.messages(indexed)
            if needs_merged_manifests(plan, messages):
                self._merge_manifests(plan.table)
        self.partitions.update(tuple(message.partition) for message in messages)
        return Messages(messages, repeated)

    def _merge_manifests(self, table: Table) -> None:
        attempts = Attempts(reruns_max=0)
        transaction = begun(self.scope, table.name, None, attempts, compacts=True)
        properties = self.provenance(rows=0, files=0)
        request = CommitRequest(transaction, CompactManifests(), properties=properties)
        committed(self.scope, request)


def _work(plan: IndexRewriting) -> Work:
    return Work(
        sources=(str(plan.table.name),),
        rows=sum(unit.file.rows for unit in plan.units),
        size_bytes=plan.rewritten_bytes,
        files=len(plan.units),
        target="files",
        is_plain=True,
    )


# Who executes each kind of change.


def _no_question(call: ProcedureCall, change: Any) -> None:
    return None


def _loss_of_change(
    call: ProcedureCall, change: VersionChange | RescaleBuckets
) -> UnconfirmedError | None:
    return loss_of_change(call.scope, call.statement, call.name, change, call.position)


def _no_table(call: ProcedureCall, change: Any) -> tuple[TableName, ...]:
    return ()


def _own_table(call: ProcedureCall, change: Any) -> tuple[TableName, ...]:
    return (call.name,)


def _version_lines(call: ProcedureCall, change: VersionChange) -> list[str]:
    call.load()
    return [f"Would call sys.{call.statement.procedure[-1].lower()} for `{call.name}`."]


@dataclass(frozen=True, slots=True)
class _Executor:
    """What executes a kind of change: its run; a line for each thing that it would do; what it
    would remove, for kinds that remove something; the question that comes first; the tables whose
    waiting rows are loaded first; and those whose own settings in Spark it could meet."""

    run: Callable[[ProcedureCall, Any], Outcome]
    lines: Callable[[ProcedureCall, Any], list[str]]
    question: Callable[[ProcedureCall, Any], UnconfirmedError | None] = _no_question
    changed: Callable[[ProcedureCall, Any], Sequence[TableName]] = _no_table
    preview: Callable[[ProcedureCall, Any], Replaced | Standing] | None = None
    tables: Callable[[ProcedureCall, Any], Sequence[TableName]] = _own_table


_REMOVAL = _Executor(run_removal, removal_lines, unconfirmed_removal, preview=removal_preview)
_ROW_REMOVAL = replace(_REMOVAL, changed=_own_table)

_EXECUTORS: Mapping[type, _Executor] = {
    **dict.fromkeys(
        get_args(VersionChange), _Executor(run_version_change, _version_lines, _loss_of_change)
    ),
    **dict.fromkeys(get_args(TableRemoval), _REMOVAL),
    **dict.fromkeys((PurgeFiles, *get_args(RowRemoval)), _ROW_REMOVAL),
    CompactTable: _Executor(run_compaction, compaction_lines),
    CompactDatabase: _Executor(_run_database_compaction, _database_lines, tables=_tables),
    CompactManifest: _Executor(_run_manifest_compaction, _manifest_lines),
    RescaleBuckets: _Executor(run_rescale, rescale_lines, _loss_of_change),
    RewriteFileIndex: _Executor(run_file_index_rewriting, file_index_lines),
    MergeBranch: _Executor(run_branch_merge, branch_merge_lines),
    CopyTable: _Executor(run_copy, copy_lines, loss_of_copy, copied_tables, tables=copied_tables),
    AlterViewDialect: _Executor(run_dialect_change, dialect_lines, tables=_no_table),
    **{
        kind: _Executor(run_function_request, function_lines, tables=_no_table)
        for kind in (DefineFunction, ChangeFunction, RemoveFunction)
    },
    # What they change is Spark's.
    MigrateTable: _Executor(run_migration, migration_lines, loss_of_migration, tables=_no_table),
    MigrateDatabase: _Executor(
        run_database_migration,
        database_migration_lines,
        loss_of_database_migration,
        tables=_no_table,
    ),
}
"""By the kind of change. `planning/commits/procedures.py` plans no other ones."""
