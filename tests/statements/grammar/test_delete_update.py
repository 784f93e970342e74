"""DELETE and UPDATE are read as Spark's grammar has them, and become queries of the same text."""

from __future__ import annotations

import pytest

from paimon_magics.errors import StatementSyntaxError
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.queries.rewriting import rewrite
from paimon_magics.statements.statement import Delete, TableName, Update
from paimon_magics.statements.subjects import subject_of


def selected(text: str) -> str:
    change = parse_statement(text)
    assert isinstance(change, Delete | Update)
    selection = change.selection
    return rewrite(text, selection.query.range, selection.replacements).text


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("DELETE FROM t", "SELECT * FROM t"),
        ("DELETE FROM t WHERE a = 1 -- one", "SELECT * FROM t WHERE (a = 1)"),
        ("delete from s.t as x where x.a > 1 or b", "SELECT * from s.t as x where (x.a > 1 or b)"),
        (
            "WITH c AS (SELECT 1 AS i) DELETE FROM t WHERE a IN (SELECT i FROM c)",
            "WITH c AS (SELECT 1 AS i) SELECT * FROM t WHERE (a IN (SELECT i FROM c))",
        ),
        ("UPDATE t SET a = 1", "FROM t SELECT *, (1) AS `__paimon_magics_value_0`"),
        (
            "UPDATE t x SET x.a == a + 1, s.f=DEFAULT WHERE b LIKE 'SET%'",
            "FROM t x SELECT *, (a + 1) AS `__paimon_magics_value_0`, "
            "(NULL) AS `__paimon_magics_value_1` WHERE (b LIKE 'SET%')",
        ),
        (
            "WITH c AS (SELECT 1 AS i) UPDATE t SET a = (SELECT max(i) FROM c), b = 'x'",
            "WITH c AS (SELECT 1 AS i) FROM t SELECT *, ((SELECT max(i) FROM c)) AS "
            "`__paimon_magics_value_0`, ('x') AS `__paimon_magics_value_1`",
        ),
    ],
)
def test_row_change_becomes_a_query_of_the_selected_rows(text: str, query: str) -> None:
    assert selected(text) == query


def test_target_is_a_reference_like_tables_of_subqueries() -> None:
    text = "UPDATE shop.t SET a = :v WHERE shop.t.b = 2 AND EXISTS (SELECT 1 FROM u WHERE u.i = a)"
    update = parse_statement(text)
    assert isinstance(update, Update)
    assert update.target == TableName("t", "shop")
    assert [each.path for each in update.assignments] == [("a",)]
    target, other = update.selection.query.references
    assert text[target.range.start : target.range.end] == "shop.t"
    assert [text[each.start : each.end] for each in target.qualifiers] == ["shop.t"]
    assert other.name == TableName("u")
    assert update.selection.query.parameters == ("v",)
    assert subject_of(update).sources == (TableName("t", "shop"), TableName("u"))


@pytest.mark.parametrize("verb", ["DELETE FROM t AS x", "UPDATE t AS x SET x.d = x.e + 1"])
def test_conditions_on_the_target_become_read_filters(verb: str) -> None:
    change = parse_statement(f"{verb} WHERE x.a = 1 AND b > 2 AND c + 1 = 3")
    assert isinstance(change, Delete | Update)
    (target,) = change.selection.query.references
    assert [(each.column, each.operator) for each in target.filters] == [("a", "="), ("b", ">")]


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM t WHERE",
        "DELETE FROM t LIMIT 1",
        "DELETE t WHERE a = 1",
        "DELETE FROM t VERSION AS OF 1 WHERE a = 1",
        "DELETE FROM t AS x (a, b) WHERE a = 1",
        "DELETE FROM (SELECT * FROM t)",
        "UPDATE t",
        "UPDATE t SET",
        "UPDATE t SET a",
        "UPDATE t SET a = ",
        "UPDATE t SET a = 1,",
        "UPDATE t SET a = 1 FROM u",
        "UPDATE t SET a = *",
        "UPDATE t SET a[0] = 1",
        "UPDATE t SET a = explode(b)",
        "UPDATE t SET a = row_number() OVER (ORDER BY b)",
        "UPDATE t SET a = 1 WHERE b = 2) OR (1 = 1",
    ],
)
def test_forms_invalid_in_spark_are_refused_with_their_position(text: str) -> None:
    with pytest.raises(StatementSyntaxError) as caught:
        parse_statement(text)
    assert caught.value.position is not None
