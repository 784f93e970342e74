"""Fields of structs go by name in UPDATE and MERGE, at every level, as in Spark."""

from __future__ import annotations

import json

import pytest

from paimon_magics.errors import InvalidValueError, UnknownNameError
from paimon_magics.session.session import Session

pytestmark = pytest.mark.spark

KINDS = {
    "keyed": "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1')",
    "append": "",
    "marked": "TBLPROPERTIES ('deletion-vectors.enabled' = 'true')",
}
S = "named_struct('b', 20, 'a', 10)"


@pytest.fixture(params=list(KINDS))
def table(session: Session, request: pytest.FixtureRequest) -> str:
    name = f"structs_{request.param}"
    session.run(
        f"DROP TABLE IF EXISTS {name}; "
        f"CREATE TABLE {name} (id INT, s STRUCT<a: INT, b: INT>, l ARRAY<STRUCT<a: INT, b: INT>>, "
        f"m MAP<STRING, STRUCT<a: INT, b: INT>>, d STRUCT<x: STRUCT<a: INT, b: INT>, y: INT>) "
        f"{KINDS[request.param]}; "
        f"INSERT INTO {name} VALUES (1, struct(1, 2), array(struct(1, 2)), map('k', struct(1, 2)), "
        "struct(struct(1, 2), 3))"
    )
    return name


def row(session: Session, table: str, id: int = 1) -> dict[str, object]:
    """A row as nested dicts, without the fields that are NULL."""
    text = session.run(f"SELECT to_json(struct(*)) AS j FROM {table} WHERE id = {id}").to_pandas()
    result: dict[str, object] = json.loads(text["j"][0])
    return result


SWAPPED = {
    "id": 1,
    "s": {"a": 10, "b": 20},
    "l": [{"a": 10, "b": 20}],
    "m": {"k": {"a": 10, "b": 20}},
    "d": {"x": {"a": 10, "b": 20}, "y": 5},
}


def test_update_assigns_fields_by_name(session: Session, table: str) -> None:
    session.run(
        f"UPDATE {table} SET s = {S}, l = array({S}), m = map('k', {S}), "
        f"d = named_struct('y', 5, 'x', {S})"
    )
    assert row(session, table) == SWAPPED
    session.run(f"UPDATE {table} SET d.x = named_struct('B', 2, 'A', 1)")
    assert row(session, table)["d"] == {"x": {"a": 1, "b": 2}, "y": 5}


def test_merge_assigns_fields_by_name(session: Session, table: str) -> None:
    source = (
        f"SELECT id, {S} AS s, array({S}) AS l, map('k', {S}) AS m, "
        f"named_struct('y', 5, 'x', {S}) AS d FROM VALUES (1), (2) AS v(id)"
    )
    session.run(
        f"MERGE INTO {table} t USING ({source}) src ON t.id = src.id "
        "WHEN MATCHED THEN UPDATE SET s = src.s, l = src.l, m = src.m, d = src.d "
        "WHEN NOT MATCHED THEN INSERT (id, s, l, m, d) "
        f"VALUES (src.id, {S}, src.l, src.m, src.d)"
    )
    assert row(session, table) == SWAPPED
    assert row(session, table, 2) == {**SWAPPED, "id": 2}


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        ("named_struct('a', 1, 'c', 2)", UnknownNameError, "no field `c`"),
        ("struct(1, 2)", UnknownNameError, "no field `col1`"),
        ("named_struct('a', 1)", InvalidValueError, "lacks the field `b`"),
    ],
)
def test_a_struct_with_other_fields_is_refused(
    session: Session, table: str, value: str, error: type[Exception], says: str
) -> None:
    before = row(session, table)
    for statement in (
        f"UPDATE {table} SET s = {value}",
        f"UPDATE {table} SET d.x = {value}",
        f"MERGE INTO {table} t USING (SELECT 1 AS id, {value} AS v) src ON t.id = src.id "
        "WHEN MATCHED THEN UPDATE SET s = src.v",
        f"MERGE INTO {table} t USING (SELECT 1 AS id, array({value}) AS v) src ON t.id = src.id "
        "WHEN MATCHED THEN UPDATE SET l = src.v",
    ):
        with pytest.raises(error, match=says):
            session.run(statement)
    assert row(session, table) == before


LACKING = (
    "SELECT id, named_struct('b', 20) AS s, array(named_struct('b', 20), named_struct('b', 21)) "
    "AS l, map('k', named_struct('b', 20), 'n', named_struct('b', 21)) AS m, "
    "named_struct('x', named_struct('a', 10)) AS d FROM VALUES (1), (2) AS v(id)"
)
STAR = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


def test_star_with_incomplete_struct_is_refused(session: Session, table: str) -> None:
    before = row(session, table)
    for column in ("s", "l", "m", "d"):
        others = [name for name in ("s", "l", "m", "d") if name != column]
        source = f"SELECT t.id, x.{column}, {', '.join(f't.{name}' for name in others)} "
        source += f"FROM {table} t JOIN ({LACKING}) x ON t.id = x.id"
        with pytest.raises(InvalidValueError, match="lacks the field"):
            session.run(f"MERGE INTO {table} t USING ({source}) src ON t.id = src.id {STAR}")
    assert row(session, table) == before


def test_merge_schema_assigns_null_to_fields_missing_in_a_value(
    session: Session, table: str
) -> None:
    """As in Spark and Paimon's connector: SET names the whole struct, which `*` does not."""
    session.spark.conf.set("spark.paimon.write.merge-schema", "true")
    try:
        session.run(
            f"MERGE INTO {table} t USING ({LACKING}) src ON t.id = src.id WHEN MATCHED THEN UPDATE "
            "SET s = src.s, t.l = src.l, d = src.d WHEN NOT MATCHED THEN INSERT (id, s) VALUES "
            "(src.id, src.s)"
        )
    finally:
        session.spark.conf.unset("spark.paimon.write.merge-schema")
    assert row(session, table) == {
        "id": 1,
        "s": {"b": 20},
        "l": [{"b": 20}, {"b": 21}],
        "m": {"k": {"a": 1, "b": 2}},
        "d": {"x": {"a": 10}},
    }
    assert row(session, table, 2) == {"id": 2, "s": {"b": 20}}


def test_merge_schema_star_keeps_fields_missing_in_source(session: Session, table: str) -> None:
    session.spark.conf.set("spark.paimon.write.merge-schema", "true")
    try:
        session.run(f"MERGE INTO {table} t USING ({LACKING}) src ON t.id = src.id {STAR}")
    finally:
        session.spark.conf.unset("spark.paimon.write.merge-schema")
    assert row(session, table) == {
        "id": 1,
        "s": {"a": 1, "b": 20},
        "l": [{"a": 1, "b": 20}, {"b": 21}],
        "m": {"k": {"a": 1, "b": 20}, "n": {"b": 21}},
        "d": {"x": {"a": 10, "b": 2}, "y": 3},
    }
    assert row(session, table, 2) == {
        "id": 2,
        "s": {"b": 20},
        "l": [{"b": 20}, {"b": 21}],
        "m": {"k": {"b": 20}, "n": {"b": 21}},
        "d": {"x": {"a": 10}},
    }
