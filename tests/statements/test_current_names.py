"""Calls of `current_database()` and its like become texts of the session's names."""

from __future__ import annotations

import pytest

from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.queries.rewriting import current_names, rewrite
from paimon_magics.statements.statement import Query

CASES = [
    ("SELECT current_database()", "SELECT 'shop' AS `current_database()`"),
    ("SELECT Current_Schema( ) AS s, 1", "SELECT 'shop' AS s, 1"),
    ("SELECT 1, current_catalog() FROM t", "SELECT 1, 'paimon' AS `current_catalog()` FROM t"),
    ("SELECT database(), schema()", "SELECT 'shop' AS `database()`, 'shop' AS `schema()`"),
    ("SELECT concat(a, current_database(), b) FROM t", "SELECT concat(a, 'shop', b) FROM t"),
    ("SELECT a FROM t WHERE d = current_database()", "SELECT a FROM t WHERE d = 'shop'"),
    (
        "SELECT (SELECT current_database()) x",
        "SELECT (SELECT 'shop' AS `current_database()`) x",
    ),
    ("SELECT 'current_database()', `current_database()` FROM t", None),
    ("SELECT t.database() FROM t", None),
    ("SELECT database, current_date() FROM t", None),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_calls_of_current_names_become_literals(text: str, expected: str | None) -> None:
    statement = parse_statement(text)
    assert isinstance(statement, Query)
    replacements = current_names(text, statement.query, "paimon", "shop")
    rewritten = rewrite(text, statement.query.range, replacements)
    assert rewritten.text.strip() == (expected or text)
