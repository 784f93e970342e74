"""Python stages of a job: over a frame whose columns have any names, or over numbers.

`DataFrame.mapInArrow` asks its frame for each column by its name as an expression, in which a dot
means a field of a struct: `a.b` is not found, or gives another value. A repeated name, ignoring
case, is ambiguous there. The columns of such frames are renamed for the transfer to the tasks,
which restore the names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paimon_magics.errors import sent_to_driver
from paimon_magics.spark.python_workers import keep_modules
from paimon_magics.spark.task_reports import Reporter, reports_folder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Work = Callable[["Iterator[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]


def map_in_arrow(frame: DataFrame, work: Work, schema: StructType | str) -> DataFrame:
    """Return `frame.mapInArrow(work, schema)`; the columns may have any names."""
    names = frame.columns
    are_unique = len({name.lower() for name in names}) == len(names)
    if are_unique and not any("." in name or "`" in name for name in names):
        return frame.mapInArrow(work, schema)
    numbered = frame.toDF(*(f"c{place}" for place in range(len(names))))
    return numbered.mapInArrow(_UnderNames(work, tuple(names)), schema)


@dataclass(frozen=True)
class _UnderNames:
    """Runs `work` on batches whose columns it renames to `names` first."""

    work: Work
    names: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.work(batch.rename_columns(list(self.names)) for batch in batches)


NumberedWork = Callable[[int, Reporter], "Iterator[pa.RecordBatch]"]
"""Work of one task, by the task's number; picklable. It reports what it reads."""


def numbered_tasks(
    spark: SparkSession, count: int, work: NumberedWork, schema: StructType
) -> DataFrame:
    """The rows that `work` returns in each of the numbered tasks. Nothing runs yet."""
    tasks = _NumberedTasks(work, reports_folder())
    return spark.range(0, count, 1, count).mapInArrow(tasks, schema)


@dataclass(frozen=True)
class _NumberedTasks:
    """Runs in the task, whose row is its number."""

    work: NumberedWork
    reports: str

    @property
    def __name__(self) -> str:
        """The name that Spark's plans show: that of the work."""
        return getattr(self.work, "__name__", type(self.work).__name__)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reporter = Reporter(self.reports, writes=False)
        with sent_to_driver():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from self.work(number, reporter)
        reporter.end()
        keep_modules()
