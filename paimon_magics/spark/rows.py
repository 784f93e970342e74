"""Rows that are here already, or none, as a Spark DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["frame_of_rows", "frame_without_rows"]


def frame_of_rows(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """A frame of Arrow's rows. Timestamps without a zone stay so, whatever zone the session has
    (`createDataFrame` alone would make instants of them)."""
    from pyspark.sql.pandas.types import from_arrow_schema

    if not rows.num_rows:
        rows = rows.schema.empty_table()  # PySpark can't take a column without any chunk
    return spark.createDataFrame(
        rows, schema=from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    )


def frame_without_rows(spark: SparkSession) -> DataFrame:
    """The frame that Spark gives back for a statement that has no rows: without columns."""
    return spark.createDataFrame([], StructType([]))
