"""Writers of several kinds on one table through the REST catalog: pypaimon, Java, our sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema

import paimon_magics
from tests.coordinator.forking import Forked
from tests.coordinator.rest_server import TOKEN, client_options, served
from tests.oracle.java_reader import JavaPaimon

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARROW = pa.schema([("k", pa.int64()), ("v", pa.string()), ("p", pa.string())])


@pytest.fixture
def url(warehouse: Path) -> Iterator[str]:
    with served({"warehouse": str(warehouse)}) as address:
        yield address


@pytest.fixture
def options(url: str, warehouse: Path) -> dict[str, str]:
    return client_options(url, warehouse)


@pytest.fixture
def rest_session(options: dict[str, str], spark: SparkSession) -> Iterator[paimon_magics.Session]:
    with paimon_magics.connect(catalog=options, spark=spark) as opened:
        yield opened


def rows(session: paimon_magics.Session, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in session.run(query).to_arrow().to_pylist()]


def plain_rows(warehouse: Path, name: str) -> list[tuple[Any, ...]]:
    """Rows as who reads the warehouse directly sees them."""
    table = CatalogFactory.create({"warehouse": str(warehouse)}).get_table(name)
    builder = table.new_read_builder()
    found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return sorted(tuple(row.values()) for row in found.to_pylist())


@pytest.mark.parametrize("primary_keys", [[], ["k", "p"]], ids=["append", "primary key"])
def test_concurrent_writers_lose_and_duplicate_no_rows(
    url: str, options: dict[str, str], warehouse: Path, primary_keys: list[str]
) -> None:
    catalog = CatalogFactory.create(options)
    catalog.create_database("shop", True)
    schema = Schema.from_pyarrow_schema(
        ARROW,
        partition_keys=["p"],
        primary_keys=primary_keys,
        options={"bucket": "1"} if primary_keys else {},
    )
    catalog.create_table("shop.t", schema, False)
    writers = [
        Forked(
            "tests.coordinator.rest_writer",
            [url, str(warehouse), TOKEN, "shop.t", str(100 * w), "10"],
        )
        for w in range(4)
    ]
    for writer in writers:
        writer.communicate(timeout=300)
        assert writer.returncode == 0
    expected = sorted((100 * w + i, "v", str(i % 2)) for w in range(4) for i in range(10))
    assert plain_rows(warehouse, "shop.t") == expected
    snapshots = list((warehouse / "shop.db/t/snapshot").glob("snapshot-*"))
    assert len(snapshots) == 40


@pytest.mark.spark
def test_a_session_works_through_the_catalog(
    rest_session: paimon_magics.Session, warehouse: Path
) -> None:
    session = rest_session
    session.run("CREATE DATABASE shop")
    session.run(
        "CREATE TABLE shop.t (k BIGINT, v STRING, p STRING) PARTITIONED BY (p) COMMENT 'rows'"
    )
    session.run("INSERT INTO shop.t VALUES (1, 'a', 'x'), (2, 'b', 'y')")
    assert rows(session, "SELECT * FROM shop.t ORDER BY k") == [(1, "a", "x"), (2, "b", "y")]
    session.run("INSERT OVERWRITE shop.t PARTITION (p = 'x') VALUES (3, 'c')")
    assert rows(session, "SELECT k FROM shop.t ORDER BY k") == [(2,), (3,)]
    session.run("ALTER TABLE shop.t ADD COLUMNS (n INT COMMENT 'a number' AFTER k)")
    session.run("ALTER TABLE shop.t RENAME COLUMN v TO w")
    session.run("ALTER TABLE shop.t SET TBLPROPERTIES ('snapshot.num-retained.max' = '20')")
    session.run("INSERT INTO shop.t VALUES (4, 40, 'd', 'x')")
    assert rows(session, "SELECT k, n, w FROM shop.t ORDER BY k") == [
        (2, None, "b"), (3, None, "c"), (4, 40, "d"),
    ]  # fmt: skip
    assert plain_rows(warehouse, "shop.t")[-1] == (4, 40, "d", "x")
    session.run("ALTER TABLE shop.t RENAME TO shop.u")
    assert rows(session, "SELECT count(*) FROM shop.u") == [(3,)]
    session.run("DROP TABLE shop.u")
    session.run("DROP DATABASE shop")


@pytest.mark.spark
def test_options_added_by_the_server_are_no_table_properties(
    rest_session: paimon_magics.Session,
) -> None:
    rest_session.run("CREATE TABLE t (k BIGINT) TBLPROPERTIES ('file.format' = 'parquet')")
    assert rows(rest_session, "SHOW TBLPROPERTIES t") == [("file.format", "parquet")]


@pytest.mark.spark
@pytest.mark.java
@pytest.mark.parametrize(
    "properties",
    ["", "TBLPROPERTIES ('bucket' = '1', 'primary-key' = 'k')"],
    ids=["append", "primary key"],
)
def test_java_and_a_session_write_the_same_table(
    rest_session: paimon_magics.Session,
    java_paimon: JavaPaimon,
    options: dict[str, str],
    warehouse: Path,
    properties: str,
) -> None:
    rest_session.run(f"CREATE TABLE t (k BIGINT NOT NULL, v STRING) {properties}")
    rest_session.run("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    java_paimon.write(options, "default.t", [(3, "c"), (4, "d")])
    rest_session.run("INSERT INTO t VALUES (5, 'e')")
    expected = [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]
    assert sorted(java_paimon.rows(options, "default.t")) == expected
    assert rows(rest_session, "SELECT * FROM t ORDER BY k") == expected
    if properties:
        java_paimon.write(options, "default.t", [(1, "z")])
        rest_session.run("INSERT INTO t VALUES (3, 'y')")
        expected = [(1, "z"), (2, "b"), (3, "y"), (4, "d"), (5, "e")]
        assert sorted(java_paimon.rows(options, "default.t")) == expected
        assert rows(rest_session, "SELECT * FROM t ORDER BY k") == expected
    assert sorted(java_paimon.rows(warehouse, "default.t")) == expected


@pytest.mark.spark
@pytest.mark.java
def test_java_reads_and_overwrites_rows_of_pypaimon(
    java_paimon: JavaPaimon, options: dict[str, str], warehouse: Path
) -> None:
    catalog = CatalogFactory.create(options)
    catalog.create_table("default.t", Schema.from_pyarrow_schema(ARROW, ["p"]), False)
    table = catalog.get_table("default.t")
    builder = table.new_batch_write_builder()
    writer, committer = builder.new_write(), builder.new_commit()
    writer.write_arrow(pa.table([[1, 2], ["a", None], ["x", "y"]], schema=ARROW))
    committer.commit(writer.prepare_commit())
    assert sorted(java_paimon.rows(options, "default.t")) == [(1, "a", "x"), (2, None, "y")]
    java_paimon.write(options, "default.t", [(9, "z", "x")], overwrite={"p": "x"})
    assert plain_rows(warehouse, "default.t") == [(2, None, "y"), (9, "z", "x")]


@pytest.mark.spark
@pytest.mark.java
def test_the_hash_index_of_dynamic_buckets_is_committed(
    java_paimon: JavaPaimon, options: dict[str, str], warehouse: Path
) -> None:
    catalog = CatalogFactory.create(options)
    keyed = Schema.from_pyarrow_schema(ARROW, primary_keys=["k"], options={"bucket": "-1"})
    catalog.create_table("default.t", keyed, False)
    table = catalog.get_table("default.t")
    for v in ("old", "new"):
        builder = table.new_batch_write_builder()
        writer, committer = builder.new_write(), builder.new_commit()
        writer.write_arrow(pa.table([[1, 2], [v, v], ["x", "y"]], schema=ARROW))
        committer.commit(writer.prepare_commit())
    assert list((warehouse / "default.db/t/index").iterdir())
    assert sorted(java_paimon.rows(options, "default.t")) == [(1, "new", "x"), (2, "new", "y")]


@pytest.mark.spark
@pytest.mark.java
def test_java_client_works_with_the_whole_catalog(
    spark: SparkSession, java_paimon: JavaPaimon, options: dict[str, str], warehouse: Path
) -> None:
    jvm: Any = spark._jvm  # type: ignore[attr-defined]
    paimon = jvm.org.apache.paimon
    options = options | {"cache-enabled": "false"}  # the test looks through two catalogs
    java_options = jvm.java.util.HashMap()
    for key, value in options.items():
        java_options.put(key, value)
    context = paimon.catalog.CatalogContext.create(paimon.options.Options.fromMap(java_options))
    catalog = paimon.catalog.CatalogFactory.createCatalog(context)
    identifier = paimon.catalog.Identifier.create

    catalog.createDatabase("shop", False)
    assert list(catalog.listDatabases()) == ["shop"]
    types, schema = paimon.types.DataTypes, paimon.schema.Schema.newBuilder()
    schema.column("k", types.BIGINT().notNull(), "the key", None)
    schema.column("v", types.STRING(), None, None)
    schema.column("p", types.STRING(), None, None)
    schema.partitionKeys(["p"]).primaryKey(["k", "p"]).option("bucket", "1").comment("rows")
    catalog.createTable(identifier("shop", "t"), schema.build(), False)
    with pytest.raises(Exception, match="TableAlreadyExistException"):
        catalog.createTable(identifier("shop", "t"), schema.build(), False)
    java_paimon.write(options, "shop.t", [(1, "a", "x"), (2, "b", "y")])
    java_paimon.write(options, "shop.t", [(1, "z", "x")])
    assert sorted(java_paimon.rows(options, "shop.t")) == [(1, "z", "x"), (2, "b", "y")]
    assert [p.spec()["p"] for p in catalog.listPartitions(identifier("shop", "t"))] == ["y", "x"]

    change = paimon.schema.SchemaChange
    changes = [change.addColumn("n", types.INT()), change.renameColumn("v", "w"),
               change.setOption("snapshot.num-retained.max", "20")]  # fmt: skip
    catalog.alterTable(identifier("shop", "t"), changes, False)
    with pytest.raises(Exception, match="ColumnNotExistException"):
        catalog.alterTable(identifier("shop", "t"), [change.dropColumn("no")], False)
    with pytest.raises(Exception, match="ColumnAlreadyExistException"):
        catalog.alterTable(identifier("shop", "t"), [change.addColumn("k", types.INT())], False)
    table = catalog.getTable(identifier("shop", "t"))
    assert list(table.rowType().getFieldNames()) == ["k", "w", "p", "n"]
    assert table.options()["snapshot.num-retained.max"] == "20"
    java_paimon.write(options, "shop.t", [(3, "c", "x", 30)])

    table.createTag("two", 2)
    assert list(catalog.listTagsPaged(identifier("shop", "t"), None, None, None).getElements()) == [
        "two"
    ]
    table.createBranch("b", "two")
    assert list(table.branchManager().branches()) == ["b"]
    java_paimon.write(options, "shop.t$branch_b", [(4, "d", "x")])
    assert len(java_paimon.rows(options, "shop.t$branch_b")) == 3
    assert sorted(java_paimon.rows(options, "shop.t"))[-1] == (3, "c", "x", 30)
    table.deleteBranch("b")
    table.rollbackTo("two")
    rolled_back = [(1, "z", "x", None), (2, "b", "y", None)]
    assert sorted(java_paimon.rows(options, "shop.t")) == rolled_back
    java_paimon.write(options, "shop.t", [(5, "e", "y", 50)])
    assert plain_rows(warehouse, "shop.t") == [*rolled_back, (5, "e", "y", 50)]

    catalog.renameTable(identifier("shop", "t"), identifier("shop", "u"), False)
    assert list(catalog.listTables("shop")) == ["u"]
    with pytest.raises(Exception, match="TableNotExistException"):
        catalog.getTable(identifier("shop", "t"))
    assert list(catalog.listViews("shop")) == []
    with pytest.raises(Exception, match="ViewNotExistException"):
        catalog.getView(identifier("shop", "v"))
    catalog.dropTable(identifier("shop", "u"), False)
    catalog.dropDatabase("shop", False, False)
    assert list(catalog.listDatabases()) == []
    catalog.close()


@pytest.mark.spark
@pytest.mark.java
@pytest.mark.parametrize("keys", ["others", "the same"])
def test_hash_indexes_of_two_java_writers_are_merged(
    java_paimon: JavaPaimon, options: dict[str, str], warehouse: Path, keys: str
) -> None:
    create_keyed(options)
    first = java_paimon.prepare(options, "default.t", [(1, "a", "x"), (2, "a", "x")])
    rows = [(3, "b", "x"), (4, "b", "x")] if keys == "others" else [(1, "b", "x"), (9, "b", "x")]
    second = java_paimon.prepare(options, "default.t", rows)
    java_paimon.commit(options, first)
    java_paimon.commit(options, second)
    keys_of_both = sorted({1, 2} | {row[0] for row in rows})
    # Which row of a key wins is told by sequence numbers, which two writers may give alike.
    actual = sorted(java_paimon.rows(options, "default.t"))
    assert [row[0] for row in actual] == keys_of_both
    assert len(list((warehouse / "default.db/t/index").iterdir())) == 2, "one of each snapshot"
    java_paimon.write(options, "default.t", [(k, "c", "x") for k in (1, 2, 3, 4, 9)])
    actual = sorted(java_paimon.rows(warehouse, "default.t"))
    assert actual == [(k, "c", "x") for k in (1, 2, 3, 4, 9)], "a key is there once"


@pytest.mark.spark
@pytest.mark.java
def test_writer_that_puts_a_key_into_a_second_bucket_is_refused(
    java_paimon: JavaPaimon, options: dict[str, str], warehouse: Path
) -> None:
    create_keyed(options, **{"dynamic-bucket.target-row-num": "1"})
    first = java_paimon.prepare(options, "default.t", [(1, "a", "x"), (2, "a", "x")])
    second = java_paimon.prepare(options, "default.t", [(2, "b", "x")])
    java_paimon.commit(options, first)
    with pytest.raises(Exception) as caught:
        java_paimon.commit(options, second)
    cause = caught.value.java_exception  # type: ignore[attr-defined]
    while cause.getCause() is not None:
        cause = cause.getCause()
    assert "another writer has added them since this commit's statement began" in cause.getMessage()
    assert "Let only one job at a time write" in cause.getMessage()
    assert sorted(java_paimon.rows(options, "default.t")) == [(1, "a", "x"), (2, "a", "x")]


def create_keyed(options: dict[str, str], **more: str) -> None:
    keyed = Schema.from_pyarrow_schema(
        ARROW, primary_keys=["k"], options={"bucket": "-1", "commit.max-retries": "2", **more}
    )
    CatalogFactory.create(options).create_table("default.t", keyed, False)
