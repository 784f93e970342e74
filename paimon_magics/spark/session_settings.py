"""Settings of a Spark session: read at once, held while a statement runs."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from paimon_magics.columnar.time_zones import UTC, arrow_zone
from paimon_magics.spark.progress import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_KEY = re.compile(r"(?:\{|, )(spark\.[^=,\s]+)=")


Values = Mapping[str, str | None]
"""Values of settings by key; None for a setting that has none."""

_lock = threading.Lock()
_open: WeakKeyDictionary[SparkSession, dict[tuple[str, ...], tuple[int, Values]]] = (
    WeakKeyDictionary()
)
"""How many statements of a session have set these keys, and their values before the first."""


_INITIAL = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
_USUAL = "spark.sql.shuffle.partitions"
_TASK_BYTES = 16 * 2**20  # a quarter of what Spark gives a task at least where it joins them
_TASKS_PER_SLOT = 4


def settings_of(
    spark: SparkSession, keys: Collection[str], prefix: str | None = None
) -> dict[str, str]:
    """The settings among `keys`, and those that begin with `prefix`, that have been set: when Spark
    was started, by SET, or by `spark.conf.set`."""

    def is_asked(key: str) -> bool:
        return key in keys or (prefix is not None and key.startswith(prefix))

    if is_connect(spark):
        return {key: value for key, value in spark.conf.getAll.items() if is_asked(key)}
    # PySpark's `getAll` takes three calls for each setting. A text of all of them takes one, and
    # tells which ones there may be: their values are asked for.
    conf: Any = spark.conf
    text = str(conf._jconf.getAllAsJava().toString())
    found: dict[str, str] = {}
    for key in dict.fromkeys(_KEY.findall(text)):
        if is_asked(key):
            value = spark.conf.get(key, None)
            if value is not None:
                found[key] = value
    return found


# Settings of a Spark session that hold while a statement runs.
#
# Threads of one session may run statements at the same time: they share the values that the first
# of them has set, and the last one sets back what was there before.


@contextmanager
def statement_settings(
    spark: SparkSession, keys: tuple[str, ...], chosen: Callable[[Values], Values]
) -> Iterator[None]:
    """In the body the settings `keys` have the values that `chosen` makes of theirs."""
    with _lock:
        of_session = _open.setdefault(spark, {})
        users, before = of_session.get(keys, (0, {}))
        if not users:
            before = {key: _value(spark, key) for key in keys}
            _set(spark, chosen(before))
        of_session[keys] = users + 1, before
    try:
        yield
    finally:
        with _lock:
            users, before = of_session.pop(keys)
            if users > 1:
                of_session[keys] = users - 1, before
            else:
                _set(spark, before)


def _value(spark: SparkSession, key: str) -> str | None:
    try:
        return spark.conf.get(key, None)
    except PySparkException:
        return None


def _set(spark: SparkSession, values: Values) -> None:
    for key, value in values.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


# The time zone of a Spark session, which SET can change at any time.


def session_zone(spark: SparkSession) -> str:
    """The current `spark.sql.session.timeZone`, by the name that Arrow and Python use."""
    return arrow_zone(spark.conf.get("spark.sql.session.timeZone") or UTC)


# Limits how many tasks a shuffle of few rows begins with.
#
# A task that shuffles rows writes a file for each task that comes after it, 200 by default. Only
# then does Spark let one task read several of them. For 200,000 rows the files take longer than the
# rows: a third of a MERGE.


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
