"""How many rows go to Python at once while a statement writes, and that the session is left as it
was."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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
    [("id", 4096), ("id, string(id) AS v", 4096), ("id, binary(string(id)) AS v", 6000)],
)
def test_batches_have_at_most_4096_rows_unless_columns_are_binary(
    spark: SparkSession, columns: str, rows: int
) -> None:
    assert largest(spark, f"SELECT {columns} FROM range(0, 6000, 1, 1)") == rows


def test_smaller_batch_setting_of_session_is_kept(spark: SparkSession) -> None:
    before = spark.conf.get(ROWS)
    spark.conf.set(ROWS, "100")
    try:
        assert largest(spark, "SELECT id, string(id) AS v FROM range(0, 6000, 1, 1)") == 100
    finally:
        spark.conf.set(ROWS, before)


def test_last_of_overlapping_statements_restores_settings(
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


LIMITED = """
import sys

from pyspark.sql import SparkSession

import paimon_magics

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config(
        "spark.driver.extraJavaOptions",
        f"-Djava.io.tmpdir={sys.argv[1]} -Darrow.vector.max_allocation_bytes=1048576",
    )
    .config("spark.sql.warehouse.dir", f"{sys.argv[1]}/spark-warehouse")
    .config("spark.sql.execution.arrow.maxBytesPerBatch", "262144")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
session = paimon_magics.connect(f"{sys.argv[1]}/warehouse", spark=spark, coordinator="in-process")
session.run("CREATE TABLE t (k BIGINT, v STRING)")
session.run("INSERT INTO t SELECT id, repeat('x', 4096) FROM range(0, 2000, 1, 1)")
found = session.run("SELECT count(*) AS rows, sum(length(v)) AS length FROM t").to_arrow()
print(found.to_pylist())
print(session.run("UPDATE t SET v = concat(v, 'y') WHERE k >= 0").rows_updated)
session.close(stop_spark=True)
"""


def test_batches_with_too_large_values_are_sent_again_as_by_spark(tmp_path: Path) -> None:
    # What an Arrow column may hold is cut from 2 GiB to 1 MiB: no batch of 1,024 rows fits.
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    printed = ["[{'rows': 2000, 'length': 8192000}]", "2000"]
    assert done.stdout.splitlines() == printed, done.stderr[-2000:]
    files = list((tmp_path / "warehouse").glob("default.db/t/**/*.parquet"))
    assert len(files) == 2  # one of each statement: none is left of the attempts that failed
