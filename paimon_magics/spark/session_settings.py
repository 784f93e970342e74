"""Settings of a Spark session: read together, held while a statement runs."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from paimon_magics.columnar.time_zones import UTC, arrow_zone, is_learned, learn
from paimon_magics.spark.jvm import is_connect, settings_text, zone_transitions_text

_KEY = re.compile(r"(?:\{|, )(spark\.[^=,\s]+)=")


Values = Mapping[str, str | None]
"""Values of settings by key; None for a setting that has none."""


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
    # PySpark's `getAll` takes three calls for each setting. A text of all settings takes one call
    # and shows which settings may exist; only their values are requested.
    keys_set = dict.fromkeys(filter(is_asked, _KEY.findall(settings_text(spark))))
    values = ((key, spark.conf.get(key, None)) for key in keys_set)
    return {key: value for key, value in values if value is not None}


# Settings of a Spark session that hold while a statement runs.
#
# Threads of one session may run statements at the same time: they share the values set by the first
# statement, and the last statement restores the previous values.


class _SharedSettings:
    """The settings that the running statements of one session have set: how many statements have
    set the same keys, and the values before the first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: dict[tuple[str, ...], tuple[int, Values]] = {}

    @classmethod
    def of(cls, spark: SparkSession) -> _SharedSettings:
        """Those of a session, which keeps them."""
        shared: _SharedSettings = vars(spark).setdefault(_SHARED, cls())
        return shared

    def hold(
        self, spark: SparkSession, keys: tuple[str, ...], chosen: Callable[[Values], Values]
    ) -> None:
        """Set the values, unless another statement has."""
        with self._lock:
            users, before = self._users.get(keys, (0, {}))
            if not users:
                before = {key: _value(spark, key) for key in keys}
                _set(spark, chosen(before))
            self._users[keys] = users + 1, before

    def release(self, spark: SparkSession, keys: tuple[str, ...]) -> None:
        """Set the values back, unless another statement needs them."""
        with self._lock:
            users, before = self._users.pop(keys)
            if users > 1:
                self._users[keys] = users - 1, before
            else:
                _set(spark, before)


_SHARED = "_paimon_magics_shared_settings"


@contextmanager
def statement_settings(
    spark: SparkSession, keys: tuple[str, ...], chosen: Callable[[Values], Values]
) -> Iterator[None]:
    """In the body the settings `keys` have the values that `chosen` makes of theirs."""
    shared = _SharedSettings.of(spark)
    shared.hold(spark, keys, chosen)
    try:
        yield
    finally:
        shared.release(spark, keys)


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
    """The current `spark.sql.session.timeZone`, by the name that Arrow and Python use. Its clocks
    in this process are then those of the JVM."""
    zone = arrow_zone(spark.conf.get("spark.sql.session.timeZone") or UTC)
    if not is_learned(zone) and not is_connect(spark):
        learn(zone, zone_transitions_text(spark, zone))
    return zone


# Limits how many tasks a shuffle of few rows begins with.
#
# A task that shuffles rows writes a file for each task that comes after it, 200 by default. Only
# then does Spark let one task read several of them. For 200,000 rows the files take longer than the
# rows: a third of a MERGE.


def few_shuffle_tasks(
    spark: SparkSession, size_bytes: float | None, slots: int
) -> AbstractContextManager[None]:
    """Shuffles of the jobs in the body begin with as many tasks as `size_bytes` of rows need, at
    least some for each of the `slots`; None for a size that is not known. They never exceed the
    session's own number; the session's `initialPartitionNum` takes precedence if it is set."""
    if size_bytes is None:
        return nullcontext()
    tasks = max(slots * _TASKS_PER_SLOT, math.ceil(size_bytes / _TASK_BYTES))
    return statement_settings(spark, (_INITIAL,), partial(_fewer, spark, tasks))


def _fewer(spark: SparkSession, tasks: int, before: Values) -> Values:
    if before[_INITIAL] is not None or tasks >= int(spark.conf.get(_USUAL) or 0):
        return before
    return {_INITIAL: str(tasks)}
