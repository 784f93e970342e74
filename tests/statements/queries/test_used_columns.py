"""The names in a query, from which it follows which columns need not be read."""

from __future__ import annotations

import pytest

from paimon_magics.statements.grammar.parsing import parse_cell
from paimon_magics.statements.queries.query_traits import used_names
from paimon_magics.statements.statement import Query


def names(text: str) -> frozenset[str] | None:
    (statement,) = parse_cell(text)
    assert isinstance(statement, Query)
    return used_names(text, statement.query)


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT a, t.B FROM t WHERE c > 1 ORDER BY d", {"a", "b", "c", "d"}),
        ("SELECT count(*) FROM t", set()),
        ("SELECT a * b, 2 * c FROM t", {"a", "b", "c"}),
        ("SELECT (a) * (b) FROM t", {"a", "b"}),
        ("SELECT `a b` FROM t", {"a b"}),
        ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.x = t.y)", {"a", "x", "y"}),
    ],
)
def test_named_columns_are_collected(query: str, columns: set[str]) -> None:
    actual = names(query)
    assert actual is not None
    assert columns <= actual
    assert "z" not in actual


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t",
        "SELECT t.* FROM t",
        "SELECT DISTINCT * FROM t",
        "SELECT a, * FROM t",
        "SELECT struct(*) FROM t",
        "SELECT a FROM (SELECT * FROM t)",
        "FROM t |> WHERE a > 1",
        "TABLE t",
        "SELECT a FROM t NATURAL JOIN u",
        "SELECT * FROM t PIVOT (sum(a) FOR b IN (1, 2))",
    ],
)
def test_query_possibly_using_any_column_gives_no_names(query: str) -> None:
    assert names(query) is None
