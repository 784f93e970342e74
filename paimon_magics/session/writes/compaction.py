"""Compacts a table by Spark, or in this process if that is faster."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from paimon_magics.coordinator.client.compacting import Compacted, CompactionReceipt, Messages
from paimon_magics.coordinator.client.compacting import compact_plan as compact_by
from paimon_magics.coordinator.client.interface import Attempts, CoordinatorClient
from paimon_magics.coordinator.client.postponed_buckets import Moved, Settled, settle_postponed
from paimon_magics.planning.commits.requests import CommitReceipt, CommitRequest, Transaction
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.job_progress import Work
from paimon_magics.planning.schemas.format_rules import fits_spark
from paimon_magics.planning.writes.distributions import ByBucket
from paimon_magics.session.provenance import Operation, provenance
from paimon_magics.session.scope import StatementScope, errors_translated
from paimon_magics.session.writes.transactions import begun, committed, committed_compaction
from paimon_magics.spark.job_watching import doing
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.row_tasks import stored_rows_frame
from paimon_magics.spark.task_units import run_units
from paimon_magics.spark.writing import JobWritten, RowOrder, write_frame
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.compaction.append_plan import AppendCompaction
from paimon_magics.tables.compaction.append_rewriting import AppendUnits
from paimon_magics.tables.compaction.messages import compaction_messages
from paimon_magics.tables.compaction.planning import CompactionPlan, CompactionScope
from paimon_magics.tables.compaction.plans import Plan, planned, rewritten_here
from paimon_magics.tables.compaction.postponed import PostponedRows, plan_postponed
from paimon_magics.tables.compaction.rewriting import RewriteUnits
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.table_write import completed
from paimon_magics.tables.writing.writer import write_batches

# A job costs some tenths of a second before its first row.
_IN_PROCESS_BYTES_MAX = 16 << 20
# Rows of append tables are neither sorted nor merged.
_APPENDS_IN_PROCESS_BYTES_MAX = 256 << 20


_WAITING_IN_PROCESS_BYTES_MAX = 16 << 20  # a job costs some tenths of a second before its first row
_GROUPS = 3  # for each slot


def planned_compaction(scope: StatementScope, table: Table, extent: CompactionScope) -> Plan | None:
    """The plan on the latest snapshot; None if there is nothing to do."""
    cache = scope.manifests(table)
    return planned(table, extent, cache)


def compact_table(
    scope: StatementScope, table: Table, extent: CompactionScope, statement: str
) -> Compacted:
    """Compact the part of a table that `extent` specifies. See `compact_plan`."""
    plan = planned_compaction(scope, table, extent)
    return Compacted() if plan is None else compact_plan(scope, plan, extent, statement)


def compact_plan(
    scope: StatementScope,
    plan: Plan,
    extent: CompactionScope,
    statement: str,
    *,
    claims_wait_ms: int | None = None,
) -> Compacted:
    """Run a planned compaction of a statement: see `coordinator.client.compacting.compact_plan`.
    By default it waits for others as long as for a turn (`exclusive_wait_ms`)."""
    if claims_wait_ms is None:
        claims_wait_ms = scope.settings.exclusive_wait_ms
    engine = _SparkEngine(scope, statement)
    return compact_by(engine, plan, extent, claims_wait_ms=claims_wait_ms)


@dataclass(frozen=True)
class SparkTransactions:
    """How the transactions of a `CompactionEngine` of a session begin and end."""

    scope: StatementScope
    statement: str

    @property
    def client(self) -> CoordinatorClient:
        """See `CompactionEngine.client`."""
        return self.scope.committer

    @property
    def reruns_max(self) -> int:
        """See `CompactionEngine.reruns_max`."""
        return self.scope.settings.conflict_reruns_max

    def wait(self, seconds: float, reason: str) -> None:
        """See `CompactionEngine.wait`."""
        with doing(lambda: f"waiting: {reason}"):
            time.sleep(seconds)

    def begun(self, table: TableName, base: int, attempts: Attempts) -> Transaction:
        """See `CompactionEngine.begun`."""
        return begun(self.scope, table, (base, ""), attempts, compacts=True)

    def provenance(self, rows: int, files: int) -> tuple[tuple[str, str], ...]:
        """See `CompactionEngine.provenance`."""
        operation = Operation("COMPACT")
        return provenance(self.scope, self.statement, operation, rows=rows, files=files)

    def committed(self, request: CommitRequest) -> CompactionReceipt:
        """See `CompactionEngine.committed`."""
        return committed_compaction(self.scope, request)


class _SparkEngine(SparkTransactions):
    """A `CompactionEngine` of a session. It shows progress, and stops when it is interrupted."""

    def planned(self, table: Table, extent: CompactionScope) -> Plan | None:
        """See `CompactionEngine.planned`."""
        return planned_compaction(self.scope, table, extent)

    def rewritten(self, plan: Plan, transaction: Transaction) -> Messages:
        """See `CompactionEngine.rewritten`."""
        with errors_translated(self.statement), cancellable(self.scope.spark, lambda: _work(plan)):
            if isinstance(plan, AppendCompaction):
                return self._appends(plan, transaction)
            return self._merged(plan, transaction)

    def _appends(self, plan: AppendCompaction, transaction: Transaction) -> Messages:
        slots, settings = self.scope.slots, self.scope.settings
        if plan.rewritten_bytes <= _APPENDS_IN_PROCESS_BYTES_MAX:
            threads = min(slots, os.cpu_count() or 1)
            return Messages(rewritten_here(plan, transaction, threads=threads, settings=settings))
        rewrite = plan.rewrite(transaction, slots=slots, settings=settings)
        results = run_units(self.scope.spark, AppendUnits.of(rewrite, plan.units, slots))
        files = [file for group in results.results for file in group]
        return Messages(plan.messages(files, transaction), results.repeated_attempts)

    def _merged(self, plan: CompactionPlan, transaction: Transaction) -> Messages:
        slots, settings = self.scope.slots, self.scope.settings
        if plan.read_bytes <= _IN_PROCESS_BYTES_MAX:
            return Messages(rewritten_here(plan, transaction, threads=slots, settings=settings))
        tasks = plan.tasks(slots)
        units = RewriteUnits.of(plan.spec(transaction), tasks, slots)
        results = run_units(self.scope.spark, units)
        files = [file for group in results.results for file in group]
        messages = compaction_messages(plan, tasks, files, transaction)
        return Messages(messages, results.repeated_attempts)


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


# Moves waiting rows of tables with postponed buckets by Spark, or in this process where that is
# faster (`coordinator.client.postponed_buckets`).


def postponed_rows(
    scope: StatementScope, table: Table, extent: CompactionScope
) -> PostponedRows | None:
    """The rows that wait at the latest snapshot; None if there are none, or no such buckets."""
    if table.schema.bucket_mode != "POSTPONE_MODE":
        return None
    snapshot = latest_snapshot(table.paimon)
    if snapshot is None:
        return None
    cache = scope.manifests(table)
    return plan_postponed(table, snapshot, extent, cache, scope.slots)


def settle(scope: StatementScope, table: Table, extent: CompactionScope, statement: str) -> Settled:
    """Move the waiting rows of a table into buckets. Raises as `settle_postponed` does."""
    return settle_postponed(_SparkSettling(scope, statement), table, extent)


class _SparkSettling(_SparkEngine):
    """A `SettlingEngine` of a session."""

    def waiting(self, table: Table, extent: CompactionScope) -> PostponedRows | None:
        """See `SettlingEngine.waiting`."""
        return postponed_rows(self.scope, table, extent)

    def moved(self, plan: PostponedRows, transaction: Transaction) -> Moved:
        """See `SettlingEngine.moved`."""
        scope, table = self.scope, plan.table
        with errors_translated(self.statement):
            spec = plan.spec(transaction, slots=scope.slots, settings=scope.settings)
            with cancellable(scope.spark, lambda: _waiting_work(plan)):
                if plan.size_bytes <= _WAITING_IN_PROCESS_BYTES_MAX or not fits_spark(table.schema):
                    job = JobWritten(write_batches(spec, plan.batches()), repeated_attempts=False)
                else:
                    groups = plan.shares(scope.slots * _GROUPS)
                    columns = table.schema.columns
                    frame = stored_rows_frame(scope.spark, plan.reader(), groups, columns)
                    rule = ByBucket(table.schema.bucket_keys, None)
                    job = write_frame(
                        scope.spark,
                        frame,
                        spec,
                        rule,
                        slots=scope.slots,
                        order=RowOrder(is_kept=True),
                    )
            written = completed(table, spec, job.written, transaction.base_snapshot_id)
        return Moved(written.messages, written.rows, job.repeated_attempts)

    def committed_whole(self, request: CommitRequest) -> CommitReceipt:
        """See `SettlingEngine.committed_whole`."""
        return committed(self.scope, request)


def _waiting_work(plan: PostponedRows) -> Work:
    return Work(
        sources=(str(plan.table.name),),
        rows=plan.rows,
        size_bytes=plan.size_bytes,
        files=plan.files.num_rows,
        target=count_text(len(plan.partitions), "partition"),
        is_plain=True,
    )
