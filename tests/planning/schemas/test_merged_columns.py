"""Which columns a table gets so that it takes all that a frame has."""

from __future__ import annotations

import pytest

from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.schemas.alterations import plan_alter_table
from paimon_magics.planning.schemas.merged_columns import MergeRules, merged_columns
from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.statements.data_types import RowField
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable
from paimon_magics.statements.table_changes import AddColumn, RetypeColumn
from paimon_magics.statements.types.type_text import to_spark_sql

PLAIN = MergeRules()
WIDENS = MergeRules(widens_types=True)
CASTS = MergeRules(widens_types=True, casts_explicitly=True)


def table(columns: str) -> TableSchema:
    statement = parse_statement(f"CREATE TABLE t ({columns})")
    assert isinstance(statement, CreateTable)
    return plan_create_table(statement)


def changes(own: str, given: str, rules: MergeRules = PLAIN) -> list[tuple[str, str, str]]:
    frame = [RowField(column.name, column.type) for column in table(given).columns]
    found = merged_columns(table(own), frame, rules)
    plan_alter_table(table(own), found)  # ALTER TABLE takes them as they are
    verbs = {AddColumn: "add", RetypeColumn: "retype"}
    return [(verbs[type(each)], ".".join(each.path), to_spark_sql(each.type)) for each in found]


@pytest.mark.parametrize(
    ("own", "given", "expected"),
    [
        ("a INT, b STRING", "b STRING, A INT", []),
        ("a INT", "b STRING, a INT, c DATE", [("add", "b", "STRING"), ("add", "c", "DATE")]),
        ("a INT NOT NULL", "a INT, b INT NOT NULL", [("add", "b", "INT")]),
        ("a INT", "a BIGINT", []),
        ("a INT", "a STRUCT<x: INT>", []),
        ("s STRUCT<x: INT>", "s STRUCT<y: DATE, X: INT>", [("add", "s.y", "DATE")]),
        (
            "s STRUCT<x: STRUCT<y: INT>>",
            "s STRUCT<x: STRUCT<z: INT>>, b INT",
            [("add", "s.x.z", "INT"), ("add", "b", "INT")],
        ),
        (
            "l ARRAY<STRUCT<x: INT>>, m MAP<INT, STRUCT<x: INT>>",
            "l ARRAY<STRUCT<y: INT>>, m MAP<INT, STRUCT<y: INT>>",
            [("add", "l.element.y", "INT"), ("add", "m.value.y", "INT")],
        ),
    ],
)
def test_missing_columns_are_added_and_types_stay(
    own: str, given: str, expected: list[tuple[str, str, str]]
) -> None:
    assert changes(own, given) == expected


@pytest.mark.parametrize(
    ("own", "given", "wanted"),
    [
        ("INT", "BIGINT", "BIGINT"),
        ("TINYINT", "DOUBLE", "DOUBLE"),
        ("BIGINT", "INT", None),
        ("DECIMAL(10, 2)", "DECIMAL(20, 2)", "DECIMAL(20, 2)"),
        ("DECIMAL(20, 2)", "DECIMAL(10, 2)", None),
        ("INT", "DECIMAL(20, 2)", "DECIMAL(20, 2)"),
        ("VARCHAR(10)", "STRING", "STRING"),
        ("STRING", "VARCHAR(10)", None),
        ("VARCHAR(10)", "VARCHAR(20)", "VARCHAR(20)"),
        ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ", None),
        ("ARRAY<INT>", "ARRAY<BIGINT>", "BIGINT"),
    ],
)
def test_types_are_widened_only_without_loss(own: str, given: str, wanted: str | None) -> None:
    actual = changes(f"a {own}", f"a {given}", WIDENS)
    assert [type for _, _, type in actual] == ([] if wanted is None else [wanted])


def test_struct_fields_are_widened_and_keep_not_null() -> None:
    assert changes("s STRUCT<x: INT>", "s STRUCT<x: BIGINT>", WIDENS) == [
        ("retype", "s.x", "BIGINT")
    ]
    wide = [RowField("a", table("b BIGINT").columns[0].type)]
    [change] = merged_columns(table("a INT NOT NULL"), wide, WIDENS)
    assert not change.type.nullable


@pytest.mark.parametrize(
    ("own", "given"),
    [
        ("INT", "STRING"),
        ("STRING", "DATE"),
        ("DECIMAL(10, 2)", "DECIMAL(10, 3)"),
        ("INT", "ARRAY<INT>"),
        ("MAP<INT, INT>", "MAP<BIGINT, INT>"),
    ],
)
def test_lossy_types_are_refused_with_the_column_name(own: str, given: str) -> None:
    with pytest.raises(InvalidTableError, match=r"`c` is .* in the table and"):
        changes(f"c {own}", f"c {given}", WIDENS)


def test_explicit_casts_may_be_lossy() -> None:
    assert changes("a BIGINT, b STRING", "a INT, b DATE", CASTS) == [
        ("retype", "a", "INT"),
        ("retype", "b", "DATE"),
    ]
    with pytest.raises(InvalidTableError, match="digits after the point"):
        changes("a DECIMAL(10, 2)", "a DECIMAL(10, 3)", CASTS)
