"""What the tasks of a job that writes do with the rows that come to them.

Light to import, because the tasks load it; what they need of Spark is imported in them.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass

import pyarrow as pa
from pyspark.sql import types as spark_types

from paimon_magics.errors import sent_to_driver
from paimon_magics.spark.columns import HashedDecimals
from paimon_magics.spark.task_reports import Reporter
from paimon_magics.tables.writing.changed_rows import ChangedRows, ChangedTwiceError
from paimon_magics.tables.writing.write_spec import WriteSpec, Written
from paimon_magics.tables.writing.writer import (
    TooManyPartitionsError,
    gathered,
    with_assigned_buckets,
    with_owners,
    write_batches,
)

WRITTEN = spark_types.StructType(
    [
        spark_types.StructField("messages", spark_types.ArrayType(spark_types.BinaryType())),
        spark_types.StructField("rows", spark_types.LongType()),
        spark_types.StructField("attempt", spark_types.IntegerType()),
        spark_types.StructField("index_files", spark_types.BinaryType()),
        spark_types.StructField("odd_floats", spark_types.ArrayType(spark_types.StringType())),
        spark_types.StructField("gave_up", spark_types.BooleanType()),
        spark_types.StructField("kinds", spark_types.ArrayType(spark_types.LongType())),
        spark_types.StructField("changes_twice", spark_types.BooleanType()),
        spark_types.StructField("unseen", spark_types.ArrayType(spark_types.LongType())),
        spark_types.StructField("losses", spark_types.BinaryType()),
    ]
)
"""The columns of the rows that WriteTasks return."""


@dataclass(frozen=True)
class OwnerTasks:
    """Runs in the task: computes each row's owner, or the key hash that gives the owner."""

    task: WriteSpec
    name: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches with the column."""
        from paimon_magics.spark.python_workers import keep_modules

        with sent_to_driver():
            yield from with_owners(batches, self.task, self.name)
        keep_modules()


@dataclass(frozen=True)
class AssignTasks:
    """Runs in the task: replaces each row's assigner with its bucket."""

    task: WriteSpec
    hash_column: str
    owner_column: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches with the buckets."""
        from paimon_magics.spark.python_workers import keep_modules

        hashed, owner = self.hash_column, self.owner_column
        with sent_to_driver():
            yield from with_assigned_buckets(batches, self.task, hashed, owner)
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
        """One row, of WRITTEN, for all batches."""
        from pyspark import TaskContext

        from paimon_magics.spark.python_workers import keep_modules

        context = TaskContext.get()
        assert context is not None
        reporter = Reporter(self.reports, writes=True)
        gave_up = changes_twice = False
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
        except TooManyPartitionsError:
            written, gave_up = Written((), 0), True
        except ChangedTwiceError:
            written, changes_twice = Written((), 0), True
        reporter.end()
        yield pa.RecordBatch.from_pydict(
            {
                "messages": [list(written.messages)],
                "rows": [written.rows],
                "attempt": [context.attemptNumber()],
                "index_files": [pickle.dumps(written.index_files)],
                "odd_floats": [sorted(written.odd_floats)],
                "gave_up": [gave_up],
                "kinds": [[] if changes is None else changes.counts],
                "changes_twice": [changes_twice],
                "unseen": [astuple(written.unseen)],
                "losses": [pickle.dumps(written.losses)],
            },
            schema=pa.schema(
                [
                    ("messages", pa.list_(pa.binary())),
                    ("rows", pa.int64()),
                    ("attempt", pa.int32()),
                    ("index_files", pa.binary()),
                    ("odd_floats", pa.list_(pa.string())),
                    ("gave_up", pa.bool_()),
                    ("kinds", pa.list_(pa.int64())),
                    ("changes_twice", pa.bool_()),
                    ("unseen", pa.list_(pa.int64())),
                    ("losses", pa.binary()),
                ]
            ),
        )
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
