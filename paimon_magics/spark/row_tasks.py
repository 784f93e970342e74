"""Frames whose rows our own tasks read: one task for each numbered part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from paimon_magics.columnar.merging import KIND
from paimon_magics.planning.reads.splits import StoredFile
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.spark.arrow_stages import NumberedWork, numbered_tasks
from paimon_magics.spark.task_reports import Reporter
from paimon_magics.spark.types import spark_schema, variant_columns
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.tables.reading.data_files import FileReader
from paimon_magics.tables.reading.spark_batches import spark_batches


def rows_of_parts(
    spark: SparkSession,
    parts: int,
    work: NumberedWork,
    columns: Sequence[Column],
    batch_rows: int,
) -> DataFrame:
    """The rows, with `columns`, that `work` reads of each part, by its number. Nothing runs yet."""
    rows = _SparkRows(work, batch_rows, variant_columns(columns))
    return numbered_tasks(spark, parts, rows, spark_schema(columns))


@dataclass(frozen=True)
class _SparkRows:
    """Runs in the task: the rows of a part in batches of Spark's types."""

    work: NumberedWork
    batch_rows: int
    variants: frozenset[str]

    @property
    def __name__(self) -> str:
        """The name that Spark's plans show: that of the work."""
        return type(self.work).__name__

    def __call__(self, part: int, reporter: Reporter) -> Iterator[pa.RecordBatch]:
        return spark_batches(self.work(part, reporter), self.batch_rows, self.variants)


# The rows of some files as they are stored, with their kinds, file after file.


def stored_rows_frame(
    spark: SparkSession,
    reader: FileReader,
    groups: Sequence[tuple[StoredFile, ...]],
    columns: Sequence[Column],
) -> DataFrame:
    """The rows of the files, a task for each group, with the column KIND after `columns`. Nothing
    runs yet."""
    work = _StoredRows(reader, tuple(groups))
    shown = [*columns, Column(0, KIND, AtomicType("TINYINT"))]
    return rows_of_parts(spark, len(groups), work, shown, reader.batch_rows)


@dataclass(frozen=True)
class _StoredRows:
    """Runs in the task: reads a group of files."""

    reader: FileReader
    groups: tuple[tuple[StoredFile, ...], ...]

    def __call__(self, group: int, reporter: Reporter) -> Iterator[pa.RecordBatch]:
        names = [*(column.name for column in self.reader.wanted), KIND]
        for file in self.groups[group]:
            for rows in self.reader.batches(file):
                reporter.add(rows.num_rows, 0)
                yield rows.select(names)
            reporter.add(0, file.size_bytes)
