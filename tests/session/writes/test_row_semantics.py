"""Rows of one key: what a statement of ours leaves is what Java's writer leaves for the same rows.

Each case is written twice, by statements of ours into one table and by Java's writer into another
of the same definition; everything that Java can tell of the two must then be equal: the merged
rows, the rows with their kinds (deletes that are kept), and the changes where they are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap

from paimon_magics import Session
from tests.oracle.java_reader import JavaPaimon
from tests.sampling import sampled

pytestmark = [pytest.mark.spark, pytest.mark.java]

Row = tuple[Any, ...]


D = Decimal
BITS = [BitMap(numbers).serialize() for numbers in ((1, 5), (5, 70_000), (9,))]


@dataclass(frozen=True)
class Case:
    """Columns beside the key `k INT`, options, and the rows of each statement."""

    name: str
    columns: str
    options: str
    statements: tuple[tuple[Row, ...], ...]

    def schema(self, name: str) -> str:
        options = f"'primary-key' = 'k', {self.options}".rstrip(", ")
        bucket = "" if "'bucket'" in options else "'bucket' = '1', "
        columns = f"k INT NOT NULL, {self.columns}"
        return f"CREATE TABLE {name} ({columns}) TBLPROPERTIES ({bucket}{options})"


SEQUENCES = [
    Case(
        "one field, NULLs and equal numbers",
        "n INT, v STRING",
        "'sequence.field' = 'n'",
        (
            (
                (1, 5, "new"),
                (1, 3, "old"),
                (2, None, "null"),
                (3, 1, "a"),
                (3, 1, "b"),
                (4, 1, "c"),
            ),
            ((1, 4, "older"), (2, 1, "number"), (3, 1, "c"), (4, None, "null"), (5, None, "x")),
            ((5, None, "y"), (4, 0, "lower")),
        ),
    ),
    Case(
        "several fields",
        "a INT, b BIGINT, v STRING",
        "'sequence.field' = 'a,b'",
        (
            ((1, 1, 9, "x"), (1, 2, 0, "y"), (2, 1, None, "x"), (2, 1, -5, "y"), (3, None, 7, "x")),
            ((1, 2, -1, "z"), (2, None, 100, "z"), (3, None, 8, "y"), (4, 1, 1, "x")),
            ((1, 2, 0, "equal"), (3, None, None, "z"), (4, 1, 0, "y")),
        ),
    ),
    Case(
        "descending",
        "n INT, v STRING",
        "'sequence.field' = 'n', 'sequence.field.sort-order' = 'descending'",
        (
            ((1, 5, "new"), (1, 3, "old"), (2, None, "null"), (3, 1, "a"), (3, 1, "b")),
            ((1, 4, "older"), (2, 1, "number"), (3, 1, "c"), (4, None, "x")),
            ((1, 3, "equal"), (4, 9, "y"), (2, None, "again")),
        ),
    ),
    Case(
        "a timestamp and a decimal",
        "at TIMESTAMP_NTZ(3), d DECIMAL(20, 2), v STRING",
        "'sequence.field' = 'd'",
        (
            ((1, None, D(5), "x"), (1, None, D(-7), "y"), (2, None, None, "x")),
            ((1, None, D(5), "z"), (2, None, D(-1), "y")),
        ),
    ),
    Case(
        "with deletes",
        "n INT, v STRING, op STRING",
        "'sequence.field' = 'n', 'rowkind.field' = 'op'",
        (
            ((1, 5, "x", "+I"), (2, 5, "x", "+I"), (3, 5, "x", "+I"), (4, 1, "x", "-D")),
            ((1, 4, "late", "-D"), (2, 6, "gone", "-D"), (3, 5, "equal", "-D"), (4, 0, "x", "+I")),
            ((2, 5, "never back", "+I"), (3, 9, "back", "+I")),
        ),
    ),
]

KINDS = [
    Case(
        f"{engine}{extra}",
        "v STRING, op STRING",
        f"'merge-engine' = '{engine}', 'rowkind.field' = 'op'{extra}"
        + ("" if engine == "first-row" else ", 'changelog-producer' = 'input'"),
        (
            ((1, "a", "+I"), (2, "b", "+I"), (3, "c", "+I"), (3, "c", "-D"), (4, "d", "+U")),
            ((1, "a", "-U"), (1, "a2", "+U"), (2, None, "-D"), (5, "e", "-D"), (4, "d", "-U")),
            ((2, "back", "+I"), (5, "new", "+I"), (6, "f", "+I")),
            ((6, "f", "-D"),),
        ),
    )
    for engine, extra in (
        ("deduplicate", ""),
        ("partial-update", ", 'partial-update.remove-record-on-delete' = 'true'"),
        ("partial-update", ", 'ignore-delete' = 'true'"),
        ("deduplicate", ", 'ignore-delete' = 'true'"),
        ("deduplicate", ", 'ignore-update-before' = 'true'"),
        (
            "aggregation",
            ", 'fields.v.ignore-retract' = 'true', 'fields.op.ignore-retract' = 'true'",
        ),
        ("aggregation", ", 'aggregation.remove-record-on-delete' = 'true'"),
        ("first-row", ", 'ignore-delete' = 'true', 'write-only' = 'true'"),
    )
]

PARTIAL = [
    Case(
        "plain",
        "a INT, b STRING",
        "'merge-engine' = 'partial-update'",
        (((1, 5, None), (1, None, "x"), (2, None, None)), ((1, None, "y"), (2, 7, None))),
    ),
    Case(
        "sequence groups",
        "a INT, g1 INT, b STRING, c STRING, g2 INT, d INT",
        "'merge-engine' = 'partial-update', 'fields.g1.sequence-group' = 'a', "
        "'fields.g2.sequence-group' = 'b,c'",
        (
            (
                (1, 1, 5, "x", "x", 5, 1),
                (1, 2, 4, "y", None, 6, None),
                (2, 1, None, "x", "x", 1, 1),
            ),
            (
                (1, 3, None, "z", "z", 3, 3),
                (2, 2, 1, "y", "y", None, None),
                (3, 1, 1, "a", "a", 1, 1),
            ),
            ((3, None, 2, None, None, 0, None), (1, 9, 5, None, "w", 6, None)),
        ),
    ),
    Case(
        "sequence groups of two fields",
        "a INT, g1 INT, g2 INT, b INT",
        "'merge-engine' = 'partial-update', 'fields.g1,g2.sequence-group' = 'a,b'",
        (
            ((1, 1, 5, 5, 1), (1, 2, 5, 4, 2), (2, 1, 1, None, 1)),
            ((1, 3, 6, 0, None), (2, 2, 1, 0, 2)),
        ),
    ),
    Case(
        "sequence groups with aggregates",
        "a INT, b INT, c STRING, g INT, h INT, d INT",
        "'merge-engine' = 'partial-update', 'fields.g.sequence-group' = 'a,b', "
        "'fields.h.sequence-group' = 'c,d', 'fields.a.aggregate-function' = 'sum', "
        "'fields.b.aggregate-function' = 'max', 'fields.c.aggregate-function' = 'first_value', "
        "'fields.d.aggregate-function' = 'last_value'",
        (
            ((1, 1, 5, "x", 5, 1, 1), (1, 2, 4, "y", 4, 0, 2), (2, 1, 1, None, 1, 1, 1)),
            (
                (1, 3, 9, "z", 3, 3, 3),
                (2, None, None, "y", 2, 2, None),
                (1, 10, 10, "w", None, 1, 1),
            ),
        ),
    ),
    Case(
        "sequence groups with deletes",
        "a INT, g INT, b INT, op STRING",
        "'merge-engine' = 'partial-update', 'fields.g.sequence-group' = 'a', "
        "'rowkind.field' = 'op', 'partial-update.remove-record-on-sequence-group' = 'g'",
        (
            ((1, 1, 1, 1, "+I"), (2, 1, 1, 1, "+I"), (3, 1, 5, 1, "+I")),
            ((1, 1, 2, 1, "-D"), (2, 1, 0, 1, "-D"), (3, None, 6, None, "-D")),
            ((1, 7, 3, 7, "+I"), (3, 8, 1, 8, "+I")),
        ),
    ),
    Case(
        "sequence groups with deletes that only retract",
        "a INT, g INT, b INT, op STRING",
        "'merge-engine' = 'partial-update', 'fields.g.sequence-group' = 'a', "
        "'rowkind.field' = 'op'",
        (
            ((1, 1, 1, 1, "+I"), (2, 1, 1, 1, "+I")),
            ((1, 1, 2, 1, "-D"), (2, 1, 0, 1, "-D")),
            ((1, 7, 3, 7, "+I"),),
        ),
    ),
    Case(
        "a sequence field",
        "n INT, a INT, b STRING",
        "'merge-engine' = 'partial-update', 'sequence.field' = 'n'",
        (
            ((1, 5, 5, None), (1, 4, 4, "x"), (2, None, 1, None)),
            ((1, 3, 3, "y"), (2, 1, None, "z")),
            ((1, 6, None, "w"),),
        ),
    ),
]


# function → type, options of the column, and each statement's values of the keys 1, 1, 2 and 3.
_FUNCTIONS: dict[str, tuple[str, str, list[Any], list[Any]]] = {
    **{
        function: ("INT", "", [3, 2, None, 7], [None, 4, 5, -7])
        for function in (
            "sum",
            "product",
            "max",
            "min",
            "last_value",
            "last_non_null_value",
            "first_value",
            "first_non_null_value",
            "first_not_null_value",
        )
    },
    "sum#2": (
        "DECIMAL(10, 2)",
        "",
        [D("0.50"), D("2.25"), None, D("1")],
        [None, D("1"), None, D("-1")],
    ),
    "sum#3": ("DOUBLE", "", [0.5, 0.25, None, 1.0], [1.0, None, -0.5, -1.0]),
    "max#2": ("STRING", "", ["b", "a", None, ""], ["", None, "z", "c"]),
    "min#2": ("DOUBLE", "", [0.5, 0.25, None, 1.0], [1.0, None, -0.5, -1.0]),
    "listagg": ("STRING", "", ["b", "a", None, "c"], ["b", None, "z", ""]),
    "listagg#2": (
        "STRING",
        "'{}.list-agg-delimiter' = ';', '{}.distinct' = 'true'",
        ["b", "a", None, "c"],
        ["b", "a", "z", "c"],
    ),
    "bool_and": ("BOOLEAN", "", [True, True, None, True], [False, None, True, True]),
    "bool_or": ("BOOLEAN", "", [False, True, None, False], [False, None, True, False]),
    "collect": ("ARRAY<INT>", "", [[1, 2], [2], None, [3]], [[3, 1], [], [4], None]),
    "collect#2": (
        "ARRAY<INT>",
        "'{}.distinct' = 'true'",
        [[1, 2], [2], None, [3]],
        [[3, 1], [], [4], [3]],
    ),
    "merge_map": (
        "MAP<STRING, INT>",
        "",
        [[("a", 1)], [("b", 2)], None, [("c", 3)]],
        [[("a", 3)], [("b", None)], [("c", 1)], None],
    ),
    "nested_update": (
        "ARRAY<STRUCT<x: INT, y: STRING>>",
        "'{}.nested-key' = 'x'",
        [[{"x": 1, "y": "a"}], [{"x": 2, "y": "b"}], None, [{"x": 1, "y": "a"}]],
        [[{"x": 1, "y": "c"}], None, [{"x": 5, "y": None}], [{"x": 1, "y": "b"}]],
    ),
    "nested_update#2": (
        "ARRAY<STRUCT<x: INT, y: STRING>>",
        "",
        [[{"x": 1, "y": "a"}], [{"x": 2, "y": "b"}], None, [{"x": 1, "y": "a"}]],
        [[{"x": 1, "y": "c"}], None, [{"x": 5, "y": None}], [{"x": 1, "y": "b"}]],
    ),
    "rbm32": ("BYTES", "", [BITS[0], BITS[1], None, BITS[2]], [BITS[2], None, BITS[0], BITS[1]]),
}

AGGREGATES = [
    Case(
        "every function",
        ", ".join(f"`{name}` {text}" for name, (text, *_) in _FUNCTIONS.items()),
        "'merge-engine' = 'aggregation', "
        + ", ".join(
            f"'fields.{name}.aggregate-function' = '{name.partition('#')[0]}'"
            + (f", {options.format(f'fields.{name}', f'fields.{name}')}" if options else "")
            for name, (_, options, *_) in _FUNCTIONS.items()
        ),
        tuple(
            tuple(
                (key, *(values[turn][at] for _, _, *values in _FUNCTIONS.values()))
                for at, key in enumerate((1, 1, 2, 3))
            )
            for turn in (0, 1)
        ),
    )
]

CASES = {
    f"{kind}: {case.name}": case
    for kind, cases in (
        ("sequence", SEQUENCES),
        ("kinds", KINDS),
        ("partial update", PARTIAL),
        ("aggregation", AGGREGATES),
    )
    for case in cases
}


def literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case str():
            return f"'{value}'"
        case float():
            return f"{value!r}D"
        case bytes():
            return f"X'{value.hex()}'"
        case list() if value and isinstance(value[0], tuple):
            return f"map({', '.join(f'{literal(k)}, {literal(v)}' for k, v in value)})"
        case list():
            return f"array({', '.join(map(literal, value))})"
        case dict():
            fields = (f"{literal(key)}, {literal(item)}" for key, item in value.items())
            return f"named_struct({', '.join(fields)})"
        case _:
            return str(value)


def known_by_java(java: JavaPaimon, warehouse: Path, name: str) -> dict[str, list[Row]]:
    def rows(table: str, options: dict[str, str] | None = None) -> list[Row]:
        return java.rows(warehouse, f"default.{table}", options)

    found = {
        "rows": sorted(rows(name), key=repr),
        "kinds": sorted(rows(f"{name}$audit_log"), key=repr),
    }
    for snapshot in sorted(row[0] for row in rows(f"{name}$snapshots")):
        window = {"incremental-between": f"{snapshot - 1},{snapshot}"}
        changes = rows(f"{name}$audit_log", window)
        # What Java gathers in sets and maps has their order until it is merged with other rows.
        found[f"changes {snapshot}"] = [
            tuple(sorted(v, key=repr) if isinstance(v, list) else v for v in row) for row in changes
        ]
    return found


@pytest.mark.parametrize("case", sampled(CASES))
def test_rows_of_a_key_end_as_with_javas_writer(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, case: Case
) -> None:
    session.run(f"{case.schema('ours')}; {case.schema('javas')}")
    for number, rows in enumerate(case.statements):
        values = ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
        form = "VALUES {}" if number % 2 == 0 else "SELECT * FROM (VALUES {})"
        session.run(f"INSERT INTO ours {form.format(values)}")
        java_paimon.write(warehouse, "default.javas", rows)
    ours = known_by_java(java_paimon, warehouse, "ours")
    assert ours == known_by_java(java_paimon, warehouse, "javas")
