"""The settings of a Spark session, many at once: one call of the JVM, or of the server."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from paimon_magics.spark.progress import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["settings_of"]

_KEY = re.compile(r"(?:\{|, )(spark\.[^=,\s]+)=")


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
