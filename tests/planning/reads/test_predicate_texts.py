"""Conditions on columns as they are told to a person."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest

from paimon_magics.planning.reads.predicates import ColumnPredicate, condition_text
from paimon_magics.statements.statement import ColumnFilter, FilterValue


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (ColumnPredicate("day", "=", ("it's",)), r"day = 'it\'s'"),
        (ColumnPredicate("unit price", ">=", (Decimal("1.50"),)), "`unit price` >= 1.50"),
        (ColumnPredicate("day", "<", (datetime.date(2026, 11, 20),)), "day < '2026-11-20'"),
        (ColumnPredicate("paid", "=", (True,)), "paid = true"),
        (ColumnPredicate("id", "is not null"), "id IS NOT NULL"),
        (ColumnPredicate("id", "in", (1, 2)), "id IN (1, 2)"),
        (ColumnPredicate("id", "in", tuple(range(9))), "id IN (0, 1, 2, 3, 4, …)"),
        (ColumnFilter("id", "=", (FilterValue("parameter", "now"),)), "id = :now"),
        (ColumnFilter("id", "<=", (FilterValue("number", "1e3"),)), "id <= 1e3"),
        (ColumnFilter("day", "=", (FilterValue("date", "2026-11-20"),)), "day = '2026-11-20'"),
    ],
)
def test_condition_is_shown_as_sql(condition: ColumnPredicate | ColumnFilter, text: str) -> None:
    assert condition_text(condition) == text
