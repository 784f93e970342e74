"""A read plan as one lazy Spark DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from paimon_magics.planning.definitions import Column
from paimon_magics.planning.reads import RawScan, ReadPlan
from paimon_magics.spark.types import spark_schema, spark_type
from paimon_magics.statements.names import quoted
from paimon_magics.tables.native import NativeTable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read_frame"]

_DISCOVERY_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"


def read_frame(
    spark: SparkSession,
    plan: ReadPlan,
    columns: Sequence[Column],
    table: NativeTable,
    batch_rows: int,
) -> DataFrame:
    """The rows that `plan` reads, with exactly `columns`; nothing runs yet."""
    frames = [_raw(spark, scan) for scan in plan.raw_scans]
    if plan.merges:
        frames.append(_merged(spark, plan, columns, table, batch_rows))
    if not frames:
        return spark.createDataFrame([], schema=spark_schema(columns))
    return reduce(DataFrame.unionAll, frames)


def _raw(spark: SparkSession, scan: RawScan) -> DataFrame:
    stored = [
        Column(id=0, name=raw.stored_name, type=raw.stored_type)
        for raw in scan.columns
        if raw.stored_name is not None
    ]
    # Paths are names from the manifests, never patterns.
    reader = spark.read.schema(spark_schema(stored)).option("__globPaths__", "false")
    # Above the threshold Spark would start a job only to look at the files.
    with _setting(spark, _DISCOVERY_THRESHOLD, str(len(scan.paths) + 1)):
        frame = reader.format(scan.format).load(list(scan.paths))
    if all(raw.stored_name == raw.column.name and raw.stored_type == raw.column.type
           for raw in scan.columns):  # fmt: skip
        return frame
    return frame.select(
        *(
            (F.lit(None) if raw.stored_name is None else frame[quoted(raw.stored_name)])
            .cast(spark_type(raw.column.type))
            .alias(raw.column.name)
            for raw in scan.columns
        )
    )


def _merged(
    spark: SparkSession,
    plan: ReadPlan,
    columns: Sequence[Column],
    table: NativeTable,
    batch_rows: int,
) -> DataFrame:
    work = _MergeTasks(
        table=table,
        columns=tuple(column.name for column in columns),
        bodies=tuple(tuple(split.body for split in task) for task in plan.merges),
        batch_rows=batch_rows,
    )
    tasks = len(work.bodies)
    return spark.range(0, tasks, 1, tasks).mapInArrow(work, spark_schema(columns))


@dataclass(frozen=True)
class _MergeTasks:
    """Runs in the task: the row that it is given says which group of splits to read."""

    table: NativeTable
    columns: tuple[str, ...]
    bodies: tuple[tuple[bytes, ...], ...]
    batch_rows: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from paimon_magics.tables.reading import read_splits

        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from read_splits(self.table, self.columns, self.bodies[task], self.batch_rows)


@contextmanager
def _setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    before = spark.conf.get(key, None)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        restore: Callable[[], None] = (
            (lambda: spark.conf.unset(key))
            if before is None
            else (lambda: spark.conf.set(key, before))
        )
        restore()
