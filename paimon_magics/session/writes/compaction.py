"""Compacts a table: plan, rewrite, commit; or leave the table as it was.

Every run plans on one snapshot. Where another commit has changed what was planned, the buckets
concerned are planned anew, and the others are committed. If this process dies before the commit,
the table is unchanged and unreferenced files stay, which the end of the transaction's lease
removes; during the commit, the committer settles it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from paimon_magics.errors import OutdatedPlanError
from paimon_magics.planning.commits.requests import (
    CommitReceipt,
    CommitRequest,
    Compact,
    Transaction,
)
from paimon_magics.planning.compaction.picks import Moment
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.jobs.progress import Work
from paimon_magics.session.connection import Connection
from paimon_magics.session.provenance import provenance
from paimon_magics.session.writes.reruns import Attempts
from paimon_magics.session.writes.transactions import begun, committed_compaction
from paimon_magics.spark.failures import translate
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.task_units import run_units
from paimon_magics.tables.commits.decoded_request import written_files
from paimon_magics.tables.compaction.append_plan import AppendCompaction, plan_append_compaction
from paimon_magics.tables.compaction.append_rewriting import AppendUnits, RewrittenUnit
from paimon_magics.tables.compaction.local_units import run_here
from paimon_magics.tables.compaction.messages import compaction_messages
from paimon_magics.tables.compaction.planning import (
    BucketKey,
    CompactionPlan,
    CompactionScope,
    plan_compaction,
)
from paimon_magics.tables.compaction.rewriting import (
    RewriteTask,
    RewriteUnits,
    Rewritten,
    rewrite_all,
)
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import write_message
from paimon_magics.tables.writing.written_buckets import written_buckets

__all__ = ["Compacted", "Plan", "compact_plan", "compact_table", "planned_compaction"]

_RUN_AGAIN = "Nothing of these buckets was changed. Run the statement again later."
# A job costs some tenths of a second before its first row.
_IN_PROCESS_BYTES_MAX = 16 << 20
_APPENDS_IN_PROCESS_BYTES_MAX = 256 << 20


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
class _Left:
    """Buckets that a run has left out, and why."""

    buckets: frozenset[BucketKey] = frozenset()
    reason: str = ""


Plan = CompactionPlan | AppendCompaction


def planned_compaction(connection: Connection, table: Table, scope: CompactionScope) -> Plan | None:
    """The plan on the latest snapshot; None if there is nothing to do."""
    snapshot = latest_snapshot(table.paimon)
    if snapshot is None:
        return None
    cache = connection.manifests(table.location, lambda: ManifestCache(table.paimon))
    plan: Plan = (
        plan_compaction(table, snapshot, scope, _moment(), cache)
        if table.schema.is_primary_key_table
        else plan_append_compaction(table, snapshot, scope, cache)
    )
    return None if plan.is_empty else plan


def compact_table(
    connection: Connection, table: Table, scope: CompactionScope, statement: str
) -> Compacted:
    """Compact what `scope` names of a table. See `compact_plan`."""
    plan = planned_compaction(connection, table, scope)
    return Compacted() if plan is None else compact_plan(connection, plan, scope, statement)


def compact_plan(
    connection: Connection,
    plan: Plan,
    scope: CompactionScope,
    statement: str,
    *,
    skips_claimed: bool = False,
) -> Compacted:
    """Run a planned compaction, and plan again for buckets that others changed meanwhile. Buckets
    that others are compacting are waited for, or left to them with `skips_claimed`.

    Raises JobError if the job fails, OutdatedPlanError if others changed the files again and again
    while they were compacted.
    """
    attempts = Attempts(connection.settings.conflict_reruns_max)
    done = Compacted()
    current: Plan | None = plan
    while current is not None:
        found, conflicting, claimed = _run_once(connection, current, statement, attempts)
        done = Compacted(
            receipt=found.receipt or done.receipt,
            files_before=done.files_before + found.files_before,
            files_after=done.files_after + found.files_after,
            rewritten_bytes=done.rewritten_bytes + found.rewritten_bytes,
        )
        again = conflicting.buckets if skips_claimed else conflicting.buckets | claimed.buckets
        if not again:
            break
        reason = conflicting.reason or claimed.reason
        attempts.next(OutdatedPlanError(reason, hint=_RUN_AGAIN), may_run_again=True)
        scope = replace(scope, buckets=again)
        current = planned_compaction(connection, plan.table, scope)
    return replace(done, notes=attempts.notes())


def _run_once(
    connection: Connection, plan: Plan, statement: str, attempts: Attempts
) -> tuple[Compacted, _Left, _Left]:
    """What was committed, the buckets that others have changed, and those that others compact."""
    table = plan.table
    transaction = begun(connection, table.name, plan.snapshot_id, attempts, compacts=True)
    repeated = False
    try:
        plan, claimed = _claimed(connection, plan, transaction)
        if plan.is_empty:
            connection.committer.abort(transaction)
            return Compacted(), _Left(), claimed
        with cancellable(connection.spark, lambda: _work(plan)):
            messages, repeated = _messages(connection, plan, transaction)
        rows = sum(file.row_count for message in messages for file in written_files(message))
        request = CommitRequest(
            transaction,
            Compact(),
            tuple(write_message(table.paimon, message) for message in messages),
            provenance(
                statement,
                connection.spark.version,
                rows=rows,
                files=sum(len(message.compact_after) for message in messages),
            ),
        )
    except BaseException as error:
        connection.committer.abort(transaction)
        if isinstance(error, Exception):
            raise translate(error, statement=statement) from error
        raise
    settled = committed_compaction(connection, request)
    if repeated and settled.receipt is not None:
        connection.committer.sweep(settled.request)
    left = set(settled.conflicting)
    kept = [message for at, message in enumerate(messages) if at not in left]
    done = Compacted(
        settled.receipt,
        sum(len(message.compact_before) for message in kept),
        sum(len(message.compact_after) for message in kept),
        plan.rewritten_bytes,
    )
    buckets = written_buckets(table, [messages[at] for at in settled.conflicting])
    return done, _Left(buckets, settled.reason), claimed


def _claimed(connection: Connection, plan: Plan, transaction: Transaction) -> tuple[Plan, _Left]:
    """The plan without the buckets that others are compacting, and those."""
    if isinstance(plan, AppendCompaction):
        return plan, _Left()
    keys = [(unit.partition, unit.bucket) for unit in plan.units]
    granted = set(connection.committer.claim_buckets(transaction, keys))
    if len(granted) == len(keys):
        return plan, _Left()
    kept = tuple(unit for at, unit in enumerate(plan.units) if at in granted)
    denied = frozenset(key for at, key in enumerate(keys) if at not in granted)
    reason = f"Others are compacting {count_text(len(denied), 'bucket')} of `{plan.table.name}`."
    return replace(plan, units=kept), _Left(denied, reason)


def _messages(
    connection: Connection, plan: Plan, transaction: Transaction
) -> tuple[list[Any], bool]:
    """pypaimon's messages of everything that the plan compacts, and whether some tasks may have run
    twice."""
    if isinstance(plan, AppendCompaction):
        found, repeated = _rewritten_appends(connection, plan, transaction)
        return plan.messages(found, transaction), repeated
    tasks = plan.tasks(connection.slots)
    results, repeated = _rewritten(connection, plan, transaction, tasks)
    return compaction_messages(plan, tasks, results, transaction), repeated


def _rewritten_appends(
    connection: Connection, plan: AppendCompaction, transaction: Transaction
) -> tuple[Sequence[RewrittenUnit], bool]:
    """The results of all units; their rows are neither sorted nor merged, so that more of them are
    rewritten in this process, by threads."""
    rewrite = plan.rewrite(transaction, slots=connection.slots, settings=connection.settings)
    if plan.rewritten_bytes <= _APPENDS_IN_PROCESS_BYTES_MAX:
        threads = min(connection.slots, os.cpu_count() or 1)
        return run_here(rewrite, plan.units, threads=threads), False
    results = run_units(connection.spark, AppendUnits.of(rewrite, plan.units, connection.slots))
    return [one for found in results.results for one in found], results.repeated_attempts


def _rewritten(
    connection: Connection,
    plan: CompactionPlan,
    transaction: Transaction,
    tasks: Sequence[RewriteTask],
) -> tuple[list[Rewritten], bool]:
    """The results of all tasks, and whether some may have run twice. Little work is done in this
    process, more of it by a Spark job."""
    if not tasks:
        return [], False
    spec = plan.spec(transaction)
    if plan.read_bytes <= _IN_PROCESS_BYTES_MAX:
        return rewrite_all(spec, tasks), False
    units = RewriteUnits.of(spec, tasks, connection.slots)
    found = run_units(connection.spark, units)
    return [one for results in found.results for one in results], found.repeated_attempts


def _work(plan: Plan) -> Work:
    if isinstance(plan, AppendCompaction):
        files = [file for unit in plan.units for file in unit.files]
    else:
        files = [
            unit.stored[file.name]
            for unit in plan.units
            for step in unit.rewrites
            for file in step.files
        ]
    return Work(
        sources=(str(plan.table.name),),
        rows=sum(file.rows for file in files),
        size_bytes=plan.read_bytes,
        files=len(files),
        target="files",
        is_plain=True,
    )


def _moment() -> Moment:
    """Now, by the wall clock here: Paimon stores the creation times of files so."""
    now = datetime.now()
    seconds = (now - datetime(1970, 1, 1)).total_seconds()
    return Moment(int(seconds * 1000), now.hour, int(time.time() * 1000))
