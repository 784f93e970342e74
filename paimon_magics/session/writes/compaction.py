"""Compacts a table: plan, rewrite, commit; or leave the table as it was.

Every run plans on one snapshot. Where another commit has changed what was planned, the buckets
concerned are planned anew, and the others are committed. If this process dies before the commit,
the table is unchanged and unreferenced files stay, which the end of the transaction's lease
removes; during the commit, the committer settles it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from paimon_magics.errors import OutdatedPlanError
from paimon_magics.planning.commits.requests import (
    CommitReceipt,
    CommitRequest,
    Compact,
    Transaction,
)
from paimon_magics.planning.compaction.picks import Moment
from paimon_magics.planning.jobs.progress import Work
from paimon_magics.session.connection import Connection
from paimon_magics.session.provenance import provenance
from paimon_magics.session.writes.reruns import Attempts
from paimon_magics.session.writes.transactions import begun, committed_compaction
from paimon_magics.spark.failures import translate
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.task_units import run_units
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

__all__ = ["Compacted", "compact_plan", "compact_table", "planned_compaction"]

# A job costs some tenths of a second before its first row.
_IN_PROCESS_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did. `receipt` is that of its last commit, None if there was nothing to
    do."""

    receipt: CommitReceipt | None = None
    files_before: int = 0
    files_after: int = 0
    rewritten_bytes: int = 0
    notes: tuple[str, ...] = ()


def planned_compaction(
    connection: Connection, table: Table, scope: CompactionScope
) -> CompactionPlan | None:
    """The plan on the latest snapshot; None if there is nothing to do."""
    snapshot = latest_snapshot(table.paimon)
    if snapshot is None:
        return None
    cache = connection.manifests(table.location, lambda: ManifestCache(table.paimon))
    plan = plan_compaction(table, snapshot, scope, _moment(), cache)
    return None if plan.is_empty else plan


def compact_table(
    connection: Connection, table: Table, scope: CompactionScope, statement: str
) -> Compacted:
    """Compact what `scope` names of a primary-key table. See `compact_plan`."""
    plan = planned_compaction(connection, table, scope)
    return Compacted() if plan is None else compact_plan(connection, plan, scope, statement)


def compact_plan(
    connection: Connection, plan: CompactionPlan, scope: CompactionScope, statement: str
) -> Compacted:
    """Run a planned compaction, and plan again for buckets that others changed meanwhile.

    Raises JobError if the job fails, OutdatedPlanError if others changed the files again and again
    while they were compacted.
    """
    attempts = Attempts(connection.settings.conflict_reruns_max)
    done = Compacted()
    current: CompactionPlan | None = plan
    while current is not None:
        found, conflicting, reason = _run_once(connection, current, statement, attempts)
        done = Compacted(
            receipt=found.receipt or done.receipt,
            files_before=done.files_before + found.files_before,
            files_after=done.files_after + found.files_after,
            rewritten_bytes=done.rewritten_bytes + found.rewritten_bytes,
        )
        if not conflicting:
            break
        attempts.next(OutdatedPlanError(reason), may_run_again=True)
        scope = replace(scope, buckets=frozenset(conflicting))
        current = planned_compaction(connection, plan.table, scope)
    return replace(done, notes=attempts.notes())


def _run_once(
    connection: Connection, plan: CompactionPlan, statement: str, attempts: Attempts
) -> tuple[Compacted, list[BucketKey], str]:
    """What was committed, the buckets that others have changed, and how."""
    table = plan.table
    transaction = begun(connection, table.name, plan.snapshot_id, attempts, compacts=True)
    repeated = False
    try:
        tasks = plan.tasks(connection.slots)
        with cancellable(connection.spark, lambda: _work(plan)):
            results, repeated = _rewritten(connection, plan, transaction, tasks)
        messages = compaction_messages(plan, tasks, results, transaction)
        rows = sum(file.rows for result in results for file in result.files)
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
    buckets = [(plan.units[at].partition, plan.units[at].bucket) for at in settled.conflicting]
    return done, buckets, settled.reason


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


def _work(plan: CompactionPlan) -> Work:
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
    return Moment(now_ms=int(seconds * 1000), hour=now.hour)
