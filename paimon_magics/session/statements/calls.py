"""CALL of a procedure: which one it is, and who runs it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import InvalidValueError, PaimonMagicsError, UnconfirmedError, nearest
from paimon_magics.planning.commits.procedures import PlannedCall, plan_call
from paimon_magics.planning.commits.requests import CommitRequest, CompactManifests
from paimon_magics.planning.formatting import count_text, size_text
from paimon_magics.planning.options.values import memory_size_bytes, option_pairs
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.parameters import bind
from paimon_magics.session.provenance import Operation, provenance
from paimon_magics.session.scope import StatementScope, errors_located
from paimon_magics.session.statements.compaction import (
    ProcedureCall,
    compaction_lines,
    rescale_lines,
    run_compaction,
    run_rescale,
)
from paimon_magics.session.statements.confirmations import loss_of_change
from paimon_magics.session.statements.file_indexes import file_index_lines, run_file_index_rewriting
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
from paimon_magics.session.writes.outcomes import Replaced
from paimon_magics.session.writes.transactions import begun, committed
from paimon_magics.statements.clauses.names import named
from paimon_magics.statements.maintenance import (
    CompactDatabase,
    CompactManifest,
    CompactTable,
    CopyTable,
    MergeBranch,
    MigrateDatabase,
    MigrateTable,
    RescaleBuckets,
    RewriteFileIndex,
)
from paimon_magics.statements.removals import PurgeFiles, Removal, RemoveOrphanFiles, RowRemoval
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.version_changes import Call, Parameter
from paimon_magics.tables.manifests.merging import ManifestCounts, counted_manifests
from paimon_magics.tables.table import Table

_NOTES_MAX = 20


_TARGET = "manifest.target-file-size"
# All manifests are merged, so that these have no say; Paimon sets them, too.
_WITHOUT_EFFECT = ("manifest.merge-min-count", "manifest.full-compaction-threshold-size")


def call_handler(
    scope: StatementScope, statement: Call, parameters: Mapping[str, object]
) -> Handler:
    """CALL of a procedure."""

    def planned() -> PlannedCall:
        return _planned(scope, statement, parameters)

    def preview() -> Replaced | Standing:
        call = planned()
        if not isinstance(call.change, Removal):
            raise no_preview(statement)
        return removal_preview(_call(scope, statement, call), call.change)

    return Handler(
        run=lambda: _run(scope, statement, planned()),
        dry_run=lambda: " ".join(_lines(scope, statement, planned())),
        explain=lambda mode: _lines(scope, statement, planned()),
        preview=preview,
        unconfirmed=lambda mode: _unconfirmed(scope, statement, planned()),
        changed=lambda: _changed(scope, statement, planned()),
    )


def _changed(scope: StatementScope, statement: Call, call: PlannedCall) -> tuple[TableName, ...]:
    """The tables whose waiting rows are loaded first: of a copy, and of a removal of rows."""
    if isinstance(call.change, CopyTable):
        return copied_tables(scope, call.change)
    removes_rows = isinstance(call.change, PurgeFiles | RowRemoval)
    return (_table(scope, statement, call),) if removes_rows else ()


def _unconfirmed(
    scope: StatementScope, statement: Call, call: PlannedCall
) -> UnconfirmedError | None:
    match call.change:
        case CompactDatabase():
            return None
        case CopyTable() as request:
            return loss_of_copy(scope, statement, request)
        case MigrateTable() as request:
            return loss_of_migration(scope, statement, request)
        case MigrateDatabase() as request:
            return loss_of_database_migration(scope, statement, request)
    if isinstance(call.change, Removal):
        return unconfirmed_removal(_call(scope, statement, call), call.change)
    name = _table(scope, statement, call)
    return loss_of_change(scope, statement, name, call.change, call.position)


def _planned(
    scope: StatementScope, statement: Call, parameters: Mapping[str, object]
) -> PlannedCall:
    names = [a.value.name for a in statement.arguments if isinstance(a.value, Parameter)]
    bound = bind(names, parameters, statement.text, scope.zone)
    return plan_call(statement, bound, scope.settings.catalog_name)


def _table(scope: StatementScope, statement: Call, call: PlannedCall) -> TableName:
    """The full name of the call's table."""
    with errors_located(statement.text, call.position):
        name = named(call.table or "")
    return scope.full_name(name)


def _call(scope: StatementScope, statement: Call, call: PlannedCall) -> ProcedureCall:
    """The call with its table; `db.*` is all tables of a database, where that is allowed."""
    database, dot, every = (call.table or "").rpartition(".")
    if isinstance(call.change, RemoveOrphanFiles) and dot and every == "*":
        name = TableName("*", database=named(database).table)
    else:
        name = _table(scope, statement, call)
    return ProcedureCall(scope, statement, name, call.position)


def _run(scope: StatementScope, statement: Call, planned: PlannedCall) -> Outcome:
    match planned.change:
        case CompactDatabase() as database:
            return _run_database_compaction(scope, statement, database)
        case CopyTable() as copy:
            return run_copy(scope, statement, copy)
        case MigrateTable() as migration:
            return run_migration(scope, statement, migration)
        case MigrateDatabase() as migrations:
            return run_database_migration(scope, statement, migrations)
    call = _call(scope, statement, planned)
    match planned.change:
        case CompactTable() as request:
            return run_compaction(call, request)
        case CompactManifest() as request:
            return _run_manifest_compaction(call, request)
        case RewriteFileIndex() as request:
            return run_file_index_rewriting(call, request)
        case RescaleBuckets() as request:
            return run_rescale(call, request)
        case MergeBranch() as request:
            return run_branch_merge(call, request)
        case _ if isinstance(planned.change, Removal):
            return run_removal(call, planned.change)
        case change:
            return run_version_change(scope, statement, call.name, change, call.position)


def _lines(scope: StatementScope, statement: Call, planned: PlannedCall) -> list[str]:
    """What the call would do."""
    match planned.change:
        case CompactDatabase() as database:
            return _database_lines(scope, statement, database)
        case CopyTable() as copy:
            return copy_lines(scope, statement, copy)
        case MigrateTable() as migration:
            return migration_lines(scope, statement, migration)
        case MigrateDatabase() as migrations:
            return database_migration_lines(scope, statement, migrations)
    call = _call(scope, statement, planned)
    match planned.change:
        case CompactTable() as request:
            return compaction_lines(call, request)
        case CompactManifest() as request:
            return _manifest_lines(call, request)
        case RewriteFileIndex() as request:
            return file_index_lines(call, request)
        case RescaleBuckets() as request:
            return rescale_lines(call, request)
        case MergeBranch() as request:
            return branch_merge_lines(call, request)
        case _ if isinstance(planned.change, Removal):
            return removal_lines(call, planned.change)
        case _:
            call.load()
            return [f"Would call sys.{planned.procedure} for `{call.name}`."]


# CALL sys.compact_database: compacts the tables whose names match, one after the other.
#
# A table that can't be compacted does not stop the others; the notes give the reason.


def _run_database_compaction(
    scope: StatementScope, statement: Call, request: CompactDatabase
) -> Outcome:
    """Run CALL sys.compact_database. It returns how many tables were compacted and how many could
    not be, in the words of Paimon's `CompactDatabaseProcedure`."""
    tables = _tables(scope, statement, request)
    position = statement.procedure_position
    request_of_table = CompactTable(options=request.options)
    failed: list[str] = []
    for name in tables:
        try:
            run_compaction(ProcedureCall(scope, statement, name, position), request_of_table)
        except PaimonMagicsError as error:
            failed.append(f"`{name}`: {error.message}")
    done = len(tables) - len(failed)
    text = f"Compact database finished. Success: {done}, Failed: {len(failed)}"
    rows = pa.table({"result": pa.array([text])})
    outcome = Outcome.of_rows(scope.spark, statement.text, "CALL", rows)
    outcome.message = f"{count_text(done, 'table')} compacted, {len(failed)} failed."
    left = len(failed) - _NOTES_MAX
    more = (f"{left:,} more failed.",) if left > 0 else ()
    outcome.notes = (*failed[:_NOTES_MAX], *more)
    return outcome


def _database_lines(scope: StatementScope, statement: Call, request: CompactDatabase) -> list[str]:
    """What CALL sys.compact_database would compact."""
    tables = _tables(scope, statement, request)
    if not tables:
        return ["No table matches: nothing to compact."]
    shown = ", ".join(f"`{name}`" for name in tables[:_NOTES_MAX])
    left = len(tables) - _NOTES_MAX
    return [
        f"{count_text(len(tables), 'table')} compacted as CALL sys.compact does: {shown}"
        + (f" and {left:,} more." if left > 0 else ".")
    ]


def _tables(scope: StatementScope, statement: Call, request: CompactDatabase) -> list[TableName]:
    """The tables that match: `CompactDatabaseProcedure.shouldCompactTable`."""
    databases = _pattern(statement, "including_databases", request.including_databases or ".*")
    included = _pattern(statement, "including_tables", request.including_tables or ".*")
    excluded = None
    if request.excluding_tables is not None and request.excluding_tables.strip():
        excluded = _pattern(statement, "excluding_tables", request.excluding_tables)
    catalog = scope.catalog
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
