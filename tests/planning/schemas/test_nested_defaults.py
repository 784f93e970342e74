"""Defaults of nested types: kept where Paimon and Spark read them alike, else refused."""

from __future__ import annotations

import re

import pytest

from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable


def schema(type_name: str, default: str) -> TableSchema:
    statement = parse_statement(f"CREATE TABLE t (c {type_name} DEFAULT {default})")
    assert isinstance(statement, CreateTable)
    return plan_create_table(statement)


@pytest.mark.parametrize(
    ("type_name", "text"),
    [
        ("ARRAY<INT>", "ARRAY(1, 2, 3)"),
        ("ARRAY<STRING>", "array()"),
        ("ARRAY<DECIMAL(5, 2)>", "ARRAY ( 1.50 , null )"),
        ("MAP<INT, DOUBLE>", "map()"),
        ("MAP<INT, DOUBLE>", "map(99, 99.99D)"),
        ("MAP<BIGINT, STRING>", 'map(9999, "hello you")'),
        ("MAP<STRING, DATE>", 'MAP("a", "2026-01-31")'),
        ("MAP<STRING, ARRAY<INT>>", 'MAP("a", ARRAY(1, 2), "b", null)'),
        ("STRUCT<a: BOOLEAN, b: FLOAT>", "STRUCT(true, 1.5)"),
        ("ARRAY<STRUCT<a: INT, b: MAP<STRING, INT>>>", 'ARRAY(STRUCT(1, MAP("k", 2)))'),
    ],
)
def test_default_that_paimon_and_spark_read_alike_is_kept(type_name: str, text: str) -> None:
    assert schema(type_name, text).columns[0].default == text


@pytest.mark.parametrize(
    ("type_name", "text", "hint"),
    [
        ("ARRAY<STRING>", "ARRAY('a')", "Paimon keeps the quotes of texts"),
        ("ARRAY<STRING>", 'ARRAY("a")', "Only a MAP can have plain texts"),
        ("ARRAY<STRING>", "ARRAY(a)", "no plain literal"),
        ("ARRAY<INT>", "ARRAY(1,)", "plain literal of INT"),
        ("ARRAY<INT>", "ARRAY(1 2)", "Put a comma"),
        ("ARRAY<INT>", "ARRAY(1) || ARRAY(2)", "a single value"),
        ("ARRAY<INT>", "MAP(1, 2)", r"Write ARRAY\("),
        ("ARRAY<INT>", "ARRAY(5000000000)", "5000000000 is no plain literal that fits INT"),
        ("ARRAY<INT NOT NULL>", "ARRAY(null)", "fits INT"),
        ("ARRAY<TIMESTAMP>", "ARRAY(now())", "plain literal"),
        ("ARRAY<BINARY>", "ARRAY(1)", "fits BYTES"),
        ("MAP<INT, INT>", "MAP(1)", "key, value"),
        ("MAP<INT, INT>", "MAP(1, 2, 01, 3)", "Keys of a MAP differ"),
        ("MAP<INT, INT>", "MAP(null, 2)", "null is no plain literal"),
        ("MAP<STRING, INT>", "MAP('a', 2)", "in double quotes"),
        ("MAP<STRING, INT>", 'MAP("a,b", 2)', "plain texts"),
        ("MAP<STRING, INT>", 'MAP("null", 2)', "plain texts"),
        ("STRUCT<a: INT, b: INT>", "STRUCT(1)", "2 values"),
        ("STRUCT<a: INT, b: INT>", "STRUCT(1, 2, 3)", "2 values"),
        ("STRUCT<a: INT, b: INT>", "named_struct('a', 1, 'b', 2)", r"Write STRUCT\("),
    ],
)
def test_default_that_paimon_would_read_differently_is_refused(
    type_name: str, text: str, hint: str
) -> None:
    with pytest.raises(InvalidTableError, match="can't have the default") as caught:
        schema(type_name, text)
    assert re.search(hint, caught.value.hint)
