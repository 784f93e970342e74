"""A frame of the rows of some files as they are stored, with their kinds, file after file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from paimon_magics.columnar.merging import KIND
from paimon_magics.errors import sent_to_driver
from paimon_magics.planning.reads.splits import StoredFile
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.spark.task_reports import Reporter, reports_folder
from paimon_magics.spark.types import spark_schema
from paimon_magics.statements.data_types import AtomicType, contains_type
from paimon_magics.tables.reading.data_files import FileReader

if TYPE_CHECKING:
    import pyarrow as pa


def stored_rows_frame(
    spark: SparkSession,
    reader: FileReader,
    groups: Sequence[tuple[StoredFile, ...]],
    columns: Sequence[Column],
) -> DataFrame:
    """The rows of the files, a task for each group, with the column KIND after `columns`. Nothing
    runs yet."""
    variants = frozenset(column.name for column in columns if contains_type(column.type, "VARIANT"))
    work = _StoredRows(reader, tuple(groups), variants, reports_folder())
    tasks = spark.range(0, len(groups), 1, len(groups))
    return tasks.mapInArrow(work, spark_schema([*columns, Column(0, KIND, AtomicType("TINYINT"))]))


@dataclass(frozen=True)
class _StoredRows:
    """Runs in the task. The row that it is given is the number of a group of files."""

    reader: FileReader
    groups: tuple[tuple[StoredFile, ...], ...]
    variants: frozenset[str]
    reports: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from paimon_magics.spark.python_workers import keep_modules
        from paimon_magics.tables.reading.spark_batches import spark_batches

        reporter = Reporter(self.reports, writes=False)
        names = [*(one.name for one in self.reader.wanted), KIND]
        with sent_to_driver():
            for batch in batches:
                for group in batch.column(0).to_pylist():
                    rows = self._rows(group, names, reporter)
                    yield from spark_batches(rows, self.reader.batch_rows, self.variants)
        reporter.end()
        keep_modules()

    def _rows(self, group: int, names: list[str], reporter: Reporter) -> Iterator[pa.RecordBatch]:
        for file in self.groups[group]:
            for rows in self.reader.batches(file):
                reporter.add(rows.num_rows, 0)
                yield rows.select(names)
            reporter.add(0, file.size_bytes)
