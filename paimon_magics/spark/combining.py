"""Combines a table's frame with rows that Python already has, as Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from paimon_magics.spark.rows import frame_of_rows
from paimon_magics.statements.clauses.names import quoted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["last_rows", "rows_with_keys", "with_rows", "without_keys"]

_ORDER = "__paimon_magics_order"
_NUMBER = "__paimon_magics_number"


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


def last_rows(
    frame: DataFrame, keys: Sequence[str], sequence: Sequence[str], *, ascending: bool
) -> DataFrame:
    """Of the rows that are equal in the columns `keys` (NULL equals NULL) the one with the greatest
    `sequence`, without `ascending` with the least, and of those the last. NULL is less than all."""
    numbered = frame.withColumn(_ORDER, F.monotonically_increasing_id())
    columns = [F.col(quoted(name)) for name in sequence]
    order = [one.desc() if ascending else one.asc() for one in columns]
    window = Window.partitionBy(*(F.col(quoted(key)) for key in keys))
    number = F.row_number().over(window.orderBy(*order, F.col(_ORDER).desc()))
    return numbered.withColumn(_NUMBER, number).where(F.col(_NUMBER) == 1).drop(_ORDER, _NUMBER)
