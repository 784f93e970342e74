"""Which stars of a query leave the ids of rows out."""

from __future__ import annotations

import pytest

from paimon_magics.statements.grammar.parsing import parse_cell
from paimon_magics.statements.queries.rewriting import names_row_ids, rewrite, stars_without_row_ids
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
        ("SELECT * FROM (u JOIN t ON k = _ROW_ID)", None),
    ],
)
def test_stars_exclude_row_ids_of_tables_in_their_select(text: str, expected: str | None) -> None:
    if expected is None:
        expected = text.replace("*", f"* EXCEPT ({T})", 1)
    (statement,) = parse_cell(text)
    assert isinstance(statement, Query) and names_row_ids(text)
    tracked = [each for each in statement.query.references if each.name.object_name == "t"]
    actual = stars_without_row_ids(text, statement.query, tracked)
    assert rewrite(text, statement.query.range, actual).text == expected
