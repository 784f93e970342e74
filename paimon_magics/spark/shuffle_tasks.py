"""Limits how many tasks a shuffle of few rows begins with.

A task that shuffles rows writes a file for each task that comes after it, 200 by default. Only then
does Spark let one task read several of them. For 200,000 rows the files take longer than the rows:
a third of a MERGE.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from pyspark.sql import SparkSession

from paimon_magics.spark.statement_settings import Values, statement_settings

__all__ = ["few_shuffle_tasks"]

_INITIAL = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
_USUAL = "spark.sql.shuffle.partitions"
_TASK_BYTES = 16 * 2**20  # a quarter of what Spark gives a task at least where it joins them
_TASKS_PER_SLOT = 4


def few_shuffle_tasks(
    spark: SparkSession, size_bytes: float | None, slots: int
) -> AbstractContextManager[None]:
    """Shuffles of the jobs in the body begin with as many tasks as `size_bytes` of rows need, at
    least some for each of the `slots`; None for a size that is not known. They are never more than
    the session's own number, and its `initialPartitionNum` counts where it is set."""
    if size_bytes is None:
        return nullcontext()
    tasks = max(slots * _TASKS_PER_SLOT, math.ceil(size_bytes / _TASK_BYTES))
    return statement_settings(spark, (_INITIAL,), partial(_fewer, spark, tasks))


def _fewer(spark: SparkSession, tasks: int, before: Values) -> Values:
    if before[_INITIAL] is not None or tasks >= int(spark.conf.get(_USUAL) or 0):
        return before
    return {_INITIAL: str(tasks)}
