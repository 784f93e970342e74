"""Moves waiting rows of tables with postponed buckets by Spark, or in this process where that is
faster (`coordinator.client.settling`)."""

from __future__ import annotations

from paimon_magics.coordinator.client.settling import Moved, Settled, settle_postponed
from paimon_magics.planning.commits.requests import CommitReceipt, CommitRequest, Transaction
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.jobs.progress import Work
from paimon_magics.planning.schemas.format_rules import fits_spark
from paimon_magics.planning.writes.distributions import ByBucket
from paimon_magics.session.connection import Connection
from paimon_magics.session.writes.compaction import SparkEngine
from paimon_magics.session.writes.transactions import committed
from paimon_magics.spark.failures import translate
from paimon_magics.spark.postponed import stored_rows_frame
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.writing import JobWritten, RowOrder, write_frame
from paimon_magics.tables.compaction.planning import CompactionScope
from paimon_magics.tables.compaction.postponed import PostponedRows, plan_postponed
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.table_write import completed
from paimon_magics.tables.writing.writer import write_batches

__all__ = ["postponed_rows", "settle"]

_IN_PROCESS_BYTES_MAX = 16 << 20  # a job costs some tenths of a second before its first row
_GROUPS = 3  # for each slot


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


def settle(connection: Connection, table: Table, scope: CompactionScope, statement: str) -> Settled:
    """Move the waiting rows of a table into buckets. Raises as `settle_postponed` does."""
    return settle_postponed(_SparkSettling(connection, statement), table, scope)


class _SparkSettling(SparkEngine):
    """A `SettlingEngine` of a session."""

    def waiting(self, table: Table, scope: CompactionScope) -> PostponedRows | None:
        """See `SettlingEngine.waiting`."""
        return postponed_rows(self.connection, table, scope)

    def moved(self, plan: PostponedRows, transaction: Transaction) -> Moved:
        """See `SettlingEngine.moved`."""
        connection, table = self.connection, plan.table
        try:
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
                        connection.spark,
                        frame,
                        spec,
                        rule,
                        slots=connection.slots,
                        order=RowOrder(is_kept=True),
                    )
            written = completed(table, spec, job.written, transaction.base_snapshot_id)
        except Exception as error:
            raise translate(error, statement=self.statement) from error
        return Moved(written.messages, written.rows, job.repeated_attempts)

    def committed_whole(self, request: CommitRequest) -> CommitReceipt:
        """See `SettlingEngine.committed_whole`."""
        return committed(self.connection, request)


def _work(plan: PostponedRows) -> Work:
    return Work(
        sources=(str(plan.table.name),),
        rows=plan.rows,
        size_bytes=plan.size_bytes,
        files=plan.files.num_rows,
        target=count_text(len(plan.partitions), "partition"),
        is_plain=True,
    )
