"""Statements that show: SHOW, DESCRIBE, and the metadata system tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paimon_magics import Session
from paimon_magics.errors import StatementError, UnknownNameError
from tests.oracle.java_reader import JavaPaimon
from tests.session.rows import rows

pytestmark = pytest.mark.spark


TABLES = """
CREATE TABLE {orders} (id BIGINT NOT NULL COMMENT 'the number', item STRING DEFAULT 'tea',
  dt STRING) COMMENT 'what was sold' PARTITIONED BY (dt)
  TBLPROPERTIES ('target-file-size' = '64 mb');
CREATE TABLE {users} (name STRING NOT NULL, age INT)
  TBLPROPERTIES ('primary-key' = 'name', 'bucket' = '2')
"""


@pytest.fixture(scope="module")
def shop(module_session: Session) -> Session:
    """Tables that no test changes."""
    module_session.run(
        f"{TABLES.format(orders='orders', users='users')};"
        "INSERT INTO orders VALUES (1, 'tea', 'x'), (2, 'cake', 'x'), (3, NULL, 'y'); "
        "INSERT INTO users VALUES ('ann', 1), ('bob', 2); INSERT INTO users VALUES ('ann', 3)"
    )
    return module_session


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SHOW DATABASES", [("default",)]),
        ("SHOW TABLES", [("default", "orders", False), ("default", "users", False)]),
        ("SHOW TABLES LIKE 'ord*'", [("default", "orders", False)]),
        ("SHOW TABLES IN default LIKE '*z|use*'", [("default", "users", False)]),
        ("SHOW PARTITIONS orders", [("dt=x",), ("dt=y",)]),
        ("SHOW PARTITIONS orders PARTITION (dt = 'y')", [("dt=y",)]),
        ("SHOW COLUMNS IN orders", [("id",), ("item",), ("dt",)]),
        ("SHOW TBLPROPERTIES orders ('target-file-size')", [("target-file-size", "64 mb")]),
    ],
)
def test_show_statements_list_matching_objects(
    shop: Session, query: str, expected: list[tuple[Any, ...]]
) -> None:
    assert rows(shop, query) == expected


def test_describe_lists_columns_and_partitions(shop: Session) -> None:
    described = rows(shop, "DESCRIBE orders")
    assert [row[0] for row in described[:3]] == ["id", "item", "dt"]
    assert described[0][2] == "the number"
    assert ("# Partition Information", "", "") in [tuple(v or "" for v in row) for row in described]
    extended = dict((row[0], row[1]) for row in rows(shop, "DESCRIBE EXTENDED orders"))
    assert "what was sold" in extended.values()
    assert rows(shop, "DESCRIBE orders id")[2] == ("comment", "the number")


def test_output_of_show_create_table_recreates_the_table(shop: Session) -> None:
    names = ("orders_again", "users_again")
    shop.run(TABLES.format(orders=names[0], users=names[1]))
    for name in names:
        (statement,) = rows(shop, f"SHOW CREATE TABLE {name}")[0]
        described = rows(shop, f"DESCRIBE {name}")
        shop.run(f"DROP TABLE {name}")
        shop.run(statement)
        assert rows(shop, f"DESCRIBE {name}") == described
        assert rows(shop, f"SHOW CREATE TABLE {name}") == [(statement,)]
        shop.run(f"DROP TABLE {name}")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT snapshot_id, schema_id, commit_kind, total_record_count, delta_record_count "
            "FROM users$snapshots ORDER BY 1",
            [(1, 0, "APPEND", 2, 2), (2, 0, "APPEND", 3, 1)],
        ),
        ("SELECT count(*), sum(record_count) FROM orders$files", [(2, 3)]),
        ("SELECT sum(record_count) FROM `users$files` WHERE level = 0", [(3,)]),
        (
            "SELECT partition, record_count FROM orders$partitions ORDER BY 1",
            [("dt=x", 2), ("dt=y", 1)],
        ),
        ("SELECT sum(record_count) FROM users$buckets", [(3,)]),
        ("SELECT schema_id FROM orders$schemas", [(0,)]),
        ("SELECT value FROM users$options WHERE key = 'bucket'", [("2",)]),
        ("SELECT sum(num_added_files) FROM orders$manifests", [(2,)]),
        ("SELECT count(*) FROM orders$tags", [(0,)]),
        ("SELECT count(*) FROM orders$branches", [(0,)]),
        ("SELECT count(*) FROM orders$consumers", [(0,)]),
    ],
)
def test_metadata_system_tables_can_be_queried(
    shop: Session, query: str, expected: list[tuple[Any, ...]]
) -> None:
    assert rows(shop, query) == expected


@pytest.mark.java
@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("users$snapshots", "snapshot_id, commit_user, commit_kind, total_record_count"),
        ("orders$files", "file_format, schema_id, level, record_count, file_size_in_bytes"),
        ("orders$schemas", "schema_id, fields, partition_keys, primary_keys, comment"),
        ("users$options", "key, value"),
        ("orders$manifests", "file_name, file_size, num_added_files, num_deleted_files"),
    ],
)
def test_metadata_system_tables_match_java(
    shop: Session, java_paimon: JavaPaimon, module_warehouse: Path, table: str, columns: str
) -> None:
    names = [field.name for field in shop.table(table).schema]
    wanted = columns.split(", ")
    ours = sorted(rows(shop, f"SELECT {columns} FROM {table}"))
    java = [
        dict(zip(names, row, strict=True))
        for row in java_paimon.rows(module_warehouse, f"default.{table}")
    ]
    assert ours == sorted(tuple(row[name] for name in wanted) for row in java)


def test_database_and_system_table_are_described(shop: Session) -> None:
    assert ("snapshot_id", "bigint") in [row[:2] for row in rows(shop, "DESCRIBE orders$snapshots")]
    assert ("Namespace Name", "default") in rows(shop, "DESCRIBE DATABASE default")


def test_show_views_omits_internal_table_views(shop: Session) -> None:
    assert rows(shop, "SELECT count(*) FROM orders") == [(3,)]
    shop.table("orders").createOrReplaceTempView("mine")
    try:
        assert rows(shop, "SHOW VIEWS") == [("", "mine", True)]
        assert rows(shop, "SHOW VIEWS IN default LIKE 'other*'") == []
        with pytest.raises(UnknownNameError, match="no database `nowhere`"):
            shop.run("SHOW VIEWS IN nowhere")
    finally:
        shop.spark.catalog.dropTempView("mine")


@pytest.mark.parametrize("text", ["SHOW PROCEDURES", "SHOW PROCEDURES IN paimon.sys"])
def test_show_procedures_lists_paimon_procedures(shop: Session, text: str) -> None:
    procedures = dict(rows(shop, text))
    assert procedures["sys.create_tag"] == "table, tag [, snapshot] [, time_retained]"
    assert procedures["sys.compact_database"].startswith("[including_databases] [")


def test_describe_history_returns_table_history(shop: Session) -> None:
    history = shop.history("users").to_arrow()
    assert shop.run("DESCRIBE HISTORY users").to_arrow() == history
    assert shop.run("DESC HISTORY default.users").to_arrow() == history
    with pytest.raises(UnknownNameError, match="no table `user`"):
        shop.run("DESCRIBE HISTORY user")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("OPTIMIZE ordrs", "Did you mean `orders`"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "CREATE TABLE t AS SELECT"),
        ("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT 1", "INSERT OVERWRITE"),
        ("CREATE TABLE c SHALLOW CLONE orders", "CREATE TABLE c LIKE orders"),
        ("CREATE TABLE c (id BIGINT GENERATED ALWAYS AS (x * 2))", "compute the column"),
        ("ALTER DATABASE shop SET LOCATION '/x'", "Connect to a warehouse at that location"),
        ("COPY INTO '/x' FROM orders", "TYPE = CSV"),
        ("EXPORT TABLE orders TO '/x'", "COPY INTO 'path' FROM t"),
        ("CALL sys.drop_partition('orders', 'dt=x')", "DROP PARTITION"),
        ("ALTER TABLE orders DROP PARTITION (dt < 'x')", "SHOW PARTITIONS"),
    ],
)
def test_statements_of_other_databases_get_hint_with_equivalent(
    shop: Session, text: str, hint: str
) -> None:
    with pytest.raises(StatementError) as error:
        shop.run(text)
    assert hint in error.value.hint
