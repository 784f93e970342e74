"""Makes Spark DataFrames of Arrow tables, or without rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.spark.types import spark_schema, with_char_columns
from paimon_magics.statements.clauses.names import quoted

if TYPE_CHECKING:
    import pyarrow as pa


_ORDER = "__paimon_magics_order"
_NUMBER = "__paimon_magics_number"


def frame_of_rows(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """A frame of the rows of an Arrow table. Timestamps without a zone stay so, whatever the
    session's zone is (`createDataFrame` alone would convert them to instants)."""
    from pyspark.sql.pandas.types import from_arrow_schema

    # PySpark can't take a column without any chunk, and it loses the rows that follow an empty one.
    filled = [batch for batch in rows.to_batches() if batch.num_rows]
    if filled:
        rows = type(rows).from_batches(filled, rows.schema)
    elif not rows.num_rows:
        rows = rows.schema.empty_table()
    return spark.createDataFrame(
        _copied_slices(rows), schema=from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    )


def frame_of_batch(
    spark: SparkSession, batch: pa.RecordBatch, columns: Sequence[Column]
) -> DataFrame:
    """A frame of rows as they were read of a table with `columns`, with the types that the table
    has in Spark. The batch may be empty."""
    import pyarrow as pa

    from paimon_magics.tables.reading.spark_batches import spark_batches

    rows = pa.Table.from_batches(spark_batches(iter([batch]), 1))
    frame = spark.createDataFrame(_copied_slices(rows), schema=spark_schema(columns))
    return with_char_columns(frame, columns)


def _copied_slices(rows: pa.Table) -> pa.Table:
    """The same rows. Arrays that are parts of others are copied: PySpark takes arrays of Arrow
    apart and can't put together one that has NULLs and begins within another."""
    import numpy as np

    for at, column in enumerate(rows.columns):
        if any(_has_slice(chunk) for chunk in column.chunks):
            copied = column.take(np.arange(len(column)))
            rows = rows.set_column(at, rows.schema.field(at), copied)
    return rows


def _has_slice(values: pa.Array) -> bool:
    """Whether a nested array, or one in it, is a part of another."""
    import pyarrow.types as kinds

    kind = values.type
    if kinds.is_struct(kind):
        return any(_has_slice(values.field(at)) for at in range(kind.num_fields))
    if not (kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_map(kind)):
        return False
    return bool(values.offset) or _has_slice(values.values)


def frame_of_count(spark: SparkSession, rows: int) -> DataFrame:
    """A frame of this number of rows without columns."""
    return spark.range(rows).select()


def frame_without_rows(spark: SparkSession) -> DataFrame:
    """The frame without columns that Spark returns for a statement without a result."""
    return spark.createDataFrame([], StructType([]))


# Combines a table's frame with rows that Python already has, as Arrow.


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
    wanted = F.broadcast(frame_of_rows(spark, keys).distinct())
    return frame.join(wanted, list(names), how).select(*(frame[quoted(c)] for c in frame.columns))


def last_rows(
    frame: DataFrame, keys: Sequence[str], sequence: Sequence[str], *, ascending: bool
) -> DataFrame:
    """Of the rows that are equal in the columns `keys` (NULL equals NULL), the row with the
    greatest `sequence`, or without `ascending` with the least; among equals, the last row. NULL is
    less than all."""
    numbered = frame.withColumn(_ORDER, F.monotonically_increasing_id())
    columns = [F.col(quoted(name)) for name in sequence]
    order = [column.desc() if ascending else column.asc() for column in columns]
    window = Window.partitionBy(*(F.col(quoted(key)) for key in keys))
    number = F.row_number().over(window.orderBy(*order, F.col(_ORDER).desc()))
    return numbered.withColumn(_NUMBER, number).where(F.col(_NUMBER) == 1).drop(_ORDER, _NUMBER)
