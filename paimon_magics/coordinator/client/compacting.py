"""Compacts a table: plan, claim, rewrite and commit, or leave the table unchanged.

Statements, INSERTs and the coordinator's own worker all compact with this function; they differ in
their `CompactionEngine`. Every run plans on one snapshot. If another commit changed some planned
buckets, these are planned again, and the others are committed. If this process dies before the
commit, the table is unchanged. Unreferenced files stay until the transaction's lease expires, which
removes them. If it dies during the commit, the committer settles it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from paimon_magics.coordinator.client.interface import Attempts, CoordinatorClient
from paimon_magics.errors import CompactionConflictError, OutdatedPlanError
from paimon_magics.faults import reach
from paimon_magics.planning.commits.requests import (
    CommitReceipt,
    CommitRequest,
    Compact,
    Transaction,
)
from paimon_magics.planning.formatting import count_text
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.commits.decoded_request import written_files
from paimon_magics.tables.compaction.index_plan import IndexRewriting
from paimon_magics.tables.compaction.messages import picked_again
from paimon_magics.tables.compaction.planning import CompactionPlan, CompactionScope
from paimon_magics.tables.compaction.plans import Plan, is_outdated
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import BucketKey, write_message, written_buckets

_P = TypeVar("_P", Plan, IndexRewriting)
_WAIT_SECONDS = 1.0
_RUN_AGAIN = "These buckets were not changed. Run the statement again later."


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did. `receipt` is that of its last commit, None if there was nothing to
    do."""

    receipt: CommitReceipt | None = None
    files_before: int = 0
    files_after: int = 0
    rewritten_bytes: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Messages:
    """pypaimon's messages of a compaction. `repeated` if some tasks may have run twice, so a failed
    attempt may have left files. `again_bytes` were rewritten once more.
    """

    messages: Sequence[Any]
    repeated: bool = False
    again_bytes: int = 0


class CompactionEngine(Protocol[_P]):
    """Where a compaction runs, and how its transaction begins and ends."""

    @property
    def client(self) -> CoordinatorClient:
        """The committer."""

    @property
    def reruns_max(self) -> int:
        """Upper bound on reruns after other commits changed the files."""

    def planned(self, table: Table, scope: CompactionScope) -> _P | None:
        """The plan on the table's latest snapshot; None if there is nothing to do."""

    def wait(self, seconds: float, reason: str) -> None:
        """Sleep while other transactions block this one; `reason` names them."""

    def begun(self, table: TableName, base: int, attempts: Attempts) -> Transaction:
        """An open transaction that only compacts, planned on the snapshot `base`."""

    def rewritten(self, plan: _P, transaction: Transaction) -> Messages:
        """Rewrite the files of a plan. Raises JobError and errors of the store."""

    def provenance(self, rows: int, files: int) -> tuple[tuple[str, str], ...]:
        """The snapshot's properties."""

    def committed(self, request: CommitRequest) -> CompactionReceipt:
        """Commit; a transaction that is certainly not committed is aborted."""


@dataclass(frozen=True, slots=True)
class _Left:
    """Buckets that a run has left out, and why."""

    buckets: frozenset[BucketKey] = frozenset()
    reason: str = ""


def compact_plan(
    engine: CompactionEngine[_P], plan: _P, scope: CompactionScope, *, claims_wait_ms: int
) -> Compacted:
    """Run a planned compaction, and plan again for buckets that others changed meanwhile. Wait up
    to `claims_wait_ms` for buckets that others are compacting; with 0, leave these to them.

    Raises JobError if the job fails, OutdatedPlanError if others kept changing the files during the
    compaction, or did not end their own compaction in time.
    """
    attempts = Attempts(engine.reruns_max)
    deadline = time.monotonic() + claims_wait_ms / 1000
    done = Compacted()
    current: _P | None = plan
    while current is not None:
        run, conflicting, claimed = _run_once(engine, current, scope, attempts)
        done = Compacted(
            receipt=run.receipt or done.receipt,
            files_before=done.files_before + run.files_before,
            files_after=done.files_after + run.files_after,
            rewritten_bytes=done.rewritten_bytes + run.rewritten_bytes,
        )
        again = conflicting.buckets | (claimed.buckets if claims_wait_ms else frozenset())
        if not again:
            break
        if conflicting.buckets:
            error = OutdatedPlanError(conflicting.reason, hint=_RUN_AGAIN)
            attempts.next(error, may_run_again=True)
        elif time.monotonic() >= deadline:
            raise OutdatedPlanError(claimed.reason, hint=_RUN_AGAIN)
        else:
            engine.wait(_WAIT_SECONDS, claimed.reason)
        scope = replace(scope, buckets=again)
        current = engine.planned(plan.table, scope)
    return replace(done, notes=attempts.notes())


def _run_once(
    engine: CompactionEngine[_P], planned: _P, scope: CompactionScope, attempts: Attempts
) -> tuple[Compacted, _Left, _Left]:
    """The committed result, the buckets that others changed, and the buckets that others are
    compacting.
    """
    table = planned.table
    transaction = engine.begun(table.name, planned.snapshot_id, attempts)
    try:
        granted, claimed = claimed_plan(engine.client, planned, transaction)
        plan: _P | None = granted
        if is_outdated(granted):
            # Another transaction may have compacted the buckets between the plan and the claim.
            plan = engine.planned(table, replace(scope, buckets=frozenset(granted.unit_keys())))
        if plan is None or plan.is_empty:
            engine.client.abort(transaction)
            return Compacted(), _Left(), claimed
        reach("compaction.claimed")
        rewritten = engine.rewritten(plan, transaction)
        if scope.picks_again and isinstance(plan, CompactionPlan):
            rewritten = rewritten_again(engine, plan, rewritten, scope, transaction)
        reach("compaction.rewritten")
        messages = rewritten.messages
        rows = sum(file.row_count for message in messages for file in written_files(message))
        files = sum(len(message.compact_after) for message in messages)
        request = CommitRequest(
            transaction,
            Compact(),
            tuple(write_message(table.paimon, message) for message in messages),
            engine.provenance(rows, files),
        )
    except BaseException:
        engine.client.abort(transaction)
        raise
    settled = engine.committed(request)
    if rewritten.repeated and settled.receipt is not None:
        engine.client.sweep(settled.request)
    left_out = set(settled.conflicting)
    committed = [message for at, message in enumerate(messages) if at not in left_out]
    done = Compacted(
        settled.receipt,
        sum(len(message.compact_before) for message in committed),
        sum(len(message.compact_after) for message in committed),
        plan.rewritten_bytes + rewritten.again_bytes,
    )
    buckets = written_buckets(table, [messages[at] for at in settled.conflicting])
    return done, _Left(buckets, settled.reason), claimed


def rewritten_again(
    engine: CompactionEngine[Any],
    plan: CompactionPlan,
    first: Messages,
    scope: CompactionScope,
    transaction: Transaction,
) -> Messages:
    """These messages and those of the files picked after them. Attempts without remaining files are
    left out, so that the transaction is swept.
    """
    repeated = first.repeated

    def rewrite(second: CompactionPlan) -> Sequence[Any]:
        nonlocal repeated
        repeated = True
        return engine.rewritten(second, transaction).messages

    messages, again_bytes = picked_again(plan, first.messages, scope, rewrite)
    return Messages(messages, repeated, again_bytes)


def claimed_plan(client: CoordinatorClient, plan: _P, transaction: Transaction) -> tuple[_P, _Left]:
    """The plan without the buckets that others are compacting, and those buckets."""
    keys = plan.unit_keys()
    wanted = list(dict.fromkeys(keys))
    positions = client.claim_buckets(transaction, wanted)
    if len(positions) == len(wanted):
        return plan, _Left()
    granted = {wanted[at] for at in positions}
    denied = frozenset(wanted) - granted
    reason = (
        f"Other transactions are compacting {count_text(len(denied), 'bucket')} of "
        f"`{plan.table.name}`."
    )
    return plan.only([at for at, key in enumerate(keys) if key in granted]), _Left(denied, reason)


@dataclass(frozen=True, slots=True)
class CompactionReceipt:
    """The outcome of a compaction. `receipt` is None if all of its messages conflicted; then its
    transaction has ended and its files are removed. `request` is the last one, for
    `CoordinatorClient.sweep`. `conflicting` are the positions of messages that conflict with other
    commits: their buckets must be planned again. `reason` explains one of the conflicts.
    """

    receipt: CommitReceipt | None
    request: CommitRequest
    conflicting: tuple[int, ...] = ()
    reason: str = ""


class CompactionCommit:
    """Commits the messages of a compaction that do not conflict with other commits. `request` has
    the change `Compact()`."""

    def __init__(self, client: CoordinatorClient, request: CommitRequest) -> None:
        assert isinstance(request.change, Compact)
        self._client = client
        self._request = request
        self._left = list(range(len(request.messages)))
        self._reason = ""

    def run(self) -> CompactionReceipt:
        """Commit. An interrupted call may be repeated: it commits the same messages.

        Raises what `CoordinatorClient.commit` raises for other reasons. A CommitConflictError means
        that no part of the compaction can be committed.
        """
        while True:
            request = self._next_request()
            try:
                receipt = self._client.commit(request)
                return CompactionReceipt(receipt, request, self._conflicting(), self._reason)
            except CompactionConflictError as error:
                if not error.conflicting:
                    raise
                self._reason = self._reason or error.message
                gone = {self._left[place] for place in error.conflicting}
                self._left = [at for at in self._left if at not in gone]
            if not self._left:
                self._client.abort(self._request.transaction)
                return CompactionReceipt(None, request, self._conflicting(), self._reason)

    def _next_request(self) -> CommitRequest:
        messages = self._request.messages
        return replace(
            self._request,
            change=Compact(tuple(messages[at] for at in self._conflicting())),
            messages=tuple(messages[at] for at in self._left),
        )

    def _conflicting(self) -> tuple[int, ...]:
        return tuple(sorted(set(range(len(self._request.messages))).difference(self._left)))


def commit_compaction(client: CoordinatorClient, request: CommitRequest) -> CompactionReceipt:
    """Run a CompactionCommit once."""
    return CompactionCommit(client, request).run()
