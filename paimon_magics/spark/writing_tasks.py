"""The work of a writing job's tasks on their rows.

Light to import, because the tasks load it; what they need of Spark is imported in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from paimon_magics.errors import sent_to_driver
from paimon_magics.spark.decimal_columns import HashedDecimals
from paimon_magics.spark.python_workers import keep_modules
from paimon_magics.spark.task_reports import Reporter
from paimon_magics.spark.task_units import result_batch
from paimon_magics.tables.writing.row_counters import ChangedRows, ChangedTwiceError
from paimon_magics.tables.writing.write_spec import WriteSpec, Written
from paimon_magics.tables.writing.writer import (
    TooManyPartitionsError,
    gathered,
    with_assigned_buckets,
    with_owners,
    write_batches,
)


@dataclass(frozen=True, slots=True)
class TaskWritten:
    """What a task of WriteTasks returns. It `gave_up` where it would have had too many partitions.
    `kinds` are the numbers of rows by the number of their kind, where they are counted, and
    `changes_twice` tells that two rows would change one row of the table. Then not all was
    written."""

    written: Written
    gave_up: bool = False
    kinds: tuple[int, ...] = ()
    changes_twice: bool = False


_NOTHING = Written((), 0)


def with_owners_of(
    task: WriteSpec, name: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Runs in the task: the batches with each row's owner in the column `name`, or the key hash
    that gives the owner."""
    with sent_to_driver():
        yield from with_owners(batches, task, name)
    keep_modules()


def with_buckets_assigned(
    task: WriteSpec, hash_column: str, owner_column: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Runs in the task: the batches with each row's bucket in place of its assigner."""
    with sent_to_driver():
        yield from with_assigned_buckets(batches, task, hash_column, owner_column)
    keep_modules()


@dataclass(frozen=True)
class WriteTasks:
    """Runs in the task: writes all its rows, then returns the commit messages."""

    task: WriteSpec
    bucket_column: str | None
    hash_column: str | None
    order_column: str | None
    changed_once: tuple[str, ...]
    decimals: HashedDecimals
    reports: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row, with a TaskWritten, for all batches."""
        reporter = Reporter(self.reports, writes=True)
        changes = ChangedRows(self.changed_once) if self.changed_once else None
        batches = self.decimals.restored(gathered(_reported(batches, reporter)))
        try:
            with sent_to_driver():
                written = write_batches(
                    self.task,
                    batches if changes is None else _noted(batches, changes),
                    bucket_column=self.bucket_column,
                    hash_column=self.hash_column,
                    order_column=self.order_column,
                )
                result = TaskWritten(written)
        except TooManyPartitionsError:
            result = TaskWritten(_NOTHING, gave_up=True)
        except ChangedTwiceError:
            result = TaskWritten(_NOTHING, changes_twice=True)
        reporter.end()
        kinds = () if changes is None else tuple(changes.counts)
        yield result_batch(replace(result, kinds=kinds))
        keep_modules()


def _reported(batches: Iterable[pa.RecordBatch], reporter: Reporter) -> Iterator[pa.RecordBatch]:
    """The same batches; each is reported once the next one is asked for."""
    for batch in batches:
        yield batch
        reporter.add(batch.num_rows, batch.nbytes)


def _noted(batches: Iterable[pa.RecordBatch], changes: ChangedRows) -> Iterator[pa.RecordBatch]:
    """The same batches. Raises ChangedTwiceError for a row that they would change twice."""
    for batch in batches:
        changes.note(batch)
        yield batch
