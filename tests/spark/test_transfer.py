"""How many rows go to Python at once while a statement writes, and that the session is left as it
was."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

from paimon_magics.spark.transfer import small_batches

pytestmark = pytest.mark.spark

ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


def schema(text: str) -> spark_types.StructType:
    return spark_types.StructType.fromDDL(text)


def largest(spark: SparkSession, query: str) -> int:
    """How many rows the largest batch has that Python gets of the query."""

    def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"rows": pa.array([max(batch.num_rows for batch in batches)])})

    frame = spark.sql(query)
    with small_batches(spark, frame.schema):
        (row,) = frame.mapInArrow(sizes, "rows long").collect()
    return int(row["rows"])


@pytest.mark.parametrize(
    ("columns", "rows"),
    [("id", 4096), ("id, string(id) AS v", 1024), ("id, binary(string(id)) AS v", 6000)],
)
def test_batches_have_few_rows_fewer_with_texts_and_spark_bounds_what_is_wide(
    spark: SparkSession, columns: str, rows: int
) -> None:
    assert largest(spark, f"SELECT {columns} FROM range(0, 6000, 1, 1)") == rows


def test_a_session_that_wants_fewer_rows_gets_them(spark: SparkSession) -> None:
    before = spark.conf.get(ROWS)
    spark.conf.set(ROWS, "100")
    try:
        assert largest(spark, "SELECT id, string(id) AS v FROM range(0, 6000, 1, 1)") == 100
    finally:
        spark.conf.set(ROWS, before)


def test_the_settings_are_what_they_were_after_the_last_of_several_statements(
    spark: SparkSession,
) -> None:
    before = spark.conf.get(ROWS), spark.conf.get(BYTES, None)
    with small_batches(spark, schema("k BIGINT")):
        with small_batches(spark, schema("k BIGINT, v STRING")):
            pass
        assert spark.conf.get(ROWS) == "4096"
        with small_batches(spark, schema("k BIGINT, v BINARY")):
            assert spark.conf.get(ROWS) == "4096"
    assert (spark.conf.get(ROWS), spark.conf.get(BYTES, None)) == before
