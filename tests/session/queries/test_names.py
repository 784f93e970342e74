"""Which table a name means: ours, Spark's, a view's or a CTE's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from paimon_magics import Session
from paimon_magics.errors import UnknownNameError, UnsupportedStatementError
from tests.session.rows import rows

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def shop(module_session: Session) -> Iterator[Session]:
    """Paimon's `orders` in two databases, and views and tables of Spark's beside them: no test
    changes them."""
    session = module_session
    session.run(
        "CREATE TABLE orders (id INT, user INT); INSERT INTO orders VALUES (1, 10), (2, 20); "
        "CREATE DATABASE shop; CREATE TABLE shop.orders (id INT, user INT); "
        "INSERT INTO shop.orders VALUES (100, 10)"
    )
    session.spark.sql("SELECT 10 AS uid, 'ann' AS name").createOrReplaceTempView("people")
    session.spark.sql("CREATE TABLE spark_cities (uid INT, city STRING) USING parquet")
    session.spark.sql("INSERT INTO spark_cities VALUES (10, 'Oslo'), (20, 'Rome')")
    yield session
    session.spark.sql("DROP TABLE spark_catalog.default.spark_cities")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT count(*) FROM orders", [(2,)]),
        ("SELECT count(*) FROM default.orders", [(2,)]),
        ("SELECT count(*) FROM paimon.default.orders", [(2,)]),
        ("SELECT count(*) FROM `paimon`.`default`.`orders`", [(2,)]),
        ("SELECT count(*) FROM ORDERS", None),
        ("SELECT orders.id FROM shop.orders", [(100,)]),
        ("SELECT shop.orders.id FROM shop.orders", [(100,)]),
        ("SELECT o.id FROM paimon.shop.orders AS o", [(100,)]),
        ("SELECT orders.* FROM shop.orders", [(100, 10)]),
        (
            "SELECT a.id AS a, b.id AS b FROM orders a JOIN shop.orders b ON a.user = b.user",
            [(1, 100)],
        ),
        (
            "SELECT default.orders.id + s.id FROM default.orders, shop.orders AS s ORDER BY 1",
            [(101,), (102,)],
        ),
        ("TABLE shop.orders", [(100, 10)]),
        ("FROM shop.orders SELECT id", [(100,)]),
        # A name that a query defines is that query's, wherever it stands.
        ("WITH orders AS (SELECT 7 AS id) SELECT id FROM orders", [(7,)]),
        ("WITH orders AS (SELECT 7 AS id) SELECT id FROM shop.orders", [(100,)]),
        (
            "WITH a AS (SELECT id FROM orders), b AS (SELECT max(id) AS m FROM a) SELECT m FROM b",
            [(2,)],
        ),
        ("SELECT id FROM (WITH orders AS (SELECT 7 AS id) SELECT * FROM orders)", [(7,)]),
        # Spark's own, alone and joined.
        ("SELECT name FROM people", [("ann",)]),
        ("SELECT o.id, p.name FROM orders o JOIN people p ON o.user = p.uid", [(1, "ann")]),
        (
            "SELECT id, city FROM orders JOIN spark_cities ON user = uid ORDER BY id",
            [(1, "Oslo"), (2, "Rome")],
        ),
        ("SELECT id FROM orders WHERE user IN (SELECT uid FROM people)", [(1,)]),
        ("SELECT (SELECT max(id) FROM shop.orders) AS m", [(100,)]),
        (
            "SELECT id FROM orders UNION ALL SELECT id FROM shop.orders ORDER BY 1",
            [(1,), (2,), (100,)],
        ),
        ("SELECT * FROM range(2)", [(0,), (1,)]),
        ("VALUES (1), (2)", [(1,), (2,)]),
        # System tables, quoted or not.
        ("SELECT count(*) FROM orders$files", [(1,)]),
        ("SELECT count(*) FROM `orders$files`", [(1,)]),
        ("SELECT count(*) FROM shop.orders$snapshots", [(1,)]),
        ("SELECT count(*) FROM paimon.shop.`orders$snapshots` s WHERE s.snapshot_id = 1", [(1,)]),
        ("SELECT `orders$files`.record_count FROM orders$files", [(2,)]),
        (
            "SELECT commit_kind, record_count FROM orders$snapshots CROSS JOIN orders$files",
            [("APPEND", 2)],
        ),
        ("SELECT 'orders$files' AS text", [("orders$files",)]),
    ],
)
def test_table_names_resolve_as_expected(
    shop: Session, query: str, expected: list[tuple[Any, ...]] | None
) -> None:
    if expected is None:
        with pytest.raises(UnknownNameError, match="ORDERS"):
            shop.run(query)
        return
    assert rows(shop, query) == expected


def test_use_changes_resolution_of_unqualified_names(shop: Session) -> None:
    shop.run("CREATE DATABASE used; CREATE TABLE used.orders (id INT)")
    shop.run("INSERT INTO used.orders VALUES (100)")
    assert rows(shop, "USE used; SELECT id FROM orders") == [(100,)]
    assert rows(shop, "SELECT count(*) FROM default.orders") == [(2,)]
    shop.run("INSERT INTO orders VALUES (101)")
    assert rows(shop, "SELECT count(*) FROM used.orders") == [(2,)]
    assert rows(shop, "USE default; SELECT count(*) FROM orders") == [(2,)]


def test_temporary_view_shadows_table_until_dropped(shop: Session) -> None:
    shop.run("CREATE TEMPORARY VIEW orders AS SELECT 'view' AS what")
    assert rows(shop, "SELECT what FROM orders") == [("view",)]
    assert shop.run("SELECT what FROM orders").notes == (
        "`orders` is Spark's temporary view; Paimon's `default.orders` is not read.",
    )
    assert rows(shop, "SELECT count(*) FROM default.orders") == [(2,)]
    for change in (
        "DELETE FROM orders",
        "UPDATE orders SET what = 'x'",
        "MERGE INTO orders t USING default.orders s ON true WHEN MATCHED THEN DELETE",
    ):
        with pytest.raises(UnsupportedStatementError, match="is a temporary view") as caught:
            shop.run(change)
        assert "the table that it reads" in caught.value.hint
    shop.spark.catalog.dropTempView("orders")
    assert rows(shop, "SELECT count(*) FROM orders") == [(2,)]


def test_paimon_table_shadows_spark_catalog_table(shop: Session) -> None:
    shop.run("CREATE TABLE spark_cities (paimon STRING); INSERT INTO spark_cities VALUES ('ours')")
    assert rows(shop, "SELECT * FROM spark_cities") == [("ours",)]
    assert rows(shop, "SELECT count(*) FROM spark_catalog.default.spark_cities") == [(2,)]
    with pytest.raises(UnsupportedStatementError, match="a table of Spark's own"):
        shop.run("DELETE FROM spark_catalog.default.spark_cities WHERE uid = 1")
    shop.run("DROP TABLE spark_cities")
    assert rows(shop, "SELECT city FROM spark_cities ORDER BY uid") == [("Oslo",), ("Rome",)]


def test_a_temporary_view_of_a_query_over_paimon_tables_can_be_read(shop: Session) -> None:
    shop.run("CREATE OR REPLACE TEMPORARY VIEW files AS SELECT sum(id) AS n FROM shop.orders")
    assert rows(shop, "SELECT n FROM files") == [(100,)]
    shop.run("DROP VIEW files")


def test_table_call_returns_a_frame(shop: Session) -> None:
    assert shop.table("orders").count() == 2
    assert shop.table("shop.orders").join(shop.table("orders"), "user").count() == 1
    assert shop.table("shop.orders$snapshots").select("snapshot_id").collect()[0][0] == 1
    with pytest.raises(UnknownNameError, match="oders"):
        shop.table("oders")


def test_tables_and_columns_may_have_odd_names(shop: Session) -> None:
    shop.run("CREATE DATABASE `my db`")
    shop.run("CREATE TABLE `my db`.`order` (`select` INT, `a b` STRING, `größe` INT)")
    shop.run("INSERT INTO `my db`.`order` (`größe`, `select`, `a b`) VALUES (3, 1, 'x')")
    query = "SELECT `my db`.`order`.`a b`, `order`.`select`, `größe` FROM `my db`.`order`"
    assert rows(shop, query) == [("x", 1, 3)]
