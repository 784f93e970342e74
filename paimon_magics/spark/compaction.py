"""Runs units of a compaction as one Spark job. A unit is a small picklable value, and so is what
comes back; what is done with one is a callable that is sent along.

A task takes several units, so that there are few Python tasks and all are busy to the end.
"""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from paimon_magics.errors import sent_to_driver

__all__ = ["UnitsDone", "run_units"]

_TASKS_A_SLOT = 3  # so that a slot that is done early takes over
_RESULT = "unit binary, attempt int"
_ARROW = pa.schema([("unit", pa.binary()), ("attempt", pa.int32())])

_U = TypeVar("_U")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class UnitsDone(Generic[_R]):
    """The results of a job's units, in any order. `repeated_attempts` tells that a task may have
    run more than once, so that files of an attempt that did not count may be left."""

    results: tuple[_R, ...]
    repeated_attempts: bool


def run_units(
    spark: SparkSession,
    work: Callable[[_U], _R],
    units: Sequence[_U],
    *,
    slots: int,
    size_bytes: Callable[[_U], int],
) -> UnitsDone[_R]:
    """Run `work` on each unit in the tasks of a job, of which `slots` run at once.

    Raises what Spark raises; the caller must then remove every file of the job.
    """
    groups = _groups(units, slots * _TASKS_A_SLOT, size_bytes)
    if not groups:
        return UnitsDone((), repeated_attempts=False)
    tasks = _UnitTasks(work, tuple(pickle.dumps(group) for group in groups))
    numbers = spark.range(0, len(groups), 1, len(groups))
    rows = numbers.mapInArrow(tasks, _RESULT).collect()
    is_speculative = (spark.conf.get("spark.speculation", "false") or "false") == "true"
    return UnitsDone(
        # Safe to unpickle: made by our own tasks a moment ago, and sent by Spark.
        results=tuple(pickle.loads(bytes(row["unit"])) for row in rows),
        repeated_attempts=is_speculative or any(row["attempt"] > 0 for row in rows),
    )


def _groups(
    units: Sequence[_U], groups_max: int, size_bytes: Callable[[_U], int]
) -> list[list[_U]]:
    """Units in at most `groups_max` groups of similar size, the largest group first."""
    groups: list[list[_U]] = [[] for _ in range(min(groups_max, len(units)))]
    sizes = [(0, number) for number in range(len(groups))]
    for unit in sorted(units, key=size_bytes, reverse=True):
        size, number = heapq.heappop(sizes)
        groups[number].append(unit)
        heapq.heappush(sizes, (size + size_bytes(unit), number))
    return [groups[number] for _, number in sorted(sizes, key=lambda one: (-one[0], one[1]))]


@dataclass(frozen=True)
class _UnitTasks:
    """Runs in the task: works on the units of the groups whose numbers it gets."""

    work: Callable[[Any], Any]
    groups: tuple[bytes, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        from paimon_magics.spark.python_workers import keep_modules

        context = TaskContext.get()
        assert context is not None
        with sent_to_driver():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    # Made by `run_units`, on the driver of this very job.
                    for unit in pickle.loads(self.groups[number]):
                        result = pickle.dumps(self.work(unit))
                        yield pa.RecordBatch.from_pydict(
                            {"unit": [result], "attempt": [context.attemptNumber()]}, _ARROW
                        )
        keep_modules()
