"""Values in place of bind names are what Spark makes of the same values."""

from __future__ import annotations

import datetime
import decimal

import numpy
import pytest
from pyspark.sql import SparkSession

from paimon_magics.session.parameters import bindings_text, literal, with_values

AT, UTC = datetime.datetime, datetime.UTC
VALUES = [
    *(None, True, 5, -5, 2**40, 1.5, -1e300, float("inf"), decimal.Decimal("-1.50"), ""),
    *("it's \\ ☃", b"\x00\xff", datetime.date(2026, 1, 2), AT(2026, 1, 2, 3, 4, 5, 6)),
    *(AT(2026, 1, 2, 3, tzinfo=UTC), [1, 3], [["a"], ["b"]]),
]


@pytest.mark.spark
def test_literals_equal_the_bound_values(spark: SparkSession) -> None:
    names = {f"v{place}": value for place, value in enumerate(VALUES)}
    query = "SELECT " + ", ".join(f":{name} AS {name}" for name in names)
    bound = spark.sql(query, args=names)
    placed = spark.sql(with_values(query, names))
    assert [f.dataType for f in placed.schema] == [f.dataType for f in bound.schema]
    assert placed.collect() == bound.collect()


def test_only_markers_are_replaced() -> None:
    text = "SELECT ':a', a:b, `:a`, :a -- :a\nFROM t WHERE x = :A AND y=:a"
    assert with_values(text, {"a": 1}) == (
        "SELECT ':a', a:b, `:a`, 1 -- :a\nFROM t WHERE x = :A AND y=1"
    )


def test_values_without_literal_stay_markers_and_are_listed() -> None:
    array = numpy.array([1])
    assert literal(array) is None and literal([array]) is None
    assert with_values("SELECT :a", {"a": array}) == "SELECT :a"
    assert bindings_text({"a": array, "b": "x" * 200}).startswith(":a = array([1]), :b = 'xxx")
    assert len(bindings_text({"b": "x" * 200})) < 100
