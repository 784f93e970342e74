"""CALL sys.migrate_table and sys.migrate_database: Spark's own tables become Paimon's."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from paimon_magics import Session
from paimon_magics.errors import (
    InvalidTableError,
    InvalidValueError,
    PaimonMagicsError,
    UnconfirmedError,
    UnknownNameError,
    UnsupportedStatementError,
)
from tests.session.rows import rows

pytestmark = pytest.mark.spark


@pytest.fixture
def own(session: Session, spark: SparkSession) -> Iterator[Session]:
    """A session beside a database `old` in Spark's own catalog."""
    spark.sql("CREATE DATABASE spark_catalog.old")
    session.run("CREATE DATABASE old")
    yield session
    spark.sql("DROP DATABASE spark_catalog.old CASCADE")


def exists(spark: SparkSession, table: str) -> bool:
    return bool(spark.catalog.tableExists(f"spark_catalog.old.{table}"))


@pytest.mark.parametrize("provider", ["parquet", "orc"])
def test_table_is_migrated_with_its_types_and_partitions(
    own: Session, spark: SparkSession, provider: str
) -> None:
    spark.sql(
        "CREATE TABLE spark_catalog.old.t (k INT COMMENT 'the key', d DECIMAL(9, 2), "
        "at TIMESTAMP, tags ARRAY<STRING>, day DATE) "
        f"USING {provider} PARTITIONED BY (day) COMMENT 'all of it'"
    )
    spark.sql(
        "INSERT INTO spark_catalog.old.t VALUES (1, 1.5, TIMESTAMP '2026-01-31 10:00:00', "
        "array('a'), DATE '2026-01-31'), (2, NULL, NULL, NULL, NULL)"
    )
    call = "CALL sys.migrate_table(source_type => 'hive', table => 'old.t')"
    assert "and then drop it" in own.run(call, dry_run=True).message
    with pytest.raises(UnconfirmedError, match="that table of Spark's own"):
        own.run(call, confirm=False)
    assert exists(spark, "t")
    outcome = own.run(call, confirm=True)
    assert outcome.to_arrow().to_pylist() == [{"result": True}]
    assert not exists(spark, "t")
    (first, second) = rows(own, "SELECT k, d, tags, day FROM old.t ORDER BY k")
    assert first == (1, Decimal("1.50"), ["a"], datetime.date(2026, 1, 31))
    assert second == (2, None, None, None)
    definition = own.run("SHOW CREATE TABLE old.t").message
    assert "the key" in definition and "all of it" in definition
    assert rows(own, "SHOW PARTITIONS old.t") == [("day=2026-01-31",), ("day=null",)]


def test_origin_stays_where_the_call_says_so(own: Session, spark: SparkSession) -> None:
    spark.sql("CREATE TABLE spark_catalog.old.t USING parquet AS SELECT id AS k FROM range(5)")
    own.run(
        "CALL sys.migrate_table(source_type => 'hive', table => 'old.t', delete_origin => false, "
        "target_table => 'old.new', options => 'file.format=orc', "
        "options_map => map('file.compression', 'zstd'))"
    )
    assert exists(spark, "t")
    assert rows(own, "SELECT count(*) FROM old.new") == [(5,)]
    options = dict(rows(own, "SHOW TBLPROPERTIES old.new"))
    assert (options["file.format"], options["file.compression"]) == ("orc", "zstd")


def test_failed_migration_leaves_both_catalogs_as_they_were(
    own: Session, spark: SparkSession
) -> None:
    spark.sql("CREATE TABLE spark_catalog.old.t (k INT, v STRING) USING csv")
    spark.sql("INSERT INTO spark_catalog.old.t VALUES (1, 'a')")
    own.run("SET spark.sql.ansi.enabled = true")
    with pytest.raises(PaimonMagicsError):
        own.run("CALL sys.migrate_table('hive', 'old.t', 'file.format=nonsense')", confirm=True)
    assert exists(spark, "t")
    assert rows(own, "SHOW TABLES IN old") == []


def test_database_is_migrated_table_by_table(own: Session, spark: SparkSession) -> None:
    for name in ("a", "b"):
        spark.sql(f"CREATE TABLE spark_catalog.old.{name} USING parquet AS SELECT 1 AS k")
    own.run("CREATE TABLE old.b (k INT)")
    outcome = own.run(
        "CALL sys.migrate_database(source_type => 'hive', database => 'old')", confirm=True
    )
    text = "migrate database is finished, success cnt: 1 , failed cnt: 1"
    assert outcome.to_arrow().to_pylist() == [{"result": text}]
    assert outcome.notes == ("b: The table `old.b` exists already.",)
    assert (exists(spark, "a"), exists(spark, "b")) == (False, True)
    assert rows(own, "SELECT k FROM old.a") == [(1,)]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ("'hive', 'old.nope'", UnknownNameError, "no table `old.nope`"),
        ("'hive', 'nope.t'", UnknownNameError, "no table `nope.t`"),
        ("'iceberg', 'old.t'", UnsupportedStatementError, "source 'iceberg'"),
        ("'hive', 'paimon.old.t'", UnsupportedStatementError, "in the catalog `paimon`"),
        ("'hive', 'old.v'", UnsupportedStatementError, "a view"),
        ("'hive', 'old.t', 'bucket=4'", InvalidValueError, "has no buckets"),
        ("'hive', 'old.t', 'bucket'", InvalidValueError, "no option with a value"),
        ("'hive', 'old.t', '', false, 'old.taken'", InvalidTableError, "exists already"),
        ("'hive', 'old.t', '', false, 'nope.t'", UnknownNameError, "no database `nope`"),
        ("'hive', 'old.t', options_map => 5", InvalidValueError, "mixed"),
    ],
)
def test_mistaken_migration_is_refused_and_nothing_changes(
    own: Session, spark: SparkSession, arguments: str, error: type[PaimonMagicsError], message: str
) -> None:
    spark.sql("CREATE TABLE spark_catalog.old.t USING parquet AS SELECT 1 AS k")
    spark.sql("CREATE VIEW spark_catalog.old.v AS SELECT 1 AS k")
    own.run("CREATE TABLE old.taken (k INT)")
    with pytest.raises(error, match=message) as caught:
        own.run(f"CALL sys.migrate_table({arguments})", confirm=True)
    assert caught.value.hint
    assert exists(spark, "t")
    assert rows(own, "SHOW TABLES IN old") == [("old", "taken", False)]
