"""CALL sys.rewrite_file_index: files get the indexes that the table's options ask for now."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import pyarrow as pa

from paimon_magics.coordinator.client.compacting import Messages, compact_plan
from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.commits.requests import CommitRequest, CompactManifests, Transaction
from paimon_magics.planning.formatting import count_text, size_text
from paimon_magics.planning.job_progress import Work
from paimon_magics.planning.writes.index_rules import file_indexes_of
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.scope import errors_translated
from paimon_magics.session.statements.compaction import ProcedureCall, chosen_partitions
from paimon_magics.session.writes.compaction import SparkTransactions
from paimon_magics.session.writes.transactions import begun, committed
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.task_units import run_units
from paimon_magics.statements.maintenance import RewriteFileIndex
from paimon_magics.tables.compaction.index_plan import (
    IndexRewriting,
    IndexUnits,
    needs_merged_manifests,
    plan_index_rewriting,
)
from paimon_magics.tables.compaction.planning import CompactionScope
from paimon_magics.tables.compaction.plans import run_here
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.table import Table

# A job costs some tenths of a second before its first row.
_IN_PROCESS_BYTES_MAX = 64 << 20


def run_file_index_rewriting(call: ProcedureCall, request: RewriteFileIndex) -> Outcome:
    """Run CALL sys.rewrite_file_index. It returns how many partitions and files got indexes."""
    table, extent = _extent(call, request)
    engine = _IndexEngine(call.scope, call.text)
    plan = engine.planned(table, extent)
    wait_ms = call.scope.settings.exclusive_wait_ms
    done = None if plan is None else compact_plan(engine, plan, extent, claims_wait_ms=wait_ms)
    files = 0 if done is None else done.files_after
    partitions = len(engine.partitions) if files else 0
    outcome = call.outcome(
        table,
        written_partitions=pa.array([partitions], pa.int32()),
        written_indexes=pa.array([files], pa.int32()),
    )
    if done is None or done.receipt is None or done.receipt.snapshot_id is None:
        outcome.message = f"`{table.name}`: all files have the requested indexes."
        return outcome
    outcome.notes = done.notes
    outcome.snapshot_id, outcome.commit_kind = done.receipt.snapshot_id, done.receipt.commit_kind
    outcome.message = (
        f"`{table.name}`: new indexes of {count_text(files, 'file')} "
        f"(snapshot {done.receipt.snapshot_id})."
    )
    return outcome


def file_index_lines(call: ProcedureCall, request: RewriteFileIndex) -> list[str]:
    """What CALL sys.rewrite_file_index would read."""
    table, extent = _extent(call, request)
    plan = _IndexEngine(call.scope, call.text).planned(table, extent)
    if plan is None:
        return [f"{table.name}: no file has an index, and none is requested."]
    wanted = [f"{index.kind} of {index.name}" for index in file_indexes_of(table.schema).indexes]
    return [
        f"{table.name}: would read {count_text(len(plan.units), 'file')} "
        f"({size_text(plan.rewritten_bytes)}) of snapshot {plan.snapshot_id} for "
        f"{', '.join(wanted) or 'no indexes any more'}."
    ]


def _extent(call: ProcedureCall, request: RewriteFileIndex) -> tuple[Table, CompactionScope]:
    table = call.load()
    with call.errors_located():
        if table.schema.data_evolution_enabled:
            raise UnsupportedStatementError(
                f"`{table.name}` has 'data-evolution.enabled' = 'true', and a file of it may have "
                "some columns of its rows only: such files get no indexes here.",
                hint="Index it with another engine.",
            )
        file_indexes_of(table.schema)
        partitions = chosen_partitions(call.scope, table, None, request.where)
    return table, CompactionScope(is_full=True, partitions=partitions)


@dataclass(frozen=True)
class _IndexEngine(SparkTransactions):
    """A `CompactionEngine` that indexes files. `partitions` are those of the files that got other
    indexes."""

    partitions: set[tuple[object, ...]] = field(default_factory=set)

    def planned(self, table: Table, extent: CompactionScope) -> IndexRewriting | None:
        """See `CompactionEngine.planned`."""
        snapshot = latest_snapshot(table.paimon)
        if snapshot is None:
            return None
        cache = self.scope.manifests(table)
        plan = plan_index_rewriting(table, snapshot, extent, cache)
        return None if plan.is_empty else plan

    def rewritten(self, plan: IndexRewriting, transaction: Transaction) -> Messages:
        """See `CompactionEngine.rewritten`."""
        with errors_translated(self.statement), cancellable(self.scope.spark, lambda: _work(plan)):
            rewrite, slots = plan.rewrite(transaction), self.scope.slots
            if plan.rewritten_bytes <= _IN_PROCESS_BYTES_MAX:
                threads = min(slots, os.cpu_count() or 1)
                indexed, repeated = run_here(rewrite, plan.units, threads=threads), False
            else:
                units = IndexUnits.of(rewrite, plan.units, slots)
                results = run_units(self.scope.spark, units)
                indexed = [file for group in results.results for file in group]
                repeated = results.repeated_attempts
            messages = plan.messages(indexed)
            if needs_merged_manifests(plan, messages):
                self._merge_manifests(plan.table)
        self.partitions.update(tuple(message.partition) for message in messages)
        return Messages(messages, repeated)

    def _merge_manifests(self, table: Table) -> None:
        attempts = Attempts(reruns_max=0)
        transaction = begun(self.scope, table.name, None, attempts, compacts=True)
        properties = self.provenance(rows=0, files=0)
        request = CommitRequest(transaction, CompactManifests(), properties=properties)
        committed(self.scope, request)


def _work(plan: IndexRewriting) -> Work:
    return Work(
        sources=(str(plan.table.name),),
        rows=sum(unit.file.rows for unit in plan.units),
        size_bytes=plan.rewritten_bytes,
        files=len(plan.units),
        target="files",
        is_plain=True,
    )
