"""Runs units of work as the tasks of one Spark job: each task returns one result to the driver.

A unit reads and writes files itself; no rows pass through the JVM.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import Row, SparkSession
from pyspark.sql import types as spark_types

from paimon_magics.planning.writes.losses import ColumnLoss, added_losses
from paimon_magics.spark.arrow_stages import numbered_tasks
from paimon_magics.spark.task_reports import Reporter
from paimon_magics.tables.writing.row_counters import LossyRows

RESULT_SCHEMA = spark_types.StructType(
    [
        spark_types.StructField("result", spark_types.BinaryType()),
        spark_types.StructField("attempt", spark_types.IntegerType()),
    ]
)
_T = TypeVar("_T", covariant=True)


class TaskUnits(Protocol[_T]):
    """Work in numbered units; picklable, as are its results."""

    @property
    def count(self) -> int:
        """The number of units."""

    def run(self, number: int, report: Callable[[int, int], None], /) -> _T:
        """Run a unit. It reports the rows and bytes that it has read as it goes on."""


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
    frame = numbered_tasks(spark, units.count, partial(_run_unit, units), RESULT_SCHEMA)
    return unit_results(spark, frame.collect())


def _run_unit(
    units: TaskUnits[object], number: int, reporter: Reporter
) -> Iterator[pa.RecordBatch]:
    yield result_batch(units.run(number, reporter.add))


def unit_results(
    spark: SparkSession, rows: Sequence[Row], *, repeated: bool = False
) -> UnitResults[Any]:
    """The results in the rows that tasks have returned as `result_batch`es. `repeated` tells that
    some tasks have run before."""
    # Safe to unpickle: made by our own tasks a moment ago, and sent by Spark.
    loaded = [pickle.loads(bytes(row["result"])) for row in rows]
    results = tuple(result for result in loaded if not isinstance(result, LossyRows))
    losses = added_losses(
        loss for result in loaded if isinstance(result, LossyRows) for loss in result.counts
    )
    speculates = (spark.conf.get("spark.speculation", "false") or "false") == "true"
    repeats = repeated or speculates or any(row["attempt"] > 0 for row in rows)
    return UnitResults(results, repeats, losses)


def result_batch(result: object) -> pa.RecordBatch:
    """A row of RESULT_SCHEMA with the result of this task's work."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return pa.RecordBatch.from_pydict(
        {
            "result": pa.array([pickle.dumps(result)], pa.binary()),
            "attempt": pa.array([context.attemptNumber()], pa.int32()),
        }
    )
