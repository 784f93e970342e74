"""What the texts of PySpark's Columns tell: names as a superset, comparisons as guesses."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest

from paimon_magics.planning.reads.column_texts import (
    Guess,
    guesses,
    is_plain_name,
    mentioned,
    text_within,
    uses_other_rows,
)
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.statements.data_types import ArrayType, AtomicType

COLUMNS = [
    Column(0, "id", AtomicType("BIGINT")),
    Column(1, "name", AtomicType("STRING")),
    Column(2, "day", AtomicType("DATE")),
    Column(3, "price", AtomicType("DECIMAL", (12, 2))),
    Column(4, "done", AtomicType("BOOLEAN")),
    Column(5, "tags", ArrayType(AtomicType("STRING"))),
]
NAMES = ("a", "ab", "we ird", "b`c")
DAY = datetime.date(2026, 1, 31)


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("+(A, 1) AS z", {"a"}),
        ("=(we ird, 'ab')", {"ab", "we ird"}),
        ("count(*)", set()),
        ("*(a, 2)", {"a"}),
        ("a * 2", {"a"}),
        ("a.x", {"a"}),
    ],
)
def test_names_in_a_text_are_its_possible_columns(text: str, used: set[str]) -> None:
    assert mentioned(text, NAMES) == used | {"b`c"}  # whose text may be written otherwise


@pytest.mark.parametrize(
    "text",
    [
        *("*", "t.*", "struct(*)", "resolvedstar()", "unresolvedregex()", "UnresolvedRegex(`a.*`)"),
        *("EXISTS ([a: bigint, b: bigint ... 2 more fields])", "([a: bigint])", "f(DISTINCT *)"),
        "SubqueryExpression(plan=<Filter object>, type=scalar)",
    ],
)
def test_text_without_column_names_may_use_any_column(text: str) -> None:
    assert mentioned(text, NAMES) is None


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("=(id, 1)", Guess("id", "=", (1,))),
        ("==(ID, -1)", Guess("id", "=", (-1,))),
        ("<=(name, 'it''s, so')", Guess("name", "<=", ("it''s, so",))),
        ("==(name, x y)", Guess("name", "=", ("x y",))),
        (">=(day, 2026-01-31)", Guess("day", ">=", (DAY,))),
        (">=(day, '2026-01-31')", Guess("day", ">=", (DAY,), as_text=True)),
        ("<(price, 1.50)", Guess("price", "<", (Decimal("1.50"),))),
        ("=(done, True)", Guess("done", "=", (True,))),
        ("in(id, 1, 2)", Guess("id", "in", (1, 2))),
        ("isNull(tags)", None),
        ("isNotNull(name)", Guess("name", "is not null")),
        ("=(id, 1.5)", None),
        ("=(other, 1)", None),
        ("and(=(id, 1), =(id, 2))", None),
    ],
)
def test_a_comparison_is_guessed_from_its_text(text: str, first: Guess | None) -> None:
    assert next(guesses(text, COLUMNS), None) == first


def test_names_literals_and_windows_are_distinguished() -> None:
    assert text_within("Column<'=(p, 1)'>") == "=(p, 1)"
    assert is_plain_name("day_2") and not is_plain_name("'day'") and not is_plain_name("true")
    assert uses_other_rows("row_number() OVER (PARTITION BY a)")
    assert uses_other_rows("WindowExpression(sum(a), (…))") and not uses_other_rows("moreover")
