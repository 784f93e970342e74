"""Runs units of work as the tasks of one Spark job: each task returns one result to the driver.

A unit reads and writes files by itself; no rows pass through the JVM.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pyspark.sql import Row, SparkSession
from pyspark.sql import types as spark_types

from paimon_magics.errors import sent_to_driver
from paimon_magics.planning.writes.losses import ColumnLoss, added_losses
from paimon_magics.spark.task_reports import Reporter, reports_folder
from paimon_magics.tables.writing.changed_rows import LossyRows

if TYPE_CHECKING:
    import pyarrow as pa

RESULT_SCHEMA = spark_types.StructType(
    [
        spark_types.StructField("result", spark_types.BinaryType()),
        spark_types.StructField("attempt", spark_types.IntegerType()),
    ]
)
_T = TypeVar("_T", covariant=True)


class _Told(Protocol):
    def __call__(self, rows: int, size_bytes: int) -> None: ...


class TaskUnits(Protocol[_T]):
    """Work in numbered units; picklable, as are its results."""

    @property
    def count(self) -> int:
        """The number of units."""

    def run(self, number: int, told: _Told) -> _T:
        """Run a unit. It tells the rows and bytes that it has read as it goes on."""


@dataclass(frozen=True, slots=True)
class UnitResults(Generic[_T]):
    """The results of all units, by their numbers. `repeated_attempts` tells that a task may have
    run more than once, so that files of an attempt that did not count may be left. `losses` are the
    values that were rounded or cut, where the units change rows."""

    results: tuple[_T, ...]
    repeated_attempts: bool
    losses: tuple[ColumnLoss, ...] = ()


def run_units(spark: SparkSession, units: TaskUnits[_T]) -> UnitResults[_T]:
    """Run each unit as a task. Raises what Spark raises."""
    frame = spark.range(0, units.count, 1, units.count)
    work = _UnitTasks(units, reports_folder())
    return unit_results(spark, frame.mapInArrow(work, RESULT_SCHEMA).collect())


def unit_results(
    spark: SparkSession, rows: Sequence[Row], *, repeated: bool = False
) -> UnitResults[Any]:
    """The results in the rows that tasks have returned as `result_batch`es. `repeated` tells that
    some tasks have run before."""
    # Safe to unpickle: made by our own tasks a moment ago, and sent by Spark.
    every = [pickle.loads(bytes(row["result"])) for row in rows]
    found = tuple(one for one in every if not isinstance(one, LossyRows))
    losses = added_losses(
        loss for one in every if isinstance(one, LossyRows) for loss in one.counts
    )
    speculates = (spark.conf.get("spark.speculation", "false") or "false") == "true"
    repeats = repeated or speculates or any(row["attempt"] > 0 for row in rows)
    return UnitResults(found, repeats, losses)


def result_batch(result: object) -> pa.RecordBatch:
    """A row of RESULT_SCHEMA with the result of this task's work."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return pa.RecordBatch.from_pydict(
        {
            "result": pa.array([pickle.dumps(result)], pa.binary()),
            "attempt": pa.array([context.attemptNumber()], pa.int32()),
        }
    )


@dataclass(frozen=True)
class _UnitTasks(Generic[_T]):
    """Runs in the task. The row that it is given is the number of the unit."""

    units: TaskUnits[_T]
    reports: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from paimon_magics.spark.python_workers import keep_modules

        reporter = Reporter(self.reports, writes=False)
        with sent_to_driver():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    result = self.units.run(number, reporter.add)
                    yield result_batch(result)
        reporter.end()
        keep_modules()
