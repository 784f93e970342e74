"""Rows of a frame into files: one Spark job whose tasks return commit messages.

Rows are shuffled so that one task owns a (partition, bucket), and within a bucket of a primary-key
table they arrive in the statement's order. Nothing is committed here; a job that fails leaves the
files of its finished tasks to the caller, who knows the transaction's prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types

from paimon_magics.tables.writing import WriteTask, Written

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["JobWritten", "write_frame"]

_BUCKET = "__paimon_magics_bucket"
_ORDINAL = "__paimon_magics_ordinal"

_WRITTEN = spark_types.StructType(
    [
        spark_types.StructField("messages", spark_types.ArrayType(spark_types.BinaryType())),
        spark_types.StructField("rows", spark_types.LongType()),
        spark_types.StructField("attempt", spark_types.IntegerType()),
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
    placed = _place(frame, task, slots=slots, keep_order=keep_order)
    rows = placed.mapInArrow(_WriteTasks(task), _WRITTEN).collect()
    speculative = (spark.conf.get("spark.speculation", "false") or "false") == "true"
    return JobWritten(
        written=Written(
            messages=tuple(bytes(message) for row in rows for message in row["messages"]),
            rows=sum(row["rows"] for row in rows),
        ),
        repeated_attempts=speculative or any(row["attempt"] > 0 for row in rows),
    )


def _place(frame: DataFrame, task: WriteTask, *, slots: int, keep_order: bool) -> DataFrame:
    partitions = list(task.partition_keys)
    if task.bucket_rule is None:
        # Spark sizes the partitions itself and splits skewed ones: several writers may share a
        # partition of an append table.
        return frame.hint("rebalance", *partitions) if partitions else frame
    schema = spark_types.StructType(
        [
            *frame.schema.fields,
            spark_types.StructField(_BUCKET, spark_types.IntegerType()),
            spark_types.StructField(_ORDINAL, spark_types.LongType()),
        ]
    )
    owners = [*partitions, _BUCKET]
    routed = frame.mapInArrow(_BucketTasks(task), schema).repartition(slots, *owners)
    return routed.sortWithinPartitions(*owners, _ORDINAL) if keep_order else routed


@dataclass(frozen=True)
class _BucketTasks:
    """Runs in the task: computes each row's bucket and ordinal."""

    task: WriteTask

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        from paimon_magics.tables.writing import with_buckets

        rule = self.task.bucket_rule
        context = TaskContext.get()
        assert rule is not None and context is not None
        # Only the key columns must have Paimon's exact types to be hashed.
        schema = self.task.arrow_schema()
        keys = schema.empty_table().select(list(rule.keys)).schema
        yield from with_buckets(batches, keys, rule, (_BUCKET, _ORDINAL), context.partitionId())


@dataclass(frozen=True)
class _WriteTasks:
    """Runs in the task: writes everything it is given, then hands over the messages."""

    task: WriteTask

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        from paimon_magics.tables.writing import write_batches

        context = TaskContext.get()
        assert context is not None
        written = write_batches(self.task, batches)
        yield pa.RecordBatch.from_pydict(
            {
                "messages": [list(written.messages)],
                "rows": [written.rows],
                "attempt": [context.attemptNumber()],
            },
            schema=pa.schema(
                [
                    ("messages", pa.list_(pa.binary())),
                    ("rows", pa.int64()),
                    ("attempt", pa.int32()),
                ]
            ),
        )
