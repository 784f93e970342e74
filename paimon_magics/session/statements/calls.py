"""CALL of a procedure: which one it is, and who runs it."""

from __future__ import annotations

from collections.abc import Mapping

from paimon_magics.errors import PaimonMagicsError, UnconfirmedError
from paimon_magics.planning.commits.procedures import PlannedCall, plan_call
from paimon_magics.session.connection import Connection, located
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.parameters import bind
from paimon_magics.session.statements.compaction import compaction_lines, run_compaction
from paimon_magics.session.statements.database_compaction import (
    database_lines,
    run_database_compaction,
)
from paimon_magics.session.statements.file_indexes import (
    file_index_lines,
    run_file_index_rewriting,
)
from paimon_magics.session.statements.handler import Handler
from paimon_magics.session.statements.losses import loss_of_change
from paimon_magics.session.statements.manifest_compaction import (
    manifest_lines,
    run_manifest_compaction,
)
from paimon_magics.session.statements.rescaling import rescale_lines, run_rescale
from paimon_magics.session.statements.tags_and_branches import run_version_change
from paimon_magics.statements.clauses.given_names import named
from paimon_magics.statements.maintenance import (
    CompactDatabase,
    CompactManifest,
    CompactTable,
    RescaleBuckets,
    RewriteFileIndex,
)
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.version_changes import Call, Parameter

__all__ = ["call_handler"]


def call_handler(
    connection: Connection, statement: Call, parameters: Mapping[str, object]
) -> Handler:
    """CALL of a procedure."""

    def planned() -> PlannedCall:
        return _planned(connection, statement, parameters)

    return Handler(
        run=lambda: _run(connection, statement, planned()),
        dry_run=lambda: " ".join(_lines(connection, statement, planned())),
        explain=lambda mode: _lines(connection, statement, planned()),
        preview=None,
        unconfirmed=lambda mode: _unconfirmed(connection, statement, planned()),
    )


def _unconfirmed(
    connection: Connection, statement: Call, call: PlannedCall
) -> UnconfirmedError | None:
    if isinstance(call.change, CompactDatabase):
        return None
    name = _table(connection, statement, call)
    return loss_of_change(connection, statement, name, call.change, call.position)


def _planned(
    connection: Connection, statement: Call, parameters: Mapping[str, object]
) -> PlannedCall:
    names = [a.value.name for a in statement.arguments if isinstance(a.value, Parameter)]
    bound = bind(names, parameters, statement.text, connection.zone)
    return plan_call(statement, bound, connection.settings.catalog_name)


def _table(connection: Connection, statement: Call, call: PlannedCall) -> TableName:
    """The full name of the call's table."""
    try:
        name = named(call.table or "")
    except PaimonMagicsError as error:
        raise located(error, statement.text, call.position) from None
    return connection.full_name(name)


def _run(connection: Connection, statement: Call, call: PlannedCall) -> Outcome:
    if isinstance(call.change, CompactDatabase):
        return run_database_compaction(connection, statement, call.change)
    name = _table(connection, statement, call)
    match call.change:
        case CompactTable():
            return run_compaction(connection, statement, name, call.change, call.position)
        case CompactManifest():
            return run_manifest_compaction(connection, statement, name, call.change, call.position)
        case RewriteFileIndex():
            return run_file_index_rewriting(connection, statement, name, call.change, call.position)
        case RescaleBuckets():
            return run_rescale(connection, statement, name, call.change, call.position)
        case change:
            return run_version_change(connection, statement, name, change, call.position)


def _lines(connection: Connection, statement: Call, call: PlannedCall) -> list[str]:
    """What the call would do."""
    if isinstance(call.change, CompactDatabase):
        return database_lines(connection, statement, call.change)
    name = _table(connection, statement, call)
    match call.change:
        case CompactTable():
            return compaction_lines(connection, statement, name, call.change, call.position)
        case CompactManifest():
            return manifest_lines(connection, statement, name, call.change, call.position)
        case RewriteFileIndex():
            return file_index_lines(connection, statement, name, call.change, call.position)
        case RescaleBuckets():
            return rescale_lines(connection, statement, name, call.change, call.position)
        case _:
            connection.load(name, statement.text, call.position)
            return [f"Would call sys.{call.procedure} for `{name}`."]
