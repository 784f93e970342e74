"""DELETE and UPDATE change the rows that Spark finds for their condition, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from paimon_magics import Session
from paimon_magics.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KEYED = {
    "fixed": "'bucket' = '2'",
    "dynamic": "'bucket' = '-1', 'changelog-producer' = 'input'",
    "vectors": "'bucket' = '1', 'deletion-vectors.enabled' = 'true'",
    "orc": "'bucket' = '1', 'file.format' = 'orc', 'changelog-producer' = 'lookup'",
    "partial": "'bucket' = '1', 'merge-engine' = 'partial-update', "
    "'partial-update.remove-record-on-delete' = 'true'",
    "postponed": "'bucket' = '-2'",
}


@pytest.fixture(scope="module")
def shop(spark: SparkSession, module_session: Session) -> Session:
    spark.sql("SELECT 3 AS id UNION ALL SELECT NULL").createOrReplaceTempView("gone")
    return module_session


def rows(session: Session, table: str, order: str = "k") -> list[tuple[Any, ...]]:
    found = session.run(f"SELECT * FROM {table} ORDER BY {order}").to_pylist()
    return [tuple(row.values()) for row in found]


@pytest.mark.parametrize("name", KEYED)
def test_rows_with_keys_are_changed_by_rows_of_a_kind(shop: Session, name: str) -> None:
    shop.run(
        f"CREATE TABLE {name} (k INT NOT NULL, v STRING, s STRUCT<a: INT, b: STRING>, "
        f"d INT DEFAULT 7, PRIMARY KEY (k) NOT ENFORCED) TBLPROPERTIES ({KEYED[name]});"
        f"INSERT INTO {name} SELECT id, if(id = 5, NULL, concat('v', id)), "
        "if(id = 4, NULL, struct(id, 'b')), 1 FROM range(6)"
    )
    deleted = shop.run(f"DELETE FROM {name} AS x WHERE x.v > 'v1' AND k IN (SELECT id FROM gone)")
    assert (deleted.rows_deleted, deleted.commit_kind) == (1, "APPEND")
    updated = shop.run(
        f"WITH c AS (SELECT 4 AS i) UPDATE {name} SET v = concat(v, :end), s.a = k * 10, "
        f"d = DEFAULT WHERE k >= (SELECT min(i) FROM c) OR {name}.k = 0",
        {"end": "!"},
    )
    assert updated.rows_updated == 3
    assert rows(shop, name) == [
        (0, "v0!", {"a": 0, "b": "b"}, 7),
        (1, "v1", {"a": 1, "b": "b"}, 1),
        (2, "v2", {"a": 2, "b": "b"}, 1),
        (4, "v4!", {"a": 40, "b": None}, 7),
        (5, None, {"a": 50, "b": "b"}, 7),
    ]
    nothing = shop.run(f"DELETE FROM {name} WHERE k > 100 AND v IS NULL")
    assert (nothing.rows_deleted, nothing.snapshot_id) == (0, None)


def test_conditions_on_partitions_remove_them_by_metadata(shop: Session) -> None:
    shop.run(
        "CREATE TABLE days (id INT, day DATE, h INT) PARTITIONED BY (day, h);"
        "INSERT INTO days SELECT id, date_add('2026-01-01', int(id % 3)), id % 2 FROM range(12)"
    )
    first = shop.run("DELETE FROM days WHERE day = DATE '2026-01-01' AND h IN (SELECT 1)")
    assert first.commit_kind == "OVERWRITE"
    assert shop.run("SELECT count(*) AS n FROM days").to_pylist() == [{"n": 10}]
    before = shop.run("SELECT max(snapshot_id) AS n FROM days$snapshots").to_pylist()
    assert shop.run("DELETE FROM days WHERE day = '2030-01-01'").snapshot_id is None
    assert shop.run("SELECT max(snapshot_id) AS n FROM days$snapshots").to_pylist() == before
    shop.run("DELETE FROM days")
    assert rows(shop, "days", "id") == []


def test_wrong_statements_write_nothing(shop: Session) -> None:
    shop.run(
        "CREATE TABLE checked (k INT NOT NULL, v INT NOT NULL, c VARCHAR(2), "
        "PRIMARY KEY (k) NOT ENFORCED) TBLPROPERTIES ('bucket' = '1');"
        "INSERT INTO checked VALUES (1, 1, 'a')"
    )
    for statement, error in (
        ("UPDATE checked SET v = NULL", InvalidValueError),
        ("UPDATE checked SET c = 'abc'", InvalidValueError),
        ("UPDATE checked SET v = array(1)", InvalidValueError),
        ("UPDATE checked SET v = w", UnknownNameError),
        ("DELETE FROM checked WHERE w = 1", UnknownNameError),
    ):
        with pytest.raises(error) as caught:
            shop.run(statement)
        assert caught.value.statement == statement
    assert rows(shop, "checked") == [(1, 1, "a")]
    assert shop.run("SELECT count(*) AS n FROM checked$snapshots").to_pylist() == [{"n": 1}]
