"""Settings of a Spark session that hold while a statement runs.

Threads of one session may run statements at the same time: they share the values that the first of
them has set, and the last one sets back what was there before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

__all__ = ["Values", "statement_settings"]

Values = Mapping[str, str | None]
"""Values of settings by key; None for a setting that has none."""

_lock = threading.Lock()
_open: WeakKeyDictionary[SparkSession, dict[tuple[str, ...], tuple[int, Values]]] = (
    WeakKeyDictionary()
)
"""How many statements of a session have set these keys, and their values before the first."""


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
