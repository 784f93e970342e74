"""The format `paimon` without a session of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import paimon_magics
from paimon_magics.errors import InvalidValueError, StatementError, UnsupportedStatementError
from tests.session.half_checkpoints import leave_half_a_write
from tests.session.spark_settings import settings

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def registered(spark: SparkSession, warehouse: Path) -> Iterator[SparkSession]:
    paimon_magics.register(spark, warehouse, coordinator="in-process")
    yield spark


def test_the_format_reads_and_writes_without_a_session(
    registered: SparkSession, warehouse: Path, tmp_path: Path
) -> None:
    spark = registered
    frame = spark.range(4).selectExpr("CAST(id AS INT) AS k", "CAST(id % 2 AS STRING) AS p")
    writer = frame.write.format("paimon").partitionBy("p").option("primary-key", "p,k")
    writer.option("bucket", 1).save("t")
    with pytest.raises(StatementError, match="exists"):
        frame.write.format("paimon").save("t")
    frame.write.mode("append").format("paimon").option("table", "t").save()
    path = str(warehouse / "default.db/t")
    loaded = spark.read.format("paimon").load(path)
    assert sorted(tuple(row) for row in loaded.collect()) == [
        (0, "0"), (1, "1"), (2, "0"), (3, "1")
    ]  # fmt: skip
    before = spark.read.format("paimon").option("scan.snapshot-id", 1).load("t")
    assert before.count() == 4
    snapshots = spark.read.load("t$snapshots", format="paimon")
    assert [row.snapshot_id for row in snapshots.collect()] == [1, 2]
    part = frame.where("k = 1").write.format("paimon").mode("overwrite")
    part.option("partitionOverwriteMode", "dynamic").save("t")
    assert spark.read.format("paimon").load("t").count() == 3
    frame.limit(1).write.format("paimon").mode("overwrite").save("t")
    assert loaded.sparkSession.read.format("paimon").load("t").count() == 1
    reader = spark.readStream.format("paimon").option("scan.timestamp", "2026-01-31")
    streamed = reader.load("t")
    assert streamed.isStreaming
    leave_half_a_write(tmp_path / "half")
    writer = streamed.writeStream.format("paimon")
    started = writer.option("checkpointLocation", str(tmp_path / "half"))
    query = started.trigger(availableNow=True).start("t")
    query.awaitTermination(120)
    assert query.exception() is None
    with pytest.raises(InvalidValueError, match="not in the current warehouse"):
        spark.read.format("paimon").load("/elsewhere/default.db/t")
    with pytest.raises(InvalidValueError, match="no table"):
        spark.read.format("paimon").load()


def test_save_as_table_in_the_format_creates_paimon_table(registered: SparkSession) -> None:
    spark = registered
    frame = spark.range(2).selectExpr("CAST(id AS INT) AS k")
    frame.write.saveAsTable("default.named", format="paimon")
    with pytest.raises(StatementError, match="exists"):
        frame.write.format("paimon").saveAsTable("named")
    frame.write.format("paimon").mode("append").saveAsTable("named")
    assert spark.read.format("paimon").load("named").count() == 4
    assert not spark.catalog.tableExists("spark_catalog.default.named")


def test_connect_accepts_spark_session_other_than_the_active(
    spark: SparkSession, warehouse: Path
) -> None:
    """PySpark makes the session active by which a frame is made."""
    for _ in range(2):
        other = spark.newSession()
        with paimon_magics.connect(warehouse, spark=other, coordinator="in-process") as session:
            session.run("CREATE TABLE IF NOT EXISTS t (k INT)")
            assert other.read.format("paimon").load("t").columns == ["k"]
        assert other.createDataFrame([(1,)], "a int").count() == 1
    spark.createDataFrame([(1,)], "a int")


_WAYS: dict[str, Callable[[SparkSession], object]] = {
    "load": lambda spark: spark.read.format("paimon").load("t"),
    "system table": lambda spark: spark.read.format("paimon").load("t$audit_log"),
    "save": lambda spark: spark.range(1).write.format("paimon").mode("append").save("t"),
    "create": lambda spark: spark.range(1).write.format("paimon").save("made"),
    "saveAsTable": lambda spark: spark.range(1).write.format("paimon").saveAsTable("made"),
    "readStream": lambda spark: spark.readStream.format("paimon").load("t"),
    "writeStream": lambda spark: (
        spark.readStream.format("rate").load().writeStream.format("paimon")
        .option("checkpointLocation", "/nowhere/checkpoint").start("t")
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", _WAYS)
@pytest.mark.parametrize(
    ("key", "value"),
    [("spark.sql.timestampType", "TIMESTAMP_NTZ"), ("spark.paimon.file.format", "orc")],
)
def test_format_refuses_unsupported_settings(
    registered: SparkSession, warehouse: Path, way: str, key: str, value: str
) -> None:
    registered.range(3).write.format("paimon").save("t")
    with (
        settings(registered, **{key: value}),
        pytest.raises(UnsupportedStatementError, match=f"{key} = {value}"),
    ):
        _WAYS[way](registered)
    assert registered.read.format("paimon").load("t").count() == 3
    assert not (warehouse / "default.db/made").exists()
