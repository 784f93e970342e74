"""Gives waiting rows of tables with postponed buckets their buckets, in one commit.

As in `compacting`, a run plans on one snapshot, and the table stays unchanged if anything fails. A
run commits everything or nothing: rows must not be in their bucket while they still wait for it.
Buckets that get rows are compacted in the same commit, as a writer does. Buckets that others are
compacting are left to them. Source: `SparkPostponeCompactProcedure`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from paimon_magics.coordinator.client.compacting import (
    CompactionEngine,
    Messages,
    claimed_plan,
    rewritten_again,
)
from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import CompactionConflictError, OutdatedPlanError
from paimon_magics.planning.commits.requests import (
    CommitReceipt,
    CommitRequest,
    Compact,
    Transaction,
)
from paimon_magics.tables.commits.decoded_request import written_files
from paimon_magics.tables.compaction.messages import united_messages
from paimon_magics.tables.compaction.planning import CompactionPlan, CompactionScope
from paimon_magics.tables.compaction.plans import Plan, planned_after
from paimon_magics.tables.compaction.postponed import PostponedRows
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import write_message
from paimon_magics.tables.writing.own_writers import POSTPONED_BUCKET

_RUN_AGAIN = "No row was moved. Run the statement again later."


@dataclass(frozen=True, slots=True)
class Settled:
    """The result: `receipt` is None if no row waited."""

    receipt: CommitReceipt | None = None
    rows: int = 0
    files_before: int = 0
    files_after: int = 0
    size_bytes: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Moved:
    """The messages of a job that wrote waiting rows into their buckets, as its tasks returned them,
    and the number of these rows. `repeated`: see `Messages`.
    """

    written: Sequence[bytes]
    rows: int
    repeated: bool = False


class SettlingEngine(CompactionEngine[Plan], Protocol):
    """Where waiting rows are moved."""

    def waiting(self, table: Table, scope: CompactionScope) -> PostponedRows | None:
        """The rows that wait at the latest snapshot; None if there are none."""

    def moved(self, plan: PostponedRows, transaction: Transaction) -> Moved:
        """Write the rows into their buckets. Raises JobError and errors of the store."""

    def committed_whole(self, request: CommitRequest) -> CommitReceipt:
        """Commit all or nothing; a transaction that is certainly not committed is aborted."""


def settle_postponed(engine: SettlingEngine, table: Table, scope: CompactionScope) -> Settled:
    """Move the waiting rows into buckets, and plan again if others changed the files meanwhile.

    Raises JobError if the job fails, OutdatedPlanError if others kept changing the files.
    """
    attempts = Attempts(engine.reruns_max)
    while True:
        plan = engine.waiting(table, scope)
        if plan is None:
            return Settled(notes=attempts.notes())
        try:
            done = _run_once(engine, plan, scope, attempts)
        except CompactionConflictError as error:
            attempts.next(OutdatedPlanError(error.message, hint=_RUN_AGAIN), may_run_again=True)
        except OutdatedPlanError as error:
            attempts.next(error, may_run_again=True)
        else:
            return replace(done, notes=attempts.notes())


def _run_once(
    engine: SettlingEngine, plan: PostponedRows, scope: CompactionScope, attempts: Attempts
) -> Settled:
    table = plan.table
    transaction = engine.begun(table.name, plan.snapshot_id, attempts)
    try:
        _claim(engine, plan, transaction)
        moved = engine.moved(plan, transaction)
        messages = Messages(plan.messages(moved.written), moved.repeated)
        compacted = _compacted(engine, plan, messages, scope, transaction)
        files = sum(len(message.compact_after) for message in compacted.messages)
        written = [file for message in compacted.messages for file in written_files(message)]
        request = CommitRequest(
            transaction,
            Compact(),
            tuple(write_message(table.paimon, message) for message in compacted.messages),
            engine.provenance(sum(file.row_count for file in written), files),
        )
    except BaseException:
        engine.client.abort(transaction)
        raise
    receipt = engine.committed_whole(request)
    if compacted.repeated:
        engine.client.sweep(request)
    return Settled(receipt, moved.rows, plan.files.num_rows, files, plan.size_bytes)


def _compacted(
    engine: SettlingEngine,
    plan: PostponedRows,
    moved: Messages,
    scope: CompactionScope,
    transaction: Transaction,
) -> Messages:
    """The messages of the moved rows, and of the compaction after they are in their buckets."""
    following = planned_after(plan.table, plan.snapshot_id, scope, moved.messages)
    granted, _ = claimed_plan(engine.client, following, transaction)
    if granted.is_empty or not isinstance(granted, CompactionPlan):
        return moved
    rewritten = engine.rewritten(granted, transaction)
    rewritten = rewritten_again(engine, granted, rewritten, scope, transaction)
    return Messages(united_messages(plan.table, moved.messages, rewritten.messages), repeated=True)


def _claim(engine: SettlingEngine, plan: PostponedRows, transaction: Transaction) -> None:
    """Claim the waiting rows. Raises OutdatedPlanError while another transaction moves some of
    them.
    """
    keys = [(partition, POSTPONED_BUCKET) for partition in plan.partitions]
    if len(engine.client.claim_buckets(transaction, keys)) < len(keys):
        raise OutdatedPlanError(
            f"Another transaction is moving the rows of `{plan.table.name}` that wait for their "
            "buckets.",
            hint=_RUN_AGAIN,
        )
