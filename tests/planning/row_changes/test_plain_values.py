"""Values that an UPDATE assigns and nobody has to evaluate: which they are, what they become."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from paimon_magics.planning.row_changes.assignments import assigned_paths
from paimon_magics.planning.row_changes.plain_values import computed, plain_values
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import Update

COLUMNS = tuple(
    Column(number, name, AtomicType(*each))
    for number, (name, each) in enumerate(
        {
            "k": ("INT", (), False),
            "tiny": ("TINYINT",),
            "i": ("INT",),
            "j": ("INT",),
            "l": ("BIGINT",),
            "must": ("INT", (), False),
            "d": ("DOUBLE",),
            "dec": ("DECIMAL", (5, 2)),
            "s": ("STRING",),
            "v": ("VARCHAR", (3,)),
            "c": ("CHAR", (3,)),
            "day": ("DATE",),
            "yes": ("BOOLEAN",),
            "at": ("TIMESTAMP", (6,)),
        }.items()
    )
)
SCHEMA = TableSchema(COLUMNS, primary_keys=("k",), options=(("bucket", "1"),))
ROWS = {
    "tiny": [127, None],
    "i": [2_147_483_647, 5],
    "j": [3, None],
    "l": [-(2**63), 7],
    "must": [1, 2],
    "d": [0.1, float("inf")],
    "dec": [Decimal("1.25"), None],
}
BOUND = {
    "n": 4,
    "big": 2**70,
    "text": "é!",
    "flag": True,
    "nan": float("nan"),
    "dec": Decimal("-0.0"),
    "none": None,
    "day": date(1999, 1, 1),
}
NOT_PLAIN = None


@pytest.mark.parametrize(
    ("assigned", "becomes"),
    [
        ("i = 5", [5, 5]),
        ("i = -5", [-5, -5]),
        ("i = i - 1", [2_147_483_646, 4]),
        ("I = t.I * -1", [-2_147_483_647, -5]),
        ("i = 10 - x.i", NOT_PLAIN),
        ("i = j", [3, None]),
        ("i = i + j", NOT_PLAIN),  # above the greatest INT
        ("j = j * j", [9, None]),
        ("j = j + NULL", [None, None]),
        ("j = j + :n", [7, None]),
        ("i = i + 1", NOT_PLAIN),
        ("i = l", NOT_PLAIN),
        ("i = i / 1", NOT_PLAIN),
        ("i = i + 1.5", NOT_PLAIN),
        ("i = 1.0", NOT_PLAIN),
        ("i = 1L", NOT_PLAIN),
        ("i = 1 + 1", NOT_PLAIN),
        ("i = (1)", [1, 1]),  # as session.update writes it
        ("i = (1) + (1)", NOT_PLAIN),
        ("i = - j", NOT_PLAIN),
        ("i = '5'", NOT_PLAIN),
        ("i = true", NOT_PLAIN),
        ("i = DEFAULT", NOT_PLAIN),
        ("i = abs(i)", NOT_PLAIN),
        ("i = j + 1 + 1", NOT_PLAIN),
        ("i = :big", NOT_PLAIN),
        ("i = :flag", NOT_PLAIN),
        ("i = NULL", [None, None]),
        ("i = :none", [None, None]),
        ("must = NULL", NOT_PLAIN),
        ("must = must + 1", [2, 3]),
        ("must = j", NOT_PLAIN),
        ("tiny = tiny - 1", [126, None]),
        ("tiny = 128", NOT_PLAIN),
        ("l = l + 1", [-(2**63) + 1, 8]),
        ("l = l - 1", NOT_PLAIN),
        ("d = d + 0.2", [0.30000000000000004, float("inf")]),
        ("d = d * 3", [0.30000000000000004, float("inf")]),
        ("d = 1", [1.0, 1.0]),
        ("d = -0.0", [0.0, 0.0]),
        ("d = :dec", NOT_PLAIN),
        ("d = :flag", NOT_PLAIN),
        ("d = 1e2", NOT_PLAIN),
        ("dec = 999.99", [Decimal("999.99")] * 2),
        ("dec = -7", [Decimal(-7)] * 2),
        ("dec = 1000", NOT_PLAIN),
        ("dec = 0.125", NOT_PLAIN),
        ("dec = dec + 1", NOT_PLAIN),
        ("s = 'it is'", ["it is", "it is"]),
        ("s = 'a' 'b'", NOT_PLAIN),
        (r"s = 'a\n'", NOT_PLAIN),
        ("s = 'it''s'", NOT_PLAIN),
        ('s = "a"', NOT_PLAIN),
        ("s = s", NOT_PLAIN),
        ("s = 5", NOT_PLAIN),
        ("s = 'a' || 'b'", NOT_PLAIN),
        ("v = :text", ["é!", "é!"]),
        ("v = 'four'", NOT_PLAIN),
        ("c = 'abc'", NOT_PLAIN),
        ("day = DATE '2024-02-29'", [date(2024, 2, 29)] * 2),
        ("day = DATE'2023-02-29'", NOT_PLAIN),
        ("day = '2024-02-29'", NOT_PLAIN),
        ("day = :day", [date(1999, 1, 1)] * 2),
        ("day = current_date", NOT_PLAIN),
        ("yes = false", [False, False]),
        ("yes = 0", NOT_PLAIN),
        ("at = :day", NOT_PLAIN),
    ],
)
def test_plain_values_are_computed_and_others_left_to_spark(
    assigned: str, becomes: list[object] | None
) -> None:
    update = parse_statement(f"UPDATE shop.t SET {assigned} WHERE k = 1")
    assert isinstance(update, Update)
    values = plain_values(update, COLUMNS, assigned_paths(update, SCHEMA))
    actual = None if values is None else computed(values[0], ROWS, 2, BOUND)
    assert actual == becomes
    if becomes is not None:
        assert list(map(str, actual or ())) == list(map(str, becomes))  # also the zero's sign


def test_single_non_plain_value_leaves_all_to_spark() -> None:
    update = parse_statement("UPDATE shop.t AS x SET i = x.j + 1, s = 'a', d = sqrt(d) WHERE k = 1")
    assert isinstance(update, Update)
    paths = assigned_paths(update, SCHEMA)
    assert plain_values(update, COLUMNS, paths) is None
    first = plain_values(update, COLUMNS, paths[:2])
    assert first is not None
    assert [(each.column.name, each.sources) for each in first] == [("i", ("j",)), ("s", ())]
