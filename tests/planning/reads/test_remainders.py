from __future__ import annotations

import pytest

from paimon_magics.planning.reads.predicates import ColumnPredicate, remainder_predicates
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import Delete

COLUMNS = (
    Column(0, "k", AtomicType("BIGINT")),
    Column(1, "odd name", AtomicType("INT")),
    Column(2, "d", AtomicType("DOUBLE")),
    Column(3, "s", AtomicType("STRING")),
)


def found(condition: str, alias: str = "") -> tuple[ColumnPredicate, ...]:
    """Those of a DELETE, by the texts that the grammar gives of its terms."""
    statement = parse_statement(f"DELETE FROM t {alias} WHERE {condition}")
    assert isinstance(statement, Delete)
    (reference,) = statement.selection.query.references
    return remainder_predicates(reference.other_conditions, reference.alias, COLUMNS)


@pytest.mark.parametrize(
    ("condition", "alias", "values"),
    [
        ("k % 100 = 3", "", (100, 3)),
        ("K % 100 = 3 AND s = 'x'", "", (100, 3)),
        ("(k % 7 = -1)", "", (7, -1)),
        ("t.k % 2 = 0", "", (2, 0)),
        ("x.k % 2 = 0", "AS x", (2, 0)),
        ("`k` % 2 = 0", "", (2, 0)),
    ],
)
def test_remainder_condition_is_recognised(
    condition: str, alias: str, values: tuple[int, int]
) -> None:
    assert found(condition, alias) == (ColumnPredicate("k", "remainder", values),)


@pytest.mark.parametrize(
    "condition",
    [
        *("k % 100 <> 3", "k % 100 > 3", "k % 0 = 1", "-k % 100 = 3", "k % k = 0", "k % 2.5 = 1"),
        *("NOT k % 100 = 3", "k % 100 = 3 OR s = 'x'", "k % 100 = :r", "k + 1 % 100 = 3"),
        *("d % 100 = 3", "s % 100 = 3", "100 % k = 3", "k % 100 = 3 + 1", "other.k % 100 = 3"),
        *("k % 100 = 99999999999", "(k + 1) % 10 = 0", "pmod(k, 10) = 1", "k.f % 10 = 1"),
    ],
)
def test_other_conditions_give_no_remainder_predicate(condition: str) -> None:
    assert found(condition) == ()
