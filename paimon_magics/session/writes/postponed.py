"""Gives waiting rows of tables with postponed buckets their buckets, by one commit.

As in `compaction`, a run plans on one snapshot, and the table is left as it was if anything fails.
All of it is committed or nothing: rows must not be in their bucket and wait for it at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from paimon_magics.coordinator.client.attempts import Attempts
from paimon_magics.errors import CompactionConflictError, OutdatedPlanError
from paimon_magics.planning.commits.requests import (
    CommitReceipt,
    CommitRequest,
    Compact,
    Transaction,
)
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.jobs.progress import Work
from paimon_magics.planning.schemas.format_rules import fits_spark
from paimon_magics.planning.writes.distributions import ByBucket
from paimon_magics.session.connection import Connection
from paimon_magics.session.provenance import provenance
from paimon_magics.session.writes.transactions import begun, committed
from paimon_magics.spark.failures import translate
from paimon_magics.spark.postponed import stored_rows_frame
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.writing import JobWritten, write_frame
from paimon_magics.tables.compaction.planning import CompactionScope
from paimon_magics.tables.compaction.postponed import PostponedRows, plan_postponed
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.postponed_writer import POSTPONED_BUCKET
from paimon_magics.tables.writing.table_write import completed
from paimon_magics.tables.writing.writer import write_batches

__all__ = ["Settled", "postponed_rows", "settle_postponed"]

_RUN_AGAIN = "No row was moved. Run the statement again later."
_IN_PROCESS_BYTES_MAX = 16 << 20  # a job costs some tenths of a second before its first row
_GROUPS = 3  # for each slot


@dataclass(frozen=True, slots=True)
class Settled:
    """What was done: `receipt` is None where no row had waited."""

    receipt: CommitReceipt | None = None
    rows: int = 0
    files_before: int = 0
    files_after: int = 0
    size_bytes: int = 0
    notes: tuple[str, ...] = ()


def postponed_rows(
    connection: Connection, table: Table, scope: CompactionScope
) -> PostponedRows | None:
    """The rows that wait at the latest snapshot; None if there are none, or no such buckets."""
    if table.schema.bucket_mode != "POSTPONE_MODE":
        return None
    snapshot = latest_snapshot(table.paimon)
    if snapshot is None:
        return None
    cache = connection.manifests(table.location, lambda: ManifestCache(table.paimon))
    return plan_postponed(table, snapshot, scope, cache, connection.slots)


def settle_postponed(
    connection: Connection, table: Table, scope: CompactionScope, statement: str
) -> Settled:
    """Move the waiting rows into buckets, and plan again if others changed the files meanwhile.

    Raises JobError if the job fails, OutdatedPlanError if others changed them again and again.
    """
    attempts = Attempts(connection.settings.conflict_reruns_max)
    while True:
        plan = postponed_rows(connection, table, scope)
        if plan is None:
            return Settled(notes=attempts.notes())
        try:
            done = _run_once(connection, plan, statement, attempts)
        except CompactionConflictError as error:
            attempts.next(OutdatedPlanError(error.message, hint=_RUN_AGAIN), may_run_again=True)
        except OutdatedPlanError as error:
            attempts.next(error, may_run_again=True)
        else:
            return replace(done, notes=attempts.notes())


def _run_once(
    connection: Connection, plan: PostponedRows, statement: str, attempts: Attempts
) -> Settled:
    table = plan.table
    transaction = begun(connection, table.name, plan.snapshot_id, attempts, compacts=True)
    try:
        _claim(connection, plan, transaction)
        spec = plan.spec(transaction, slots=connection.slots, settings=connection.settings)
        with cancellable(connection.spark, lambda: _work(plan)):
            if plan.size_bytes <= _IN_PROCESS_BYTES_MAX or not fits_spark(table.schema):
                job = JobWritten(write_batches(spec, plan.batches()), repeated_attempts=False)
            else:
                groups = plan.shares(connection.slots * _GROUPS)
                columns = table.schema.columns
                frame = stored_rows_frame(connection.spark, plan.reader(), groups, columns)
                rule = ByBucket(table.schema.bucket_keys, None)
                job = write_frame(
                    connection.spark, frame, spec, rule, slots=connection.slots, keep_order=True
                )
        written = completed(table, spec, job.written, transaction.base_snapshot_id)
        request = CommitRequest(
            transaction,
            Compact(),
            tuple(plan.messages(written.messages)),
            provenance(statement, connection.spark.version, rows=written.rows, files=written.files),
        )
    except BaseException as error:
        connection.committer.abort(transaction)
        if isinstance(error, Exception):
            raise translate(error, statement=statement) from error
        raise
    receipt = committed(connection, request)
    if job.repeated_attempts:
        connection.committer.sweep(request)
    return Settled(receipt, written.rows, plan.files.num_rows, written.files, plan.size_bytes)


def _claim(connection: Connection, plan: PostponedRows, transaction: Transaction) -> None:
    """Claim the waiting rows. Raises OutdatedPlanError while somebody else moves some of them."""
    keys = [(partition, POSTPONED_BUCKET) for partition in plan.partitions]
    if len(connection.committer.claim_buckets(transaction, keys)) < len(keys):
        raise OutdatedPlanError(
            f"Others are moving the rows of `{plan.table.name}` that wait for their buckets.",
            hint=_RUN_AGAIN,
        )


def _work(plan: PostponedRows) -> Work:
    return Work(
        sources=(str(plan.table.name),),
        rows=plan.rows,
        size_bytes=plan.size_bytes,
        files=plan.files.num_rows,
        target=count_text(len(plan.partitions), "partition"),
        is_plain=True,
    )
