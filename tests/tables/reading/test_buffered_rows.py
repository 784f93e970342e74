"""Rows merged with those of a table before they are in it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable
from paimon_magics.tables.reading.applied_changes import merged_on_top, needs_rows_below
from paimon_magics.tables.schema.types import arrow_schema


def table_schema(
    options: str = "", columns: str = "k INT NOT NULL, n INT, v STRING"
) -> TableSchema:
    statement = parse_statement(
        f"CREATE TABLE t ({columns}) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1'{options})"
    )
    assert isinstance(statement, CreateTable)
    return plan_create_table(statement)


def merged(
    options: str,
    below: list[tuple[object, ...]],
    rows: list[tuple[object, ...]],
    columns: str = "k INT NOT NULL, n INT, v STRING",
) -> list[tuple[object, ...]]:
    made = table_schema(options, columns)
    schema = arrow_schema(made)

    def table(values: list[tuple[object, ...]]) -> pa.Table:
        arrays = list(zip(*values, strict=True)) if values else [()] * len(schema)
        return pa.table(
            [pa.array(list(a), f.type) for a, f in zip(arrays, schema, strict=True)], schema
        )

    found = merged_on_top(made, table(below), table(rows)).to_pylist()
    return sorted(tuple(row.values()) for row in found)


MANY = [(1, n, f"{n}") for n in range(500)]


@pytest.mark.parametrize(
    ("options", "below", "rows", "expected"),
    [
        ("", [], [(1, 2, "a"), (2, 0, "x"), (1, 1, "b")], [(1, 1, "b"), (2, 0, "x")]),
        ("", [], MANY, [(1, 499, "499")]),
        (", 'sequence.field' = 'n'", [(1, 300, "t")], [(1, 2, "a")], [(1, 300, "t")]),
        (", 'sequence.field' = 'n'", [(1, 3, "t")], MANY[::-1], [(1, 499, "499")]),
        (", 'merge-engine' = 'first-row'", [(1, 0, "t")], [(1, 2, "a"), (2, 1, "b"), (2, 2, "c")],
         [(1, 0, "t"), (2, 1, "b")]),
        (", 'merge-engine' = 'partial-update'", [(1, 5, "t")], [(1, None, "a"), (1, None, None)],
         [(1, 5, "a")]),
        (", 'merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum'",
         [(1, 5, "t"), (2, 1, "u")], [*MANY, (2, 2, None)],
         [(1, 5 + sum(range(500)), "499"), (2, 3, "u")]),
    ],
)  # fmt: skip
def test_buffered_rows_are_merged_by_the_merge_engine(
    options: str,
    below: list[tuple[object, ...]],
    rows: list[tuple[object, ...]],
    expected: list[tuple[object, ...]],
) -> None:
    assert merged(options, below, rows) == expected
    assert needs_rows_below(table_schema(options)) == bool(below)


def test_delete_removes_all_buffered_rows_of_its_key() -> None:
    options = ", 'rowkind.field' = 'v'"
    rows = [(1, 1, "+I"), (2, 1, "+I"), (1, 1, "-D"), (3, 1, "-D"), (3, 2, "+I")]
    assert merged(options, [], rows) == [(2, 1, "+I"), (3, 2, "+I")]
