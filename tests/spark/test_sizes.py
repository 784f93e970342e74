from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from paimon_magics.spark.sizes import (
    COMPRESSED_AT_MOST,
    Sources,
    estimate,
    estimated_bytes,
    estimated_sources,
)

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("query", "size_bytes"),
    [
        ("SELECT id FROM range(1000000)", 8_000_000),
        ("SELECT id FROM range(1000000) WHERE false", 0),
    ],
)
def test_spark_estimates_result_size_without_printing(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], query: str, size_bytes: int
) -> None:
    actual = estimated_bytes(spark.sql(query))
    assert actual == pytest.approx(size_bytes, rel=0.01, abs=16)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("query", "tells"),
    [
        ("SELECT id % 7 AS k, count(*) AS n FROM range(1000) GROUP BY 1", True),
        ("SELECT explode(sequence(1, 1000000)) AS k", False),
        ("SELECT k FROM range(10) LATERAL VIEW explode(sequence(1, 100)) AS k", False),
    ],
)
def test_estimated_size_tells_work_unless_query_multiplies_rows(
    spark: SparkSession, query: str, *, tells: bool
) -> None:
    assert estimate(spark.sql(query)).tells_work == tells


def test_estimated_size_tells_work_of_small_files_only(spark: SparkSession, tmp_path: Path) -> None:
    for rows, tells in ((1_000, True), (100_000, False)):
        folder = str(tmp_path / str(rows))
        spark.range(rows).write.parquet(folder)
        actual = estimate(spark.read.parquet(folder))
        assert actual.tells_work == tells
        stored_bytes = sum(each.stat().st_size for each in Path(folder).glob("*.parquet"))
        assert actual.rows_bytes == pytest.approx(COMPRESSED_AT_MOST * stored_bytes, rel=0.01)


def test_estimated_size_does_not_tell_work_of_python_functions(spark: SparkSession) -> None:
    rows = spark.range(1000)
    same = F.udf(lambda number: number, "BIGINT")
    for frame in (rows.mapInArrow(lambda rows: rows, "id BIGINT"), rows.select(same("id"))):
        assert not estimate(frame).tells_work
        assert estimate(frame).rows_bytes is None
    assert estimate(rows).rows_bytes == pytest.approx(8000, rel=0.01)


@pytest.mark.parametrize(
    ("query", "sources"),
    [
        ("SELECT id + 1 FROM range(2000000)", Sources(2_000_000)),
        ("SELECT count(*) FROM range(1000) GROUP BY id % 3", Sources(1_000, None, 1)),
        ("SELECT * FROM range(20) UNION ALL SELECT * FROM range(30)", Sources(50)),
    ],
)
def test_row_counts_of_sources_are_estimated_from_the_plan(
    spark: SparkSession, query: str, sources: Sources
) -> None:
    assert estimated_sources(spark.sql(query)) == sources


def test_estimated_sources_contain_file_bytes_and_user_functions(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "numbers.csv"
    file.write_text("1\n2\n")
    numbers = spark.read.csv(str(file), schema="n INT")
    assert estimated_sources(numbers) == Sources(None, 4)
    doubled = numbers.mapInPandas(lambda frames: frames, "n INT")
    assert estimated_sources(doubled).has_functions
