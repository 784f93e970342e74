"""Rows of a frame into files: one Spark job whose tasks return commit messages.

Rows are shuffled so that one task owns a (partition, bucket), and within a bucket of a primary-key
table they arrive in the statement's order. Nothing is committed here; a job that fails leaves the
files of its finished tasks to the caller, who knows the transaction's prefix.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types

from paimon_magics.tables.writing import WriteTask, Written

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["JobWritten", "write_frame"]

_OWNER = "__paimon_magics_owner"
_ORDINAL = "__paimon_magics_ordinal"

_WRITTEN = spark_types.StructType(
    [
        spark_types.StructField("messages", spark_types.ArrayType(spark_types.BinaryType())),
        spark_types.StructField("rows", spark_types.LongType()),
        spark_types.StructField("attempt", spark_types.IntegerType()),
        spark_types.StructField("index_files", spark_types.BinaryType()),
    ]
)


@dataclass(frozen=True, slots=True)
class JobWritten:
    """What a job wrote; `repeated_attempts` tells that some task ran more than once, so that files
    of an attempt that did not count may lie about."""

    written: Written
    repeated_attempts: bool


def write_frame(
    spark: SparkSession, frame: DataFrame, task: WriteTask, *, slots: int, keep_order: bool
) -> JobWritten:
    """Run the job that writes `frame`, whose columns are the table's own.

    `slots` is how many tasks can run at once; `keep_order` is for primary-key tables whose last row
    of a key must win. Raises what Spark raises; then every file of the job is to be removed.
    """
    placed, bucket_column = _place(frame, task, slots=slots, keep_order=keep_order)
    rows = placed.mapInArrow(_WriteTasks(task, bucket_column), _WRITTEN).collect()
    speculative = (spark.conf.get("spark.speculation", "false") or "false") == "true"
    return JobWritten(
        written=Written(
            messages=tuple(bytes(message) for row in rows for message in row["messages"]),
            rows=sum(row["rows"] for row in rows),
            # Made by our own tasks a moment ago, and sent as Spark sends everything of theirs.
            index_files=tuple(
                one for row in rows for one in pickle.loads(bytes(row["index_files"]))
            ),
        ),
        repeated_attempts=speculative or any(row["attempt"] > 0 for row in rows),
    )


def _place(
    frame: DataFrame, task: WriteTask, *, slots: int, keep_order: bool
) -> tuple[DataFrame, str | None]:
    """The frame with its rows where they are to be written, and the column with their bucket where
    that is settled by then."""
    partitions = list(task.partition_keys)
    dynamic = task.dynamic_buckets
    if task.single_writer_rows_max is not None:
        schema = _with_columns(frame)
        # (Coalescing instead would give all source partitions one number, and run them in turn.)
        ordered = frame.mapInArrow(_OwnerTasks(task), schema).repartition(1)
        return ordered.sortWithinPartitions(_ORDINAL), None
    if task.bucket_rule is None and dynamic is None:
        if not partitions:
            return frame, None
        # Spark sizes the partitions itself and splits skewed ones: several writers may share a
        # partition of an append table.
        return frame.hint("rebalance", *partitions).sortWithinPartitions(*partitions), None
    schema = _with_columns(frame)
    owners = [*partitions, _OWNER]
    routed = frame.mapInArrow(_OwnerTasks(task), schema).repartition(slots, *owners)
    assigned = dynamic is not None and bool(dynamic.index)
    if assigned:
        # A known key may live in a bucket of another assigner: once more to the bucket's owner.
        # Where there is no index yet, all that an assigner places is its own.
        routed = routed.mapInArrow(_AssignTasks(task), schema).repartition(slots, *owners)
    order = [*owners, _ORDINAL] if keep_order else partitions
    placed = routed.sortWithinPartitions(*order) if order else routed
    return placed, _OWNER if assigned else None


def _with_columns(frame: DataFrame) -> spark_types.StructType:
    return spark_types.StructType(
        [
            *frame.schema.fields,
            spark_types.StructField(_OWNER, spark_types.IntegerType()),
            spark_types.StructField(_ORDINAL, spark_types.LongType()),
        ]
    )


@dataclass(frozen=True)
class _OwnerTasks:
    """Runs in the task: computes each row's owner and ordinal."""

    task: WriteTask

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        from paimon_magics.tables.writing import with_owners

        context = TaskContext.get()
        assert context is not None
        yield from with_owners(batches, self.task, (_OWNER, _ORDINAL), context.partitionId())


@dataclass(frozen=True)
class _AssignTasks:
    """Runs in the task: turns the rows' assigner into their bucket."""

    task: WriteTask

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from paimon_magics.tables.writing import with_assigned_buckets

        yield from with_assigned_buckets(batches, self.task, _OWNER)


@dataclass(frozen=True)
class _WriteTasks:
    """Runs in the task: writes everything it is given, then hands over the messages."""

    task: WriteTask
    bucket_column: str | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        from paimon_magics.tables.writing import write_batches

        context = TaskContext.get()
        assert context is not None
        written = write_batches(
            self.task,
            batches,
            bucket_column=self.bucket_column,
            in_partition_order=self.task.single_writer_rows_max is None,
        )
        yield pa.RecordBatch.from_pydict(
            {
                "messages": [list(written.messages)],
                "rows": [written.rows],
                "attempt": [context.attemptNumber()],
                "index_files": [pickle.dumps(written.index_files)],
            },
            schema=pa.schema(
                [
                    ("messages", pa.list_(pa.binary())),
                    ("rows", pa.int64()),
                    ("attempt", pa.int32()),
                    ("index_files", pa.binary()),
                ]
            ),
        )
