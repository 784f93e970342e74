"""Combines a table's frame with rows that Python already has, as Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from paimon_magics.spark.rows import frame_of_rows
from paimon_magics.statements.clauses.names import quoted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["rows_with_keys", "with_rows", "without_keys"]


def with_rows(spark: SparkSession, frame: DataFrame, rows: pa.Table) -> DataFrame:
    """The frame's rows followed by `rows`, with the frame's columns and types."""
    more = frame_of_rows(spark, rows.select(frame.columns))
    columns = [
        F.col(quoted(field.name)).cast(field.dataType).alias(field.name)
        for field in frame.schema.fields
    ]
    return frame.unionAll(more.select(*columns))


def without_keys(spark: SparkSession, frame: DataFrame, keys: pa.Table) -> DataFrame:
    """The frame's rows whose key is not in `keys`. Key columns are never NULL."""
    return _joined(spark, frame, keys, "left_anti")


def rows_with_keys(spark: SparkSession, frame: DataFrame, keys: pa.Table) -> pa.Table:
    """The frame's rows whose key is in `keys`. Runs a job."""
    return _joined(spark, frame, keys, "left_semi").toArrow()


def _joined(spark: SparkSession, frame: DataFrame, keys: pa.Table, how: str) -> DataFrame:
    names: Sequence[str] = keys.schema.names
    given = F.broadcast(frame_of_rows(spark, keys).distinct())
    return frame.join(given, list(names), how).select(*(frame[quoted(c)] for c in frame.columns))
