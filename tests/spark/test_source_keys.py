"""The range of a source's keys is exact, or there is none."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from paimon_magics.planning.row_changes.source_keys import KeyRange, SourceKey
from paimon_magics.spark.source_keys import key_ranges, type_of, within
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.statement import TextRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def key(*, null_safe: bool = False) -> SourceKey:
    return SourceKey("c", TextRange(0, 1), null_safe, is_column=True)


def ends(found: Mapping[str, KeyRange]) -> dict[str, tuple[object, object]]:
    return {name: (each.least, each.greatest) for name, each in found.items()}


def test_key_ranges_exist_only_for_exact_python_values(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT n, CAST(n AS DECIMAL(10, 2)) AS m, concat('é', n) AS v, CAST(NULL AS INT) AS o, "
        "date_add(DATE '2026-01-01', n) AS d, date_add(DATE '9999-12-31', n) AS far, "
        "CAST(X'FF' AS STRING) AS odd, repeat('a', 2000) AS long FROM VALUES (1), (NULL), (-3) t(n)"
    )
    keys = {name: key() for name in rows.columns}
    assert ends(key_ranges(rows, keys)) == {
        "n": (-3, 1),
        "m": (Decimal("-3.00"), Decimal("1.00")),
        "v": ("é-3", "é1"),
        "o": (None, None),
        "d": (datetime.date(2025, 12, 29), datetime.date(2026, 1, 2)),
    }
    safe = {name: key(null_safe=True) for name in ("n", "o")}
    assert key_ranges(rows, safe) == {}
    assert ends(key_ranges(rows.where("n > 0"), safe)) == {"n": (1, 1)}
    assert ends(key_ranges(rows.limit(0), safe)) == {"n": (None, None), "o": (None, None)}


def test_collated_texts_and_arrays_have_no_comparable_type(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 'a' AS v, 'a' COLLATE UTF8_LCASE AS w, array(1) AS x")
    assert type_of(rows, "v") == AtomicType("STRING")
    assert type_of(rows, "w") is None
    assert type_of(rows, "x") is None


def test_a_row_outside_the_range_fails_the_job(spark: SparkSession) -> None:
    rows = spark.sql("SELECT n FROM VALUES (1), (NULL), (3) t(n)")
    others = spark.sql("SELECT n FROM VALUES (0), (3), (9) t(n)")

    def joined(least: int | None, greatest: int | None, *, null_safe: bool = False) -> int:
        one = KeyRange(key(null_safe=null_safe), least, greatest)
        return within(rows, {"n": one}).join(others, "n").count()

    assert joined(1, 3) == 1
    for arguments in ((1, 2), (2, 3), (None, None)):
        with pytest.raises(Exception, match="its result changes with each read"):
            joined(*arguments)
    with pytest.raises(Exception, match="its result changes with each read"):
        joined(1, 3, null_safe=True)
