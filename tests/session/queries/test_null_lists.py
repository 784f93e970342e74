"""Conditions with NULL in a list choose what Spark says they do, in every format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import paimon_magics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CONDITIONS = {
    "b IN (1, NULL)": [1],
    "b IN (1, CAST(NULL AS INT), 2)": [1, 2],
    "b NOT IN (1, NULL)": [],
    "NOT (b IN (1, NULL)) OR a = 3": [3],
    "b IN (1, NULL, 5) OR c = 'y'": [1, 2],
    "x IN (1.50, NULL)": [1],
    "s.n IN (2, NULL)": [2],
    "c IN ('x', NULL)": [1],
    "b IS NOT NULL AND a IN (1, 3)": [1],
}


@pytest.mark.parametrize("local_rows_max", [0, 1_000])
def test_null_in_a_list_matches_no_row(
    spark: SparkSession, tmp_path: Path, local_rows_max: int
) -> None:
    with paimon_magics.connect(tmp_path, spark=spark, local_rows_max=local_rows_max) as session:
        for kind in ("orc", "parquet", "avro"):
            struct, values = ", s STRUCT<n: BIGINT>", (", struct(1)", ", struct(2)", ", NULL")
            if kind == "avro":  # it has no structs
                struct, values = "", ("", "", "")
            one, two, three = values
            session.run(
                f"CREATE TABLE {kind} (a INT, b INT, c STRING, x DECIMAL(9, 2){struct}) "
                f"TBLPROPERTIES ('file.format' = '{kind}'); INSERT INTO {kind} VALUES "
                f"(1, 1, 'x', 1.5{one}), (2, 2, 'y', 2.5{two}), (3, NULL, NULL, NULL{three})"
            )
            for condition, expected in CONDITIONS.items():
                if kind == "avro" and "s.n" in condition:
                    continue
                query = f"SELECT a FROM {kind} WHERE {condition} ORDER BY a"
                assert session.run(query).to_arrow()["a"].to_pylist() == expected, query
            bound = session.run(
                f"SELECT a FROM {kind} WHERE b IN (:one, :two)", {"one": 1, "two": None}
            )
            assert bound.to_arrow()["a"].to_pylist() == [1]
            frame = session.table(kind, where="b IN (2, NULL)")
            assert [row.a for row in frame.collect()] == [2]
            for condition in ("b IN (1, NULL)", F.col("b").isin(1, None)):
                assert [row.a for row in session.table(kind).where(condition).collect()] == [1]
            changed = session.run(f"DELETE FROM {kind} WHERE b IN (2, NULL)")
            assert changed.rows_deleted == 1
