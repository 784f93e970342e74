"""The scope that a commit takes: it depends on what the commit does to the table's rows."""

from __future__ import annotations

from collections.abc import Callable

from paimon_magics.coordinator.protocol.principals import Load, Principal, Scope, check_table
from paimon_magics.planning.commits.requests import (
    Append,
    CommitRequest,
    Compact,
    CompactManifests,
    OverwritePartitions,
    OverwriteTouched,
)
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.commits.decoded_request import decoded
from paimon_magics.tables.table import Table

_KINDS = {"COMPACT": Scope.MAINTAIN, "ANALYZE": Scope.MAINTAIN, "OVERWRITE": Scope.CHANGE}
_DELETION_VECTORS = "DELETION_VECTORS"


def check_begins(
    principal: Principal, name: TableName, load: Load, *, compacts: bool = False
) -> None:
    """Raise unless a principal may commit to a table at all. `load` may block.

    Raises UnknownNameError for a table that is hidden, NotTheirsError without the right.
    """
    check_table(principal, _own(principal, Scope.MAINTAIN if compacts else None, name), name, load)


def check_commits(
    principal: Principal, request: CommitRequest, load: Callable[[TableName], Table]
) -> None:
    """Raise unless a principal may commit a request. `load` may block.

    Whoever may only insert adds files, and removes no row: the request's messages are decoded for
    that. Raises as `check_begins`.
    """
    if principal.is_free and principal.may(Scope.CHANGE):
        return
    name, needed = request.transaction.table, _scope_of(request)
    check_table(principal, _own(principal, needed, name), name, load)
    lacks_change = not principal.may_on(Scope.CHANGE, name.database or "", name.table)
    if lacks_change and needed is Scope.INSERT and _removes_rows(load(name), request):
        check_table(principal, Scope.CHANGE, name, load)


def scope_of_kind(principal: Principal, kind: object, name: TableName) -> Scope:
    """The scope that a principal needs to commit a snapshot of a kind (`APPEND`, …) to a table."""
    return _own(principal, _KINDS.get(str(kind), Scope.INSERT), name)


def _own(principal: Principal, needed: Scope | None, name: TableName) -> Scope:
    """The scope to check: writers compact their own tables, so INSERT serves for MAINTAIN; None is
    any of the scopes that commit."""
    may, place = principal.may_on, (name.database or "", name.table)
    if needed is None:
        return Scope.MAINTAIN if may(Scope.MAINTAIN, *place) else Scope.INSERT
    return Scope.INSERT if needed is Scope.MAINTAIN and may(Scope.INSERT, *place) else needed


def _scope_of(request: CommitRequest) -> Scope:
    match request.change:
        case Compact() | CompactManifests():
            return Scope.MAINTAIN
        case OverwritePartitions() | OverwriteTouched():
            return Scope.CHANGE
        case Append():
            return Scope.INSERT if request.read_set is None else Scope.CHANGE


def _removes_rows(table: Table, request: CommitRequest) -> bool:
    """Whether the messages remove files or rows, by deletion vectors or with rows of the kinds -U
    and -D."""
    for message in decoded(table, request).messages:
        if message.deleted_files or message.index_deletes:
            return True
        if any(entry.index_file.index_type == _DELETION_VECTORS for entry in message.index_adds):
            return True
        if any(file.delete_row_count for file in message.new_files):
            return True
    return False
