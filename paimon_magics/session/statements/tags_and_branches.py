"""Tags, branches and rolling back: ALTER TABLE … TAG, SHOW TAGS, and the procedures for them.

A change goes through the session's committer. Its message states what held when it was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, assert_never

import pyarrow as pa

from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import InvalidTableError, PaimonMagicsError
from paimon_magics.planning.commits.requests import Append, CommitRequest, MergeFrom
from paimon_magics.planning.formatting import count_text
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.provenance import Operation, provenance
from paimon_magics.session.scope import StatementScope, errors_located
from paimon_magics.session.statements.compaction import ProcedureCall
from paimon_magics.session.statements.confirmations import loss_of_change
from paimon_magics.session.statements.handler import Handler, listing
from paimon_magics.session.writes.transactions import begun, committed
from paimon_magics.statements.maintenance import MergeBranch
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.subjects import Statement
from paimon_magics.statements.version_changes import (
    AlterTags,
    ClearConsumers,
    CreateAutomaticTags,
    CreateBranch,
    CreateTag,
    CreateTagFromTimestamp,
    DeleteBranches,
    DeleteTags,
    FastForward,
    MarkPartitionsDone,
    RenameBranch,
    RenameTag,
    RepairEarliestSnapshot,
    ReplaceTag,
    ResetConsumer,
    RollBack,
    ShowTags,
    UpkeepChange,
    VersionChange,
)
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.commits.branch_merging import BranchMerge, plan_branch_merge
from paimon_magics.tables.manifests.partitions import list_partitions
from paimon_magics.tables.snapshots.chain import latest_document, list_tags
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.snapshots.provenance import ROLLED_BACK_FROM
from paimon_magics.tables.snapshots.tags_and_branches import VersionReceipt, require_branches
from paimon_magics.tables.snapshots.upkeep import folders_without
from paimon_magics.tables.table import MAIN_BRANCH, Table, publishes_itself

_SHOWN_MAX = 5


def alter_tags_handler(scope: StatementScope, statement: AlterTags) -> Handler:
    """ALTER TABLE … CREATE, REPLACE, DELETE or RENAME TAG."""

    def dry_run() -> str:
        table = scope.load(statement.name, statement.text, statement.name_position)
        return f"Would change tags of `{table.name}`."

    return Handler(
        run=lambda: _alter_tags(scope, statement),
        dry_run=dry_run,
        unconfirmed=lambda mode: loss_of_change(
            scope,
            statement,
            scope.full_name(statement.name),
            statement.change,
            statement.name_position,
        ),
        needs=(statement.name,),
    )


def run_version_change(call: ProcedureCall, change: VersionChange) -> Outcome:
    """Make the change that CALL asks for, and return what Paimon's procedure returns."""
    scope, statement, name = call.scope, call.statement, call.name
    receipt = _changed(scope, statement, name, change, call.position)
    outcome = _rows(scope, statement, _returned(change, receipt))
    outcome.table, outcome.snapshot_id = str(name), receipt.snapshot_id
    outcome.message = _message(name, change, receipt)
    if isinstance(change, RollBack) and receipt.snapshot_id != receipt.previous_snapshot_id:
        outcome.notes = (*outcome.notes, _trace(scope, statement, name, receipt))
    outcome.notes = (*outcome.notes, *_shadowed(scope, name, change, receipt))
    if isinstance(change, MarkPartitionsDone):
        outcome.notes = (*outcome.notes, *_marks_without_rows(scope, name, receipt))
    return outcome


def _marks_without_rows(
    scope: StatementScope, name: TableName, receipt: VersionReceipt
) -> list[str]:
    """A sentence on partitions that were marked, as Paimon's connector does, and have no rows."""
    table = scope.load(name, "", 0)
    empty = folders_without(table, receipt.changed, list_partitions(table))
    if not empty:
        return []
    shown = ", ".join(f"`{folder}`" for folder in empty[:_SHOWN_MAX])
    more = f" and {len(empty) - _SHOWN_MAX:,} more" if len(empty) > _SHOWN_MAX else ""
    return [
        f"`{name}` has no rows of {shown}{more}. Jobs that wait for the mark begin without them; "
        f"SHOW PARTITIONS {name} lists the partitions that have rows."
    ]


def _trace(
    scope: StatementScope, statement: Statement, name: TableName, receipt: VersionReceipt
) -> str:
    """Commit a snapshot without rows that says who rolled the table back, and from where: the
    removed snapshots can't. Return a sentence about it."""
    author = provenance(scope, statement.text, Operation("ROLLBACK"))
    origin = (ROLLED_BACK_FROM, str(receipt.previous_snapshot_id))
    try:
        transaction = begun(scope, name, None, Attempts(reruns_max=0))
        request = CommitRequest(
            transaction, Append(makes_snapshot=True), properties=(*author, origin)
        )
        trace = committed(scope, request)
    except PaimonMagicsError as error:
        return f"No snapshot says that `{name}` was rolled back: {error.message}"
    return f"Snapshot {trace.snapshot_id}, without rows, says who rolled `{name}` back."


def _alter_tags(scope: StatementScope, statement: AlterTags) -> Outcome:
    name = scope.full_name(statement.name)
    receipt = _changed(scope, statement, name, statement.change, statement.name_position)
    return Outcome(
        statement=statement.text,
        kind="ALTER TABLE",
        table=str(name),
        message=_message(name, statement.change, receipt),
        notes=_shadowed(scope, name, statement.change, receipt),
    )


def _shadowed(
    scope: StatementScope, name: TableName, change: VersionChange, receipt: VersionReceipt
) -> tuple[str, ...]:
    """Notes on new tags with the number of a snapshot: Paimon takes a VERSION for a tag first
    (`TimeTravelUtil`)."""
    if not isinstance(change, CreateTag | CreateTagFromTimestamp | RenameTag):
        return ()
    numbers = [tag for tag in receipt.changed if tag.isdecimal()]
    latest = latest_document(load_stored(scope.catalog, name)) if numbers else None
    return tuple(
        f"VERSION AS OF {tag} reads this tag now, not snapshot {tag}, as in Paimon; the read "
        f"option 'scan.snapshot-id' and CALL sys.rollback take {tag} for the snapshot."
        for tag in numbers
        if latest is not None and int(tag) <= latest["id"]
    )


def _changed(
    scope: StatementScope,
    statement: Statement,
    name: TableName,
    change: VersionChange,
    position: int,
) -> VersionReceipt:
    scope.load(name, statement.text, position)  # its error suggests the nearest name
    with errors_located(statement.text, position):
        return scope.committer.change_versions(name, change)


def run_branch_merge(call: ProcedureCall, request: MergeBranch) -> Outcome:
    """Run CALL sys.merge_branch. It returns true, also where there was nothing to merge."""
    scope = call.scope
    target, plan = _planned_merge(call, request)
    outcome = call.outcome(target)
    receipt = None
    if plan.files:
        transaction = begun(scope, target.name, None, Attempts(reruns_max=0))
        operation = Operation("MERGE BRANCH", inserted=plan.rows)
        properties = provenance(scope, call.text, operation, rows=plan.rows, files=plan.files)
        change = MergeFrom(request.source)
        receipt = committed(scope, CommitRequest(transaction, change, properties=properties))
    if receipt is None or receipt.snapshot_id is None:
        outcome.message = f"`{target.name}` has all rows of the branch `{request.source}`."
        return outcome
    outcome.snapshot_id, outcome.commit_kind = receipt.snapshot_id, receipt.commit_kind
    outcome.message = (
        f"{count_text(receipt.delta_rows, 'row')} of the branch `{request.source}` added to "
        f"`{target.name}` (snapshot {receipt.snapshot_id})."
    )
    return outcome


def branch_merge_lines(call: ProcedureCall, request: MergeBranch) -> list[str]:
    """What CALL sys.merge_branch would add."""
    target, plan = _planned_merge(call, request)
    if not plan.files:
        return [f"{target.name}: has all rows of the branch `{request.source}`."]
    return [
        f"{target.name}: would add {count_text(plan.rows, 'row')} of "
        f"{count_text(plan.files, 'file')} of the branch `{request.source}`."
    ]


def _planned_merge(call: ProcedureCall, request: MergeBranch) -> tuple[Table, BranchMerge]:
    """The branch that gets the rows, and what it would get now."""
    table = call.load()
    with call.errors_located():
        if table.name.branch is not None:
            raise InvalidTableError(
                f"`{table.name}` is a branch: branches belong to the table.",
                hint=f"Name the table, `{table.name.database}.{table.name.table}`.",
            )
        names = [each for each in (request.source, request.target) if each != MAIN_BRANCH]
        if not publishes_itself(table):
            require_branches(load_stored(call.scope.catalog, table.name), names)
        branch = None if request.target == MAIN_BRANCH else request.target
        target = call.scope.catalog.load(replace(table.name, branch=branch))
        latest = latest_snapshot(target.paimon)
        return target, plan_branch_merge(target, request.source, latest)


def show_tags(scope: StatementScope, statement: ShowTags) -> Outcome:
    """SHOW TAGS."""
    name = scope.load(statement.name, statement.text, statement.name_position).name
    table = load_stored(scope.catalog, name)
    return listing(scope, statement, "SHOW TAGS", {"tag": list_tags(table)})


def _returned(change: VersionChange, receipt: VersionReceipt) -> dict[str, list[Any]]:
    """The columns that Paimon's procedure returns, with the values for this change."""
    match change:
        case CreateTagFromTimestamp(tag=tag):
            watermark = "null" if receipt.watermark is None else str(receipt.watermark)
            return {
                "tagName": [tag],
                "snapshot": [receipt.snapshot_id],
                "commit_time": [receipt.commit_time_ms],
                "watermark": [watermark],
            }
        case RepairEarliestSnapshot():
            return {
                "previous_earliest_snapshot_id": [receipt.previous_snapshot_id],
                "current_earliest_snapshot_id": [receipt.snapshot_id],
            }
        case _ if isinstance(change, RollBack):
            return {
                "previous_snapshot_id": [receipt.previous_snapshot_id],
                "current_snapshot_id": [receipt.snapshot_id],
            }
        case _:
            return {"result": [True]}


def _message(name: TableName, change: VersionChange, receipt: VersionReceipt) -> str:
    if isinstance(change, UpkeepChange):
        return _message_of_upkeep(name, change, receipt)
    changed = ", ".join(f"`{changed_name}`" for changed_name in receipt.changed)
    match change:
        case CreateTag(tag=tag):
            return (
                f"Tag {changed} of `{name}` created."
                if changed
                else f"Tag `{tag}` of `{name}` exists already."
            )
        case CreateTagFromTimestamp():
            return f"Tag {changed} of `{name}` names snapshot {receipt.snapshot_id}."
        case ReplaceTag():
            return f"Tag {changed} of `{name}` replaced."
        case DeleteTags(tags=tags):
            missing = ", ".join(f"`{tag}`" for tag in tags if tag not in receipt.changed)
            deleted = [f"Tag {changed} of `{name}` deleted."] if changed else []
            return " ".join([*deleted, *([f"`{name}` has no tag {missing}."] if missing else [])])
        case RenameTag(tag=tag):
            return f"Tag `{tag}` of `{name}` is {changed} now."
        case CreateBranch(branch=branch):
            if not changed:
                return f"Branch `{branch}` of `{name}` exists already."
            return f"Branch {changed} of `{name}` created: `{name}$branch_{branch}`."
        case DeleteBranches():
            return f"Branch {changed} of `{name}` deleted."
        case RenameBranch(branch=branch):
            return f"Branch `{branch}` of `{name}` is {changed} now."
        case FastForward(branch=branch):
            return f"`{name}` was fast-forwarded to its branch `{branch}`."
        case _:
            return (
                f"`{name}` was at snapshot {receipt.snapshot_id} already."
                if receipt.snapshot_id == receipt.previous_snapshot_id
                else f"`{name}` has the rows of snapshot {receipt.snapshot_id} again; it was at "
                f"{receipt.previous_snapshot_id}."
            )


def _message_of_upkeep(name: TableName, change: UpkeepChange, receipt: VersionReceipt) -> str:
    changed = ", ".join(f"`{changed_name}`" for changed_name in receipt.changed)
    match change:
        case CreateAutomaticTags():
            if changed:
                return f"Tags of `{name}` created or deleted: {changed}."
            return (
                f"`{name}` has no new automatic tag, and none that is over. Its options "
                "'tag.automatic-creation' and 'tag.creation-period' say which it gets."
            )
        case ResetConsumer(consumer_id=consumer_id, next_snapshot=None):
            return (
                f"Consumer {changed} of `{name}` forgotten: it keeps no snapshots any more."
                if changed
                else f"`{name}` has no consumer `{consumer_id}`. `{name}$consumers` lists them."
            )
        case ResetConsumer(next_snapshot=next_snapshot):
            return f"Consumer {changed} of `{name}` goes on with snapshot {next_snapshot}."
        case ClearConsumers():
            return (
                f"Consumers of `{name}` forgotten: {changed}."
                if changed
                else f"No consumer of `{name}` matches. `{name}$consumers` lists them."
            )
        case MarkPartitionsDone():
            return f"Done partitions of `{name}` marked by the file _SUCCESS: {changed}."
        case RepairEarliestSnapshot():
            return (
                f"The history of `{name}` begins at snapshot {receipt.snapshot_id}; it began at "
                f"{receipt.previous_snapshot_id}."
            )
        case _:
            assert_never(change)


def _rows(scope: StatementScope, statement: Statement, columns: Mapping[str, list[Any]]) -> Outcome:
    types = {"result": pa.bool_(), "tagName": pa.string(), "watermark": pa.string()}
    rows = pa.table(
        {name: pa.array(v, type=types.get(name, pa.int64())) for name, v in columns.items()}
    )
    return Outcome.of_rows(scope.spark, statement.text, "CALL", rows)
