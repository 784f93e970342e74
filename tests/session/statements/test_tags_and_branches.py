"""Tags, branches and rolling back as statements, and Paimon's Java library as their reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_magics import Session
from paimon_magics.errors import InvalidTableError, UnknownNameError
from tests.oracle.java_reader import JavaPaimon
from tests.session.rows import rows

pytestmark = pytest.mark.spark


@pytest.fixture
def orders(session: Session) -> Session:
    session.run(
        "CREATE TABLE orders (k INT NOT NULL, v STRING) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1');"
        "INSERT INTO orders VALUES (1, 'a'); INSERT INTO orders VALUES (2, 'b');"
        "INSERT INTO orders VALUES (3, 'c')"
    )
    return session


def test_moved_tag_is_read_at_its_new_snapshot(orders: Session) -> None:
    query = "SELECT k FROM orders VERSION AS OF 'monday' ORDER BY k"
    orders.run("ALTER TABLE orders CREATE TAG monday AS OF VERSION 1")
    first = rows(orders, query)
    assert rows(orders, query) == first
    orders.run("ALTER TABLE orders REPLACE TAG monday AS OF VERSION 3")
    assert len(rows(orders, query)) > len(first)


def test_tag_with_the_number_of_a_snapshot_is_noted(orders: Session) -> None:
    for statement in (
        "CALL sys.create_tag('orders', '2', 1)",
        "ALTER TABLE orders RENAME TAG `2` TO `3`",
    ):
        (note,) = orders.run(statement).notes
        assert note.startswith("VERSION AS OF ") and "reads this tag now" in note
    assert rows(orders, "SELECT k FROM orders VERSION AS OF 3") == [(1,)]
    assert not orders.run("ALTER TABLE orders CREATE TAG `20261120`").notes
    assert not orders.run("ALTER TABLE orders DELETE TAG `3`").notes


def test_tags_are_made_shown_and_read_by_java(
    orders: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    outcome = orders.run("ALTER TABLE orders CREATE TAG monday AS OF VERSION 1 RETAIN 3 DAYS")
    assert outcome.message == "Tag `monday` of `default.orders` created."
    orders.run(
        "ALTER TABLE orders CREATE TAG `20261120`;"
        "ALTER TABLE orders CREATE OR REPLACE TAG monday AS OF VERSION 2 RETAIN 12 HOURS;"
        "ALTER TABLE orders CREATE TAG IF NOT EXISTS monday;"
        "ALTER TABLE orders RENAME TAG monday TO tuesday"
    )
    assert rows(orders, "SHOW TAGS orders") == [("20261120",), ("tuesday",)]
    actual = rows(orders, "SELECT tag_name, snapshot_id, time_retained FROM orders$tags")
    assert actual == [("20261120", 3, None), ("tuesday", 2, "PT12H")]
    fresh = {"warehouse": str(warehouse), "cache-enabled": "false"}
    read = java_paimon.rows(fresh, "default.orders", {"scan.tag-name": "tuesday"})
    assert read == [(1, "a"), (2, "b")]


def test_branches_are_made_written_and_read_by_java(
    orders: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    orders.run("CALL sys.create_tag('orders', 'two', 2)")
    assert rows(orders, "CALL sys.create_branch('orders', 'dev', :tag)", {"tag": "two"}) == [
        (True,)
    ]
    orders.run("INSERT INTO `orders$branch_dev` VALUES (7, 'dev')")
    fresh = {"warehouse": str(warehouse), "cache-enabled": "false"}
    in_branch = [(1, "a"), (2, "b"), (7, "dev")]
    assert java_paimon.rows(fresh, "default.orders$branch_dev") == in_branch
    with pytest.raises(InvalidTableError, match="would be lost"):
        orders.run("CALL sys.fast_forward('orders', 'dev')")
    outcome = orders.run("CALL sys.rollback(table => 'default.orders', version => 'two')")
    assert outcome.to_arrow().to_pylist() == [{"previous_snapshot_id": 3, "current_snapshot_id": 2}]
    assert (outcome.snapshot_id, outcome.table) == (2, "default.orders")
    assert rows(orders, "SELECT * FROM orders ORDER BY k") == in_branch[:2]
    orders.run("CALL sys.fast_forward('orders', 'dev')")
    assert rows(orders, "SELECT * FROM orders ORDER BY k") == in_branch
    assert java_paimon.rows(fresh, "default.orders") == in_branch
    orders.run("CALL sys.delete_branch('orders', 'dev'); INSERT INTO orders VALUES (8, 'more')")
    assert java_paimon.rows(fresh, "default.orders") == [*in_branch, (8, "more")]


def test_hint_for_a_branch_without_shared_snapshots_takes_its_rows(orders: Session) -> None:
    orders.run(
        "CREATE TABLE apart (k INT, v STRING); INSERT INTO apart VALUES (1, 'a');"
        "CALL sys.create_branch('apart', 'trial');"
        "INSERT INTO `apart$branch_trial` VALUES (2, 'b')"
    )
    with pytest.raises(InvalidTableError, match="shares no snapshot") as refused:
        orders.run("CALL sys.fast_forward('apart', 'trial')")
    orders.run(refused.value.hint.partition(": ")[2].partition(", or")[0])
    assert rows(orders, "SELECT * FROM apart ORDER BY k") == [(1, "a"), (2, "b")]


def test_java_continues_after_a_roll_back(
    orders: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    orders.run("CALL sys.rollback('orders', '1')")
    fresh = {"warehouse": str(warehouse), "cache-enabled": "false"}
    java_paimon.write(fresh, "default.orders", [(9, "java")])
    assert rows(orders, "SELECT * FROM orders ORDER BY k") == [(1, "a"), (9, "java")]
    assert java_paimon.rows(fresh, "default.orders$snapshots")[-1][0] >= 2


def test_procedure_call_returns_the_columns_of_paimon(orders: Session) -> None:
    outcome = orders.run("CALL sys.create_tag_from_timestamp('orders', 'first', 5)")
    (row,) = outcome.to_arrow().to_pylist()
    assert list(row) == ["tagName", "snapshot", "commit_time", "watermark"]
    assert (row["tagName"], row["snapshot"], row["watermark"]) == ("first", 1, "null")
    assert outcome.message == "Tag `first` of `default.orders` names snapshot 1."


def test_delete_tag_skips_and_reports_missing_tag(orders: Session) -> None:
    orders.run("ALTER TABLE orders CREATE TAG a")
    outcome = orders.run("CALL sys.delete_tag('orders', 'a, b')")
    assert (
        outcome.message == "Tag `a` of `default.orders` deleted. `default.orders` has no tag `b`."
    )


def test_errors_point_at_the_table_in_the_call(orders: Session) -> None:
    text = "CALL sys.create_tag(tag => 'a', table => 'ordes')"
    with pytest.raises(UnknownNameError) as caught:
        orders.run(text)
    assert caught.value.position == text.index("table =>")
    assert caught.value.hint == "Did you mean `orders`?"


def test_dry_runs_change_nothing(orders: Session) -> None:
    said = orders.run(
        "ALTER TABLE orders CREATE TAG a; CALL sys.rollback('orders', '1')", dry_run=True
    )
    assert said.message == (
        "Would change tags of `default.orders`.\nWould call sys.rollback for `default.orders`."
    )
    assert rows(orders, "SELECT count(*) FROM orders$snapshots") == [(3,)]
    assert rows(orders, "SHOW TAGS orders") == []


def test_catalog_system_tables_are_read(orders: Session) -> None:
    orders.run(
        "CREATE TABLE parts (k INT, dt DATE, p STRING) PARTITIONED BY (dt, p);"
        "INSERT INTO parts VALUES (1, DATE '2024-01-02', 'x'), (2, NULL, NULL)"
    )
    listed = rows(orders, "SELECT table_name, partitioned, primary_key FROM sys.tables ORDER BY 1")
    assert listed == [("orders", False, True), ("parts", True, False)]
    assert rows(
        orders,
        "SELECT partition_name, record_count, file_count, done FROM paimon.sys.partitions "
        "WHERE table_name = 'parts' ORDER BY 1",
    ) == [
        ("dt=19724/p=x", 1, 1, False),
        ("dt=__DEFAULT_PARTITION__/p=__DEFAULT_PARTITION__", 1, 1, False),
    ]
    options = rows(orders, "SELECT * FROM sys.all_table_options WHERE table_name = 'orders'")
    assert ("default", "orders", "bucket", "1") in options
    assert any(key == "path" and value.startswith("file:/") for _, _, key, value in options)
    assert rows(orders, "SHOW TABLES IN sys") == [
        ("sys", name, False) for name in ("all_table_options", "partitions", "tables")
    ]
    with pytest.raises(UnknownNameError, match=r"`sys\.table`") as caught:
        orders.run("SELECT * FROM sys.table")
    assert "`tables`" in caught.value.hint
    with pytest.raises(UnknownNameError) as hidden:
        orders.run("SELECT * FROM sys.catalog_options")
    assert "catalog-options-table.enabled" in hidden.value.hint


def test_system_table_times_ignore_the_session_zone(orders: Session) -> None:
    before = orders.run("SELECT commit_time FROM orders$snapshots")
    assert dict(before.dataframe.dtypes) == {"commit_time": "timestamp_ntz"}  # type: ignore[union-attr]
    shown = before.to_arrow().to_pylist()
    orders.run("SET spark.sql.session.timeZone = Asia/Kolkata")
    try:
        again = orders.run("SELECT commit_time FROM orders$snapshots").to_arrow().to_pylist()
    finally:
        orders.spark.conf.unset("spark.sql.session.timeZone")
    assert again == shown
