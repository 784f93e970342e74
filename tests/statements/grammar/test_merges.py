"""MERGE INTO is read as Spark's grammar has it, and its texts stay the user's own."""

from __future__ import annotations

import pytest

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import (
    DeleteAction,
    InsertAction,
    MergeInto,
    TextRange,
    UpdateAction,
)


def merge(text: str) -> MergeInto:
    result = parse_statement(text)
    assert isinstance(result, MergeInto)
    assert len(result.source_text) == len(text)
    return result


def test_merge_clauses_keep_their_texts() -> None:
    text = (
        "MERGE INTO shop.t AS x USING (SELECT 1 AS id) y ON x.id = y.id "
        "AND CASE WHEN y.f THEN x.f ELSE true END "
        "WHEN MATCHED AND CASE WHEN x.a THEN y.b END THEN UPDATE SET x.v = CASE WHEN y.v > :n "
        "THEN 1 ELSE 2 END, s.a = y.end "
        "WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED BY TARGET THEN INSERT (id, `v w`) VALUES (f(y.id, 1), DEFAULT) "
        "WHEN NOT MATCHED BY SOURCE AND x.n < 0 THEN UPDATE SET v = DEFAULT"
    )
    actual = merge(text)

    def shown(range: TextRange | None) -> str | None:
        return None if range is None else text[range.start : range.end]

    told: list[object] = [shown(actual.condition)]
    for clause in actual.clauses:
        match clause.action:
            case UpdateAction(assignments=assigned) | InsertAction(assignments=assigned):
                values = [(".".join(each.path), shown(each.value)) for each in assigned or ()]
            case DeleteAction():
                values = []
        told.append((clause.kind, shown(clause.condition), values))
    assert told == [
        "x.id = y.id AND CASE WHEN y.f THEN x.f ELSE true END",
        (
            "MATCHED",
            "CASE WHEN x.a THEN y.b END",
            [("x.v", "CASE WHEN y.v > :n THEN 1 ELSE 2 END"), ("s.a", "y.end")],
        ),
        ("MATCHED", None, []),
        ("NOT MATCHED", None, [("id", "f(y.id, 1)"), ("v w", None)]),
        ("NOT MATCHED BY SOURCE", "x.n < 0", [("v", None)]),
    ]
    assert actual.within.parameters == ("n",)


@pytest.mark.parametrize(
    ("text", "source", "references", "qualifiers"),
    [
        (
            "MERGE INTO shop.t USING shop.s ON shop.t.id = paimon.shop.s.id "
            "WHEN MATCHED THEN UPDATE SET v = (SELECT max(z) FROM other)",
            "TABLE shop.s",
            ["shop.s"],
            [("shop.t", "t"), ("paimon.shop.s", "s")],
        ),
        (
            "WITH c AS (SELECT * FROM q) MERGE INTO t USING c ON t.id = c.id "
            "WHEN NOT MATCHED THEN INSERT *",
            "WITH c AS (SELECT * FROM q) TABLE c",
            ["q"],
            [],
        ),
        (
            "WITH c AS (SELECT * FROM q) MERGE INTO t USING (SELECT * FROM c JOIN w) s "
            "ON t.id = s.id WHEN MATCHED THEN DELETE",
            "WITH c AS (SELECT * FROM q) (SELECT * FROM c JOIN w)",
            ["q", "w"],
            [],
        ),
        (
            "MERGE INTO t USING t VERSION AS OF 1 AS s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET *",
            "TABLE t VERSION AS OF 1",
            ["t"],
            [],
        ),
    ],
)
def test_merge_source_becomes_a_query_at_the_same_positions(
    text: str, source: str, references: list[str], qualifiers: list[tuple[str, str]]
) -> None:
    actual = merge(text)
    range = actual.source.range
    assert " ".join(actual.source_text[range.start : range.end].split()) == source
    assert [str(each.name) for each in actual.source.references] == references
    assert [(text[at.start : at.end], alias) for at, alias in actual.qualifiers] == qualifiers


@pytest.mark.parametrize(
    ("text", "said", "at"),
    [
        ("MERGE INTO t USING (VALUES (1)) s(id) ON true WHEN MATCHED THEN DELETE", "aliases", "("),
        ("MERGE INTO t USING t ON t.id = t.id WHEN MATCHED THEN DELETE", "both named", "t USING"),
        ("MERGE INTO t USING s ON t.id = s.id", "Expected WHEN", ""),
        ("MERGE INTO t USING s", "Expected `ON`", ""),
        ("MERGE INTO t USING s ON a IN (SELECT 1) WHEN MATCHED THEN DELETE", "subquery", "SELECT"),
        ("MERGE INTO t USING s ON a WHEN MATCHED THEN UPDATE SET *, v = 1", "`WHEN`", ", v"),
        (
            "MERGE INTO t USING s ON a WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET v = 1",
            "no condition",
            "WHEN MATCHED THEN DELETE",
        ),
        (
            "MERGE INTO t USING s ON a WHEN NOT MATCHED THEN INSERT (id) VALUES (1, 2)",
            "differ in length: 1 and 2",
            "(id)",
        ),
        ("MERGE INTO t USING s ON a WHEN NOT MATCHED THEN DELETE", "Expected INSERT", "DELETE"),
        (
            "MERGE INTO t USING s ON a WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *",
            "source row",
            "*",
        ),
        (
            "MERGE INTO t USING s ON a WHEN MATCHED THEN UPDATE SET n = row_number() OVER (w)",
            "Window functions",
            "OVER",
        ),
        ("MERGE INTO t VERSION AS OF 1 USING s ON a WHEN MATCHED THEN DELETE", "as it is now", "t"),
    ],
)
def test_invalid_merge_is_refused_with_its_position(text: str, said: str, at: str) -> None:
    with pytest.raises(PaimonMagicsError) as raised:
        parse_statement(text)
    assert said in raised.value.message
    assert raised.value.position is not None
    assert text[raised.value.position :].startswith(at)


def test_not_matched_clause_allows_only_insert() -> None:
    """Also where a SELECT stands before, in whose list names could need commas between them."""
    clause = "WHEN NOT MATCHED THEN UPDATE SET a = 1"
    text = f"MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id {clause}"
    with pytest.raises(PaimonMagicsError) as raised:
        parse_statement(text)
    assert raised.value.hint == "A source row without a target row can only be inserted."
