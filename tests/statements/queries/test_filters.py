"""Which conditions of a query are taken to speak of one table's rows."""

from __future__ import annotations

import pytest

from paimon_magics.statements.grammar.parsing import parse_cell
from paimon_magics.statements.statement import Query


def filters(query: str, table: str = "t") -> list[str]:
    (statement,) = parse_cell(query)
    assert isinstance(statement, Query)
    (reference,) = [each for each in statement.query.references if each.name.table == table]
    return [
        " ".join([each.column, each.operator, *(f"{v.kind}:{v.text}" for v in each.values)])
        for each in reference.filters
    ]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("a = 1", ["a = number:1"]),
        ("1 < a", ["a > number:1"]),
        ("a >= -5 AND b <= 'x'", ["a >= number:-5", "b <= string:x"]),
        ("(a = 1) AND (b = 2 AND c = 3)", ["a = number:1", "b = number:2", "c = number:3"]),
        ("a BETWEEN 1 AND 2", ["a >= number:1", "a <= number:2"]),
        ("a IN (1, 2)", ["a in number:1 number:2"]),
        ("a IS NULL", ["a is null"]),
        ("a IS NOT NULL", ["a is not null"]),
        ("NOT a IS NULL", ["a is not null"]),
        ("d = DATE '2026-01-31'", ["d = date:2026-01-31"]),
        ("a = :wanted", ["a = parameter:wanted"]),
        ("b = true", ["b = boolean:true"]),
        ("t.a = 1", ["a = number:1"]),
        (
            "(a = 1 OR a = 2 OR (a = :x OR a IN (3))) AND b = 1",
            ["a in number:1 number:2 parameter:x number:3", "b = number:1"],
        ),
        ("a = 1 OR b = 2", []),
        ("a = 1 OR a > 2", []),
        ("a = 1 OR a = 2 AND b = 3", []),
        ("a = 1 OR t.a = 2", []),
        ("NOT a = 1", []),
        ("a NOT IN (1)", []),
        ("a + 1 = 2", []),
        ("a = b", []),
        ("a <> 1", []),
        ("u.a = 1", []),
        ("s.a.b = 1", []),
        ("a IN (SELECT x FROM y)", []),
        ("upper(a) = 'X'", []),
        ("a = 1 AND b > rand()", ["a = number:1"]),
    ],
)
def test_unambiguous_terms_become_filters(where: str, expected: list[str]) -> None:
    assert filters(f"SELECT * FROM t WHERE {where}") == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT * FROM t JOIN u ON t.k = u.k WHERE t.a = 1 AND u.b = 2", ["a = number:1"]),
        ("SELECT * FROM t, u WHERE t.a = 1", ["a = number:1"]),
        ("SELECT * FROM t x JOIN u ON x.k = u.k WHERE x.a = 1 AND t.a = 2", ["a = number:1"]),
        ("SELECT * FROM t JOIN u ON t.k = u.k WHERE a = 1", []),
        ("SELECT * FROM u LEFT JOIN t ON t.k = u.k WHERE t.a IS NULL", []),
        ("SELECT * FROM t FULL JOIN u ON t.k = u.k WHERE t.a = 1", []),
        ("SELECT * FROM (SELECT * FROM t) WHERE a = 1", []),
        ("SELECT * FROM (SELECT * FROM t WHERE a = 1)", ["a = number:1"]),
        ("SELECT * FROM t TABLESAMPLE (10 ROWS) WHERE a = 1", []),
        ("SELECT * FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.a = 1)", ["a = number:1"]),
        ("SELECT a FROM t GROUP BY a HAVING a = 1", []),
        ("WITH c AS (SELECT * FROM t WHERE a = 1) SELECT * FROM c WHERE b = 2", ["a = number:1"]),
    ],
)
def test_conditions_apply_only_to_the_filtered_relation(query: str, expected: list[str]) -> None:
    assert filters(query) == expected


@pytest.mark.parametrize(
    ("query", "unordered"),
    [
        ("SELECT count(*), max(a) FROM t", True),
        ("SELECT a, sum(b) FROM t WHERE c = 1 GROUP BY a HAVING count(*) > 1", True),
        ("SELECT bit_xor(hash(a, b)) FROM t", True),
        ("SELECT a FROM t", False),
        ("SELECT a FROM t LIMIT 3", False),
        ("SELECT collect_list(a) FROM t", False),
        ("SELECT count(*), first(a) FROM t", False),
        ("SELECT count(*), my_function(a) FROM t", False),
        ("SELECT sum(a) OVER (ORDER BY b) FROM t", False),
        ("SELECT count(*) FROM (SELECT a, row_number() OVER (ORDER BY b) FROM t)", False),
    ],
)
def test_order_insensitive_aggregates_are_recognised(query: str, unordered: bool) -> None:
    (statement,) = parse_cell(query)
    assert isinstance(statement, Query)
    (reference,) = statement.query.references
    assert reference.unordered == unordered


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT * FROM t WHERE a = 1", ()),
        (
            "SELECT * FROM t WHERE a = 1 AND b LIKE 'x%' AND (c = 1 OR d = 2)",
            ("b LIKE 'x%'", "(c = 1 OR d = 2)"),
        ),
        ("SELECT * FROM t$audit_log AS t WHERE t.a <> :n", ("t.a <> :n",)),
        ("SELECT * FROM t JOIN u ON t.a = u.a WHERE u.b + 1 = 2 AND t.a = 1", ()),
        ("SELECT * FROM t LEFT JOIN u USING (a) WHERE a = 1", ("a = 1",)),
    ],
)
def test_conditions_without_effect_on_pruning_are_listed(
    query: str, expected: tuple[str, ...]
) -> None:
    (statement,) = parse_cell(query)
    assert isinstance(statement, Query)
    assert statement.query.references[0].other_conditions == expected
