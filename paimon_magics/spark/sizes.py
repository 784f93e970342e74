"""How much a query is going to give, as far as Spark knows before it runs."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

__all__ = ["estimated_bytes"]

_SIZE = re.compile(r"Statistics\(sizeInBytes=([\d.]+(?:E\+?\d+)?) (\w+)")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def estimated_bytes(spark: SparkSession, frame: DataFrame) -> float | None:
    """Spark's estimate of the rows of `frame` in bytes; None where it has none.

    Runs no job. The estimate is good for scans and ranges, and far too high after most joins.
    """
    try:
        # With the text of a plan: the public interface has no other place for statistics.
        plan = spark.sql("EXPLAIN COST SELECT * FROM {rows}", rows=frame).collect()[0][0]
    except PySparkException:
        return None
    found = _SIZE.search(plan)
    if found is None or found[2] not in _UNITS:
        return None
    return float(found[1]) * 1024.0 ** _UNITS.index(found[2])
