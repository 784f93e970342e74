"""What a person clicks together in a grid, as SQL."""

from __future__ import annotations

import pytest

from paimon_magics.errors import InvalidValueError, PaimonMagicsError, UnknownNameError
from paimon_magics.planning.looks import Condition, Kind, Look, Order, look_sql

KINDS = {
    "id": Kind.NUMBER,
    "it`em": Kind.TEXT,
    "good": Kind.BOOLEAN,
    "day": Kind.DATE,
    "at": Kind.TIME,
    "tags": Kind.OTHER,
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
        (Condition("at", "<", "2026-01-31"), "`at` < TIMESTAMP '2026-01-31 00:00:00'"),
        (Condition("tags", "is null", "x"), "`tags` IS NULL"),
        (Condition("id", "is not null"), "`id` IS NOT NULL"),
    ],
)
def test_a_condition_has_a_literal_of_its_columns_type(condition: Condition, sql: str) -> None:
    found = look_sql("SELECT 1", Look(conditions=(condition,)), KINDS)
    assert found == f"SELECT * FROM (SELECT 1) WHERE {sql}"


@pytest.mark.parametrize(
    ("rows", "look", "sql"),
    [
        ("SELECT 1", Look(), "SELECT 1"),
        ("shop.t$files", Look(), "SELECT * FROM shop.t$files"),
        (
            "shop.t$files",
            Look((Order("id", descending=True), Order("day"))),
            "SELECT * FROM shop.t$files ORDER BY `id` DESC NULLS LAST, `day` ASC NULLS LAST",
        ),
        ("SHOW TABLES", Look(), "SHOW TABLES"),
        ("SHOW TABLES", Look((Order("id"),)), "SHOW TABLES; ORDER BY `id` ASC NULLS LAST"),
        ("", Look(), ""),
        ("", Look((Order("id"),)), "ORDER BY `id` ASC NULLS LAST"),
        ("selection", Look(), "SELECT * FROM selection"),
        ("shop.`a b$files`", Look(), "SELECT * FROM shop.`a b$files`"),
    ],
)
def test_a_look_is_a_query_around_the_rows(rows: str, look: Look, sql: str) -> None:
    assert look_sql(rows, look, KINDS) == sql


@pytest.mark.parametrize(
    ("look", "error", "said"),
    [
        (Look((Order("idd"),)), UnknownNameError, "Did you mean `id`?"),
        (Look((Order("tags"),)), InvalidValueError, "can't be sorted by `tags`"),
        (Look(conditions=(Condition("id", "=", "1 OR 1=1"),)), InvalidValueError, "12.5"),
        (Look(conditions=(Condition("id", "=", "NaN"),)), InvalidValueError, "`NaN` is no value"),
        (Look(conditions=(Condition("id", "contains", "1"),)), InvalidValueError, "asked with"),
        (Look(conditions=(Condition("good", "=", "yes"),)), InvalidValueError, "true"),
        (Look(conditions=(Condition("day", "=", "today"),)), InvalidValueError, "2026-01-31"),
        (Look(conditions=(Condition("tags", "=", "x"),)), InvalidValueError, "is null"),
    ],
)
def test_what_makes_no_sense_is_answered_with_the_next_step(
    look: Look, error: type[PaimonMagicsError], said: str
) -> None:
    with pytest.raises(error) as raised:
        look_sql("t", look, KINDS)
    assert said in raised.value.text()
