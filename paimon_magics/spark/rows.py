"""Makes Spark DataFrames of Arrow tables, or without rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.spark.char_columns import with_char_columns
from paimon_magics.spark.types import spark_schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["frame_of_batch", "frame_of_count", "frame_of_rows", "frame_without_rows"]


def frame_of_rows(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """A frame of the rows of an Arrow table. Timestamps without a zone stay so, whatever zone the
    session has (`createDataFrame` alone would make instants of them)."""
    from pyspark.sql.pandas.types import from_arrow_schema

    # PySpark can't take a column without any chunk, and it loses the rows that follow an empty one.
    filled = [batch for batch in rows.to_batches() if batch.num_rows]
    if filled:
        rows = type(rows).from_batches(filled, rows.schema)
    elif not rows.num_rows:
        rows = rows.schema.empty_table()
    return spark.createDataFrame(
        rows, schema=from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    )


def frame_of_batch(
    spark: SparkSession, batch: pa.RecordBatch, columns: Sequence[Column]
) -> DataFrame:
    """A frame of rows as they were read of a table with `columns`, with the types that the table
    has in Spark. The batch may be empty."""
    import pyarrow as pa

    from paimon_magics.tables.reading.spark_batches import spark_batches

    found = pa.Table.from_batches(spark_batches(iter([batch]), 1))
    frame = spark.createDataFrame(found, schema=spark_schema(columns))
    return with_char_columns(frame, columns)


def frame_of_count(spark: SparkSession, rows: int) -> DataFrame:
    """A frame of so many rows without columns."""
    return spark.range(rows).select()


def frame_without_rows(spark: SparkSession) -> DataFrame:
    """The frame without columns that Spark returns for a statement without a result."""
    return spark.createDataFrame([], StructType([]))
