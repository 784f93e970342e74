"""The scope that a commit takes: it depends on what the commit does to the table's rows.

Scopes bind what a client asks for. What is in the files that it names is its own: clients write
them with keys to the store.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from paimon_magics.coordinator.protocol.principals import Principal, Scope
from paimon_magics.coordinator.protocol.visibility import Load, check_table
from paimon_magics.planning.commits.requests import (
    Analyze,
    Append,
    CommitRequest,
    Compact,
    CompactManifests,
    MergeFrom,
    OverwritePartitions,
    OverwriteTouched,
)
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.commits.decoded_request import decoded
from paimon_magics.tables.table import Table


def check_begins(
    principal: Principal, name: TableName, load: Load, *, compacts: bool = False
) -> None:
    """Raise unless a principal may commit to a table at all. `load` may block.

    Raises UnknownNameError for a table that is hidden, NotTheirsError without the right.
    """
    check_table(principal, _compacting(principal, name) if compacts else Scope.INSERT, name, load)


def check_commits(
    principal: Principal, request: CommitRequest, load: Callable[[TableName], Table]
) -> None:
    """Raise unless a principal may commit a request. `load` may block.

    Whoever lacks CHANGE removes and replaces no row: the request's messages are decoded for that.
    Raises as `check_begins`.
    """
    name, change = request.transaction.table, request.change
    if principal.may_on(Scope.CHANGE, name.database or "", name.table):
        return
    match change:
        case OverwritePartitions() | OverwriteTouched():
            needed = Scope.CHANGE
        case Append():
            needed = Scope.INSERT if request.read_set is None else Scope.CHANGE
        case MergeFrom():
            needed = Scope.INSERT
        case Compact() | CompactManifests() | Analyze():
            needed = _compacting(principal, name)
    check_table(principal, needed, name, load)
    if needed is not Scope.CHANGE and _changes_rows(load(name), request):
        check_table(principal, Scope.CHANGE, name, load)


def _compacting(principal: Principal, name: TableName) -> Scope:
    """The scope to check for a compaction: writers compact their own tables, so INSERT serves."""
    may_insert = principal.may_on(Scope.INSERT, name.database or "", name.table)
    return Scope.INSERT if may_insert else Scope.MAINTAIN


def _changes_rows(table: Table, request: CommitRequest) -> bool:
    """Whether the messages remove or replace rows, by what they say of their files."""
    messages = decoded(table, request).messages
    is_keyed = table.schema.is_primary_key_table
    match request.change:
        case CompactManifests() | MergeFrom() | Analyze():
            return bool(messages)
        case Compact(moves_keys=True):
            return True
        case Compact():
            return any(_adds_or_removes(m) for m in messages) or _loses_rows(messages, is_keyed)
        case _:
            files = [file for message in messages for file in message.new_files]
            return (
                table.schema.rowkind_field is not None
                or any(_removes(message) for message in messages)
                or any(_replaces(file, is_keyed) for file in files)
            )


def _removes(message: Any) -> bool:
    """Whether an append's message removes files or marks rows as deleted."""
    marks = any(entry.index_file.index_type != "HASH" for entry in message.index_adds)
    compacts = message.compact_before or message.compact_after
    return bool(message.deleted_files or message.index_deletes or compacts or marks)


def _replaces(file: Any, is_keyed: bool) -> bool:
    """Whether an append's file has rows of the kinds -U and -D, or values of rows that exist."""
    is_unknown = is_keyed and file.delete_row_count is None
    return bool(file.delete_row_count or is_unknown or file.write_cols) or (
        file.first_row_id is not None
    )


def _adds_or_removes(message: Any) -> bool:
    return bool(
        message.new_files or message.deleted_files or message.index_adds or message.index_deletes
    )


def _loses_rows(messages: Sequence[Any], is_keyed: bool) -> bool:
    """Whether a compaction's files have other rows than those that they replace: in a bucket of a
    table with keys more, or none in place of some; in another table another number."""
    rows: dict[Hashable, list[int]] = defaultdict(lambda: [0, 0, 0])
    for message in messages:
        counts = rows[tuple(map(str, message.partition)), message.bucket]
        counts[0] += sum(file.row_count for file in message.compact_before)
        counts[1] += sum(file.row_count for file in message.compact_after)
        counts[2] += sum(file.delete_row_count or 0 for file in message.compact_before)
        if not is_keyed and (message.compact_index_adds or message.compact_index_deletes):
            return True
    for before, after, deletes in rows.values():
        if not is_keyed and before != after:
            return True
        if after > before or (after == 0 and before > deletes):
            return True
    return False
