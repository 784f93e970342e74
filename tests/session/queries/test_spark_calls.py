"""PySpark's own calls with names of Paimon's tables: read, or refused; other names as before."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import StatementError, UnknownNameError, UnsupportedStatementError

pytestmark = pytest.mark.spark

SPARK_TABLES = ("mine", "other", "copy", "ids")


@pytest.fixture(scope="module")
def shop(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[paimon_magics.Session]:
    """A session with Paimon's `ids`, `shop.orders` and `Capital`, and Spark's table `mine`."""
    folder = tmp_path_factory.mktemp("warehouse")
    with paimon_magics.connect(folder, spark=spark, coordinator="in-process") as session:
        session.run(
            "CREATE TABLE ids (id INT); INSERT INTO ids VALUES (1), (2); "
            "CREATE TABLE `Capital` (id INT); CREATE DATABASE shop; "
            "CREATE TABLE shop.orders (id INT); INSERT INTO shop.orders VALUES (7)"
        )
        spark.sql("CREATE TABLE mine (v STRING) USING parquet")
        yield session
    for name in SPARK_TABLES:
        spark.sql(f"DROP TABLE IF EXISTS spark_catalog.default.{name}")


def ids(frame: Any) -> list[int]:
    return sorted(row[0] for row in frame.collect())


READS: dict[str, Callable[[SparkSession], Any]] = {
    "table": lambda spark: spark.table("ids"),
    "read.table": lambda spark: spark.read.table("default.ids"),
    "read.table with a read option": lambda spark: spark.read.option("scan.snapshot-id", 1).table(
        "ids"
    ),
    "three parts": lambda spark: spark.table("paimon.default.ids"),
    "sql": lambda spark: spark.sql("SELECT id FROM ids"),
    "sql with values": lambda spark: spark.sql(
        "SELECT id FROM ids WHERE id <= :most", args={"most": 2}
    ),
    "sql over both": lambda spark: spark.sql("SELECT id FROM ids LEFT JOIN mine ON v = 'x'"),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_spark_reads_see_the_paimon_table(
    shop: Session, read: Callable[[SparkSession], Any]
) -> None:
    assert ids(read(shop.spark)) == [1, 2]


def test_unknown_option_of_spark_reader_is_refused(shop: Session) -> None:
    with pytest.raises(UnknownNameError, match="versionAsOf"):
        shop.spark.read.options(versionAsOf=1).table("ids")


def test_describe_and_catalog_calls_see_the_paimon_table(shop: Session) -> None:
    spark = shop.spark
    assert spark.sql("DESCRIBE ids").collect()[0][:2] == ("id", "int")
    assert ids(spark.sql("SELECT count(*) FROM `ids$snapshots`")) == [1]
    assert spark.catalog.tableExists("ids") and spark.catalog.tableExists("orders", "shop")
    assert spark.catalog.tableExists("mine") and not spark.catalog.tableExists("nobody")
    assert not spark.catalog.tableExists("paimon.default.nobody")


def test_names_of_configured_spark_catalog_stay_with_it(shop: Session) -> None:
    """As with the jar of Paimon's connector: here one that is not there, which Spark says."""
    shop.spark.conf.set("spark.sql.catalog.paimon", "org.example.NoCatalog")
    try:
        for call in (shop.spark.table, shop.spark.range(1).writeTo):
            with pytest.raises(Exception, match="NoCatalog"):
                call("paimon.default.ids").append()
    finally:
        shop.spark.conf.unset("spark.sql.catalog.paimon")


CHANGES: dict[str, Callable[[SparkSession], Any]] = {
    "saveAsTable": lambda spark: spark.range(1).write.saveAsTable("ids"),
    "saveAsTable of another format": lambda spark: (
        spark.range(1).write.format("json").mode("overwrite").saveAsTable("shop.orders")
    ),
    "saveAsTable in Paimon's catalog": lambda spark: spark.range(1).write.saveAsTable(
        "paimon.default.fresh"
    ),
    "a name in another case": lambda spark: spark.range(1).write.saveAsTable("capital"),
    "insertInto": lambda spark: spark.range(1).write.insertInto("ids"),
    "writeTo": lambda spark: spark.range(1).writeTo("ids").append(),
    "writeTo, created": lambda spark: spark.range(1).writeTo("ids").using("parquet").create(),
    "mergeInto": lambda spark: spark.range(1).mergeInto("ids", F.lit(True)),
    "createTable": lambda spark: spark.catalog.createTable("ids", schema=spark.range(1).schema),
    "cacheTable": lambda spark: spark.catalog.cacheTable("ids"),
    "INSERT": lambda spark: spark.sql("INSERT INTO ids VALUES (3)"),
    "CREATE TABLE": lambda spark: spark.sql("CREATE TABLE ids (id INT) USING parquet"),
    "CREATE TABLE IF NOT EXISTS": lambda spark: spark.sql(
        "CREATE TABLE IF NOT EXISTS shop.orders USING json AS SELECT 1 AS id"
    ),
    "CREATE TABLE AS, of Paimon's rows": lambda spark: spark.sql(
        "CREATE TABLE fresh AS SELECT * FROM ids"
    ),
    "CREATE VIEW": lambda spark: spark.sql("CREATE VIEW ids AS SELECT 1 AS id"),
    "ALTER": lambda spark: spark.sql("ALTER TABLE ids ADD COLUMN v INT"),
    "RENAME to": lambda spark: spark.sql("ALTER TABLE mine RENAME TO ids"),
    "DROP": lambda spark: spark.sql("DROP TABLE IF EXISTS ids"),
    "MERGE": lambda spark: spark.sql(
        "MERGE INTO ids USING mine ON id = v WHEN MATCHED THEN DELETE"
    ),
    "a script": lambda spark: spark.sql(
        "BEGIN DECLARE n INT; CREATE TABLE ids (id INT) USING parquet; END"
    ),
    "positional values": lambda spark: spark.sql("SELECT * FROM ids WHERE id = ?", args=[1]),
    "fields in the text": lambda spark: spark.sql("SELECT * FROM ids WHERE id = {n}", n=1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_spark_calls_changing_or_shadowing_paimon_table_are_refused(
    shop: Session, change: Callable[[SparkSession], Any]
) -> None:
    with pytest.raises(UnsupportedStatementError, match="is a Paimon table") as raised:
        change(shop.spark)
    assert "session." in raised.value.hint
    assert ids(shop.table("ids")) == [1, 2]
    own = {table.name for table in shop.spark.catalog.listTables() if not table.isTemporary}
    assert own == {"mine"}


def test_other_names_stay_with_spark(shop: Session) -> None:
    spark = shop.spark
    spark.range(3).write.saveAsTable("other")
    spark.range(3, 4).write.insertInto("other")
    spark.sql("INSERT INTO other SELECT 9")
    assert ids(spark.table("other")) == [0, 1, 2, 3, 9]
    spark.sql("CREATE TABLE copy USING parquet AS SELECT * FROM ids")
    spark.sql("INSERT INTO copy SELECT id + 10 FROM ids")
    assert ids(spark.table("copy")) == [1, 2, 11, 12]
    spark.range(5, 6).createOrReplaceTempView("shown")
    assert ids(spark.sql("SELECT * FROM shown WHERE id > ?", args=[1])) == [5]
    assert ids(spark.sql("SELECT * FROM {df}", df=spark.range(1))) == [0]
    spark.sql("CREATE TEMPORARY VIEW few AS SELECT * FROM ids WHERE id = 1")
    assert ids(spark.table("few")) == [1]
    for name in ("shown", "few"):
        spark.catalog.dropTempView(name)


def test_temporary_view_hides_paimon_table_from_spark_calls(shop: Session) -> None:
    shop.spark.range(4).createOrReplaceTempView("ids")
    try:
        assert shop.spark.table("ids").count() == shop.spark.sql("SELECT * FROM ids").count() == 4
    finally:
        shop.spark.catalog.dropTempView("ids")
    assert shop.spark.table("ids").count() == 2


def test_spark_calls_use_current_database_of_cells(shop: Session) -> None:
    shop.run("USE shop")
    try:
        assert ids(shop.spark.table("orders")) == [7]
        for name in ("orders", "ids"):  # of Spark's current database, which is another
            with pytest.raises(UnsupportedStatementError):
                shop.spark.range(1).write.saveAsTable(name)
    finally:
        shop.run("USE default")


def test_name_in_both_catalogs_is_noted_and_full_name_reads_spark_table(
    shop: Session,
) -> None:
    shop.spark.range(5).write.saveAsTable("spark_catalog.default.ids")
    try:
        actual = shop.run("SELECT count(*) AS n FROM ids")
        assert actual.to_arrow()["n"].to_pylist() == [2]
        assert str(actual).splitlines()[-1] == (
            "`default.ids` is Paimon's table here. Spark's own catalog has one of that name too, "
            "which is spark_catalog.default.ids."
        )
        assert html.escape(actual.notes[0]) in actual._repr_html_()
        assert "spark_catalog.default.ids" in str(shop.run("INSERT INTO ids SELECT * FROM ids"))
        assert shop.spark.table("spark_catalog.default.ids").count() == 5
    finally:
        shop.spark.sql("DROP TABLE spark_catalog.default.ids")
        shop.run("INSERT OVERWRITE ids VALUES (1), (2)")
    assert shop.run("SELECT count(*) FROM ids").notes == ()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE ids (id INT) USING parquet",
        "CREATE TABLE IF NOT EXISTS shop.orders USING json AS SELECT 1 AS id",
        "ALTER TABLE mine RENAME TO ids",
    ],
)
def test_cell_can_not_create_spark_table_under_paimon_name(shop: Session, statement: str) -> None:
    with pytest.raises(StatementError, match="would not be found under its name"):
        shop.run(statement)


def test_creating_paimon_table_under_spark_name_adds_a_note(shop: Session) -> None:
    outcome = shop.run("CREATE TABLE mine (id INT)")
    assert "spark_catalog.default.mine" in str(outcome)
    shop.run("DROP TABLE mine")


def test_closed_session_leaves_spark_calls_alone(spark: SparkSession, tmp_path: Any) -> None:
    opened = paimon_magics.active_session()
    if opened is not None:
        opened.close()
    with paimon_magics.connect(tmp_path / "w", spark=spark, coordinator="in-process") as session:
        session.run("CREATE TABLE other (id INT)")
    spark.range(1).write.mode("append").saveAsTable("other")
    spark.sql("DROP TABLE other")
