"""Which stars of a query leave the ids of rows out."""

from __future__ import annotations

import pytest

from paimon_magics.statements.grammar.parsing import parse_cell
from paimon_magics.statements.queries.rewriting import (
    ROW_ID_COLUMNS,
    hidden_columns_of,
    rewrite,
    stars_without_hidden,
)
from paimon_magics.statements.statement import Query

T = "`t`._ROW_ID, `t`._SEQUENCE_NUMBER"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT *, _ROW_ID FROM t", f"SELECT * EXCEPT ({T}), _ROW_ID FROM t"),
        ("SELECT t.*, 2 * _ROW_ID FROM t", f"SELECT t.* EXCEPT ({T}), 2 * _ROW_ID FROM t"),
        ("SELECT u.* FROM t JOIN u ON _row_id = k", "SELECT u.* FROM t JOIN u ON _row_id = k"),
        ("SELECT count(*) FROM t WHERE _ROW_ID > 1", "SELECT count(*) FROM t WHERE _ROW_ID > 1"),
        (
            "SELECT * FROM (SELECT *, _ROW_ID FROM t)",
            f"SELECT * FROM (SELECT * EXCEPT ({T}), _ROW_ID FROM t)",
        ),
        (
            "SELECT * EXCEPT (k), _ROW_ID FROM t",
            f"SELECT * EXCEPT ({T}, k), _ROW_ID FROM t",
        ),
        (
            "SELECT * FROM u WHERE k IN (SELECT _ROW_ID FROM t)",
            "SELECT * FROM u WHERE k IN (SELECT _ROW_ID FROM t)",
        ),
        (
            "SELECT struct(*), count(*) FROM t WHERE _ROW_ID = 1",
            f"SELECT struct(* EXCEPT ({T})), count(*) FROM t WHERE _ROW_ID = 1",
        ),
        (
            "SELECT (SELECT max(x) FROM (SELECT * FROM u)), _ROW_ID FROM t",
            "SELECT (SELECT max(x) FROM (SELECT * FROM u)), _ROW_ID FROM t",
        ),
        ("SELECT * FROM (u JOIN t ON k = _ROW_ID)", None),
    ],
)
def test_stars_exclude_row_ids_of_tables_in_their_select(text: str, expected: str | None) -> None:
    if expected is None:
        expected = text.replace("*", f"* EXCEPT ({T})", 1)
    (statement,) = parse_cell(text)
    assert isinstance(statement, Query)
    tracked = [each for each in statement.query.references if each.name.object_name == "t"]
    assert all(map(hidden_columns_of, [text] * len(tracked), tracked))
    hidden = [(each, ROW_ID_COLUMNS) for each in tracked]
    actual = stars_without_hidden(text, statement.query, hidden)
    assert rewrite(text, statement.query.range, actual).text == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT a._ROW_ID FROM t a JOIN u b", [{"_ROW_ID"}, set()]),
        ("SELECT __paimon_bucket.x FROM t a JOIN u b", [{"__paimon_bucket"}] * 2),
        ("SELECT * FROM t WHERE k IN (SELECT k FROM u WHERE _row_id = 1)", [set(), {"_ROW_ID"}]),
        ("SELECT * FROM t WHERE k IN (SELECT k FROM u WHERE t._row_id = 1)", [{"_ROW_ID"}, set()]),
        ("SELECT s._ROW_ID FROM t WHERE v = 'a _ROW_ID'", [set()]),
        ("SELECT IDENTIFIER('t._row_id') FROM t", [{"_ROW_ID"}]),
    ],
)
def test_hidden_columns_are_those_of_the_table_that_they_can_mean(
    text: str, expected: list[set[str]]
) -> None:
    (statement,) = parse_cell(text)
    assert isinstance(statement, Query)
    actual = [hidden_columns_of(text, each) for each in statement.query.references]
    assert actual == expected
