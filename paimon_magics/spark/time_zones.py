"""The time zone of a Spark session, which SET can change at any time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paimon_magics.columnar.time_zones import UTC, arrow_zone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["session_zone"]


def session_zone(spark: SparkSession) -> str:
    """The current `spark.sql.session.timeZone`, by the name that Arrow and Python use."""
    return arrow_zone(spark.conf.get("spark.sql.session.timeZone") or UTC)
