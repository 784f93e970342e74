"""Rows get the defaults of nested columns by every way to write, as Paimon's connector does."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pandas as pd
import pytest

from paimon_magics import Session
from tests.session.rows import rows

pytestmark = pytest.mark.spark

_COLUMNS = """
id BIGINT NOT NULL,
a ARRAY<INT> DEFAULT ARRAY(1, 2),
m MAP<BIGINT, STRING> DEFAULT map(9999, "hello"),
n MAP<INT, DOUBLE> DEFAULT map(),
s STRUCT<x: BOOLEAN, y: DECIMAL(5, 2)> DEFAULT STRUCT(true, 1.5)
"""
_DEFAULTS = ([1, 2], [(9999, "hello")], [], {"x": True, "y": Decimal("1.50")})


@pytest.fixture(params=["", "PRIMARY KEY (id) NOT ENFORCED"])
def table(session: Session, request: pytest.FixtureRequest) -> Session:
    key = f", {request.param}" if request.param else ""
    session.run(f"CREATE TABLE t ({_COLUMNS}{key}) TBLPROPERTIES ('bucket' = '{1 if key else -1}')")
    return session


def nested(session: Session) -> list[tuple[Any, ...]]:
    return [row[1:] for row in sorted(rows(session, "SELECT * FROM t"), key=lambda row: row[0])]


WAYS: dict[str, Any] = {
    "left out": lambda each: each.run("INSERT INTO t (id) VALUES (1)"),
    "DEFAULT": lambda each: each.run(
        "INSERT INTO t VALUES (1, DEFAULT, DEFAULT, DEFAULT, DEFAULT)"
    ),
    "NULL": lambda each: each.run("INSERT INTO t VALUES (1, NULL, NULL, NULL, NULL)"),
    "query": lambda each: each.run("INSERT INTO t (id) SELECT 1"),
    "frame": lambda each: each.write(pd.DataFrame({"id": [1]}), "t"),
    "MERGE": lambda each: each.run(
        "MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) "
        "VALUES (s.id)"
    ),
    "UPDATE": lambda each: each.run(
        "INSERT INTO t VALUES (1, array(7), map(1, 'a'), map(1, 1.0D), named_struct('x', false, "
        "'y', 2.0)); UPDATE t SET a = DEFAULT, m = DEFAULT, n = DEFAULT, s = DEFAULT WHERE id = 1"
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_row_gets_nested_defaults(table: Session, way: str) -> None:
    WAYS[way](table)
    assert nested(table) == [_DEFAULTS]


def test_given_nested_values_stay(table: Session) -> None:
    table.run(
        "INSERT INTO t VALUES (1, array(), map(), map(1, 2.5D), named_struct('x', NULL, 'y', 0))"
    )
    assert nested(table) == [([], [], [(1, 2.5)], {"x": None, "y": Decimal("0.00")})]


def test_altered_default_applies_to_new_rows(table: Session) -> None:
    table.run("INSERT INTO t (id) VALUES (1)")
    table.run("ALTER TABLE t ALTER COLUMN a SET DEFAULT array(3)")
    table.run("INSERT INTO t (id) VALUES (2)")
    assert [row[0] for row in nested(table)] == [[1, 2], [3]]
    assert "DEFAULT array(3)" in rows(table, "SHOW CREATE TABLE t")[0][0]
