"""What a person clicks together in a grid, as SQL."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from paimon_magics.errors import InvalidValueError, PaimonMagicsError, UnknownNameError
from paimon_magics.planning.reads.row_filters import (
    ColumnKind,
    Condition,
    Kind,
    Order,
    RowFilter,
    filter_sql,
    limited_sql,
)

KINDS = {
    "id": ColumnKind(Kind.INTEGER),
    "part": ColumnKind(Kind.DECIMAL),
    "f": ColumnKind(Kind.FLOAT),
    "d": ColumnKind(Kind.DOUBLE),
    "it`em": ColumnKind(Kind.TEXT),
    "good": ColumnKind(Kind.BOOLEAN),
    "day": ColumnKind(Kind.DATE),
    "at": ColumnKind(Kind.INSTANT, ZoneInfo("Europe/Berlin")),
    "seen": ColumnKind(Kind.WALL_CLOCK),
    "tags": ColumnKind(Kind.OTHER),
}


@pytest.mark.parametrize(
    ("condition", "sql"),
    [
        (Condition("id", ">=", " 12.50 "), "`id` >= 12.50"),
        (Condition("id", "=", "1e3"), "`id` = 1000"),
        (Condition("it`em", "=", r"o'n\e"), r"`it``em` = 'o\'n\\e'"),
        (Condition("it`em", "contains", " x"), "contains(`it``em`, ' x')"),
        (Condition("good", "<>", "TRUE"), "`good` <> true"),
        (Condition("day", "<", "2026-01-31"), "`day` < DATE '2026-01-31'"),
        (Condition("at", "<", "2026-01-31"), "`at` < TIMESTAMP '2026-01-31 00:00:00+01:00'"),
        (Condition("at", "=", "2026-07-01T12:00Z"), "`at` = TIMESTAMP '2026-07-01 14:00:00+02:00'"),
        # The hour that comes twice: the first one, as Spark reads it, unless its offset is there.
        (
            Condition("at", "=", "2026-10-25 02:30:00"),
            "`at` = TIMESTAMP '2026-10-25 02:30:00+02:00'",
        ),
        (
            Condition("at", "=", "2026-10-25 02:30:00+01:00"),
            "`at` = TIMESTAMP '2026-10-25 02:30:00+01:00'",
        ),
        # The hour that is left out: an hour later, as Spark reads it.
        (
            Condition("at", "=", "2026-03-29 02:30:00"),
            "`at` = TIMESTAMP '2026-03-29 03:30:00+02:00'",
        ),
        (
            Condition("seen", "=", "2026-03-29 02:30:00"),
            "`seen` = TIMESTAMP_NTZ '2026-03-29 02:30:00'",
        ),
        (Condition("f", "=", "1.1"), "`f` = CAST('1.1' AS FLOAT)"),
        (Condition("f", "<>", "nan"), "`f` <> CAST('NaN' AS FLOAT)"),
        (Condition("d", "=", "1.1"), "`d` = 1.1D"),
        (Condition("d", "<", "-inf"), "`d` < CAST('-Infinity' AS DOUBLE)"),
        (Condition("tags", "is null", "x"), "`tags` IS NULL"),
        (Condition("id", "is not null"), "`id` IS NOT NULL"),
    ],
)
def test_condition_uses_a_literal_of_the_column_type(condition: Condition, sql: str) -> None:
    actual = filter_sql("SELECT 1", RowFilter(conditions=(condition,)), KINDS)
    assert actual == f"SELECT * FROM (SELECT 1) WHERE {sql}"


@pytest.mark.parametrize(
    ("rows", "row_filter", "sql"),
    [
        ("SELECT 1", RowFilter(), "SELECT 1"),
        ("shop.t$files", RowFilter(), "SELECT * FROM shop.t$files"),
        (
            "shop.t$files",
            RowFilter((Order("id", descending=True), Order("day"))),
            "SELECT * FROM shop.t$files ORDER BY `id` DESC NULLS LAST, `day` ASC NULLS LAST",
        ),
        ("SHOW TABLES", RowFilter(), "SHOW TABLES"),
        ("SHOW TABLES", RowFilter((Order("id"),)), ""),
        ("", RowFilter(), ""),
        ("", RowFilter((Order("id"),)), ""),
        (
            "SELECT 1 -- one",
            RowFilter((Order("id"),)),
            "SELECT * FROM (SELECT 1 -- one\n) ORDER BY `id` ASC NULLS LAST",
        ),
        (
            "-- one\nSELECT 1",
            RowFilter((Order("id"),)),
            "SELECT * FROM (-- one\nSELECT 1\n) ORDER BY `id` ASC NULLS LAST",
        ),
        ("selection", RowFilter(), "SELECT * FROM selection"),
        ("shop.`a b$files`", RowFilter(), "SELECT * FROM shop.`a b$files`"),
    ],
)
def test_row_filter_wraps_the_query(rows: str, row_filter: RowFilter, sql: str) -> None:
    assert filter_sql(rows, row_filter, KINDS) == sql


@pytest.mark.parametrize(
    ("row_filter", "error", "said"),
    [
        (RowFilter((Order("idd"),)), UnknownNameError, "Did you mean `id`?"),
        (RowFilter((Order("tags"),)), InvalidValueError, "can't be sorted by `tags`"),
        (RowFilter(conditions=(Condition("id", "=", "1 OR 1=1"),)), InvalidValueError, "as: 42"),
        (
            RowFilter(conditions=(Condition("id", "=", "NaN"),)),
            InvalidValueError,
            "`NaN` is not a value",
        ),
        (RowFilter(conditions=(Condition("id", "=", "1e300"),)), InvalidValueError, "as: 42"),
        (RowFilter(conditions=(Condition("part", "=", "1,5"),)), InvalidValueError, "as: 12.50"),
        (
            RowFilter(conditions=(Condition("f", "=", "1,5"),)),
            InvalidValueError,
            "as: 12.5, 1e-3, NaN",
        ),
        (RowFilter(conditions=(Condition("at", "=", "now"),)), InvalidValueError, "12:00:00+01:00"),
        (
            RowFilter(conditions=(Condition("seen", "=", "2026-01-31 12:00:00Z"),)),
            InvalidValueError,
            "as: 2026-01-31 12:00:00",
        ),
        (
            RowFilter(conditions=(Condition("id", "contains", "1"),)),
            InvalidValueError,
            "operators are",
        ),
        (RowFilter(conditions=(Condition("good", "=", "yes"),)), InvalidValueError, "true"),
        (RowFilter(conditions=(Condition("day", "=", "today"),)), InvalidValueError, "2026-01-31"),
        (RowFilter(conditions=(Condition("tags", "=", "x"),)), InvalidValueError, "is null"),
    ],
)
def test_invalid_filters_are_refused_with_a_hint(
    row_filter: RowFilter, error: type[PaimonMagicsError], said: str
) -> None:
    with pytest.raises(error) as raised:
        filter_sql("t", row_filter, KINDS)
    assert said in raised.value.text()


def test_columns_missing_from_the_query_are_noted_and_not_requested() -> None:
    kinds = {name: KINDS[name] for name in ("id", "day", "good")}
    rows, given = "SELECT id, day FROM t", ("id", "day")
    assert (
        filter_sql(rows, RowFilter(), kinds, given)
        == f"-- without `good`: no table has that\n{rows}"
    )
    assert filter_sql(rows, RowFilter((Order("good"),)), kinds, given) == ""
    assert filter_sql(rows, RowFilter(), kinds, ()) == ""


def test_row_limit_wraps_the_query() -> None:
    assert limited_sql("SELECT 1", 5) == "SELECT * FROM (SELECT 1) LIMIT 5"
    assert limited_sql("SHOW TABLES", 5) == ""
