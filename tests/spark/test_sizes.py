from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from paimon_magics.spark.sizes import (
    Sources,
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
def test_spark_tells_how_much_a_query_will_give_and_prints_nothing(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], query: str, size_bytes: int
) -> None:
    found = estimated_bytes(spark.sql(query))
    assert found == pytest.approx(size_bytes, rel=0.01, abs=16)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("query", "sources"),
    [
        ("SELECT id + 1 FROM range(2000000)", Sources(2_000_000)),
        ("SELECT count(*) FROM range(1000) GROUP BY id % 3", Sources(1_000, None, 1)),
        ("SELECT * FROM range(20) UNION ALL SELECT * FROM range(30)", Sources(50)),
    ],
)
def test_where_rows_come_from_is_known_before_they_come(
    spark: SparkSession, query: str, sources: Sources
) -> None:
    assert estimated_sources(spark.sql(query)) == sources


def test_files_are_known_by_their_bytes_and_functions_of_the_users_are_seen(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "numbers.csv"
    file.write_text("1\n2\n")
    numbers = spark.read.csv(str(file), schema="n INT")
    assert estimated_sources(numbers) == Sources(None, 4)
    doubled = numbers.mapInPandas(lambda frames: frames, "n INT")
    assert estimated_sources(doubled).has_functions
