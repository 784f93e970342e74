"""Metadata system tables and descriptions of a real table that was written twice."""

from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_magics.errors import InvalidTableError, UnknownNameError
from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.manifests.partitions import list_partitions, partition_name
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.system_tables.describe import (
    create_statement,
    describe_column,
    describe_rows,
    option_rows,
)
from paimon_magics.tables.system_tables.registry import METADATA_TABLES, metadata_table
from paimon_magics.tables.table import Table

ORDERS = (
    "CREATE TABLE orders (k INT COMMENT 'the key', dt DATE, p STRING, "
    "s STRUCT<Name: STRING, d: DECIMAL(9, 2)> COMMENT 'it''s', v VARCHAR(9) DEFAULT 'x') "
    "PARTITIONED BY (dt, p) COMMENT 'a \\\\ b' "
    "TBLPROPERTIES ('owner' = 'me', 'file.format' = 'parquet')"
)
NAME = TableName("orders", "default")


def create(catalog: Catalog, text: str, name: TableName = NAME) -> Table:
    statement = parse_statement(text)
    assert isinstance(statement, CreateTable)
    catalog.create_table(name, plan_create_table(statement))
    return catalog.load(name)


def append(table: Table, rows: list[dict[str, object]]) -> None:
    builder = table.paimon.new_batch_write_builder()
    write = builder.new_write()
    write.write_arrow(pa.Table.from_pylist(rows, schema=arrow_schema(table.schema)))
    builder.new_commit().commit(write.prepare_commit())
    write.close()


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog.open({"warehouse": str(tmp_path_factory.mktemp("warehouse"))})
    table = create(catalog, ORDERS)
    row = {"s": {"Name": "n", "d": Decimal("1.50")}, "v": "v"}
    append(table, [{"k": 1, "dt": datetime.date(2024, 1, 2), "p": "a/b=c e", **row}])
    append(table, [{"k": 2, "dt": None, "p": None, **row}, {"k": 3, "dt": None, "p": "", **row}])
    return catalog


def rows_of(catalog: Catalog, system_table: str) -> list[dict[str, object]]:
    name = TableName("orders", "default", system_table=system_table)
    return list(metadata_table(catalog, name).to_pylist())


def test_metadata_tables_have_only_types_supported_by_spark(catalog: Catalog) -> None:
    for system_table in METADATA_TABLES:
        name = TableName("orders", "default", system_table=system_table)
        for field in metadata_table(catalog, name).schema:
            assert not pa.types.is_null(field.type), f"{system_table}.{field.name}"
            if pa.types.is_timestamp(field.type):
                assert field.type.unit == "us", f"{system_table}.{field.name}"


def test_metadata_tables_show_the_state_of_the_table(catalog: Catalog) -> None:
    assert [row["total_record_count"] for row in rows_of(catalog, "snapshots")] == [1, 3]
    assert sum(int(str(row["record_count"])) for row in rows_of(catalog, "files")) == 3
    assert {row["key"]: row["value"] for row in rows_of(catalog, "options")} == {
        "owner": "me",
        "file.format": "parquet",
    }
    assert len(rows_of(catalog, "partitions")) == 3
    assert len(rows_of(catalog, "SCHEMAS")) == 1
    assert rows_of(catalog, "tags") == []


def test_metadata_tables_follow_branches(catalog: Catalog) -> None:
    table = create(catalog, "CREATE TABLE b (k INT)", TableName("b", "default"))
    table.paimon.branch_manager().create_branch("dev")
    append(table, [{"k": 1}])
    main = metadata_table(catalog, TableName("b", "default", system_table="snapshots"))
    name = TableName("b", "default", branch="dev", system_table="snapshots")
    assert (main.num_rows, metadata_table(catalog, name).num_rows) == (1, 0)


def test_unknown_system_table_suggests_the_nearest(catalog: Catalog) -> None:
    with pytest.raises(UnknownNameError) as refusal:
        rows_of(catalog, "snapshot")
    assert refusal.value.hint == "Did you mean `snapshots`?"


def test_time_travel_applies_to_supporting_metadata_tables(
    catalog: Catalog,
) -> None:
    at_first = {
        name: metadata_table(
            catalog, TableName("orders", "default", system_table=name), snapshot_id=1
        ).num_rows
        for name in ("files", "file_key_ranges", "manifests", "partitions", "buckets", "snapshots")
    }
    now = {name: len(rows_of(catalog, name)) for name in at_first}
    assert (at_first["files"], at_first["partitions"], at_first["manifests"]) == (1, 1, 1)
    assert (now["files"], now["partitions"], now["manifests"]) == (3, 3, 2)
    assert at_first["file_key_ranges"] == 1
    assert (at_first["buckets"], at_first["snapshots"]) == (now["buckets"], now["snapshots"])


def test_snapshot_kept_only_by_a_tag_is_shown(tmp_path: Path) -> None:
    catalog = Catalog.open({"warehouse": str(tmp_path)})
    table = create(catalog, "CREATE TABLE t (k INT)", TableName("t", "default"))
    append(table, [{"k": 1}])
    append(table, [{"k": 2}])
    folder = Path(table.location)
    (folder / "tag").mkdir()
    (folder / "snapshot" / "snapshot-1").rename(folder / "tag" / "tag-first")
    (folder / "snapshot" / "EARLIEST").write_text("2")
    name = TableName("t", "default", system_table="files")
    assert metadata_table(catalog, name, snapshot_id=1).num_rows == 1
    with pytest.raises(UnknownNameError, match="no snapshot 7") as refusal:
        metadata_table(catalog, name, snapshot_id=7)
    assert "t$snapshots" in refusal.value.hint


def test_table_without_snapshots_still_shows_its_definition(
    tmp_path: Path,
) -> None:
    catalog = Catalog.open({"warehouse": str(tmp_path)})
    create(catalog, "CREATE TABLE t (k INT) PARTITIONED BY (k)", TableName("t", "default"))
    counts = {
        name: metadata_table(catalog, TableName("t", "default", system_table=name)).num_rows
        for name in METADATA_TABLES
    }
    assert {name for name, count in counts.items() if count} == {
        "aggregation_fields",
        "schemas",
    }


def test_catalog_options_are_shown_only_where_enabled(tmp_path: Path) -> None:
    name = TableName("catalog_options", "sys")
    options = {"warehouse": str(tmp_path), "catalog-options-table.enabled": "true"}
    shown = metadata_table(Catalog.open(options), name).to_pylist()
    assert {"key": "warehouse", "value": str(tmp_path)} in shown
    with pytest.raises(UnknownNameError, match="catalog_options"):
        metadata_table(Catalog.open({"warehouse": str(tmp_path)}), name)


def test_system_table_of_a_missing_table_is_an_unknown_table(catalog: Catalog) -> None:
    with pytest.raises(UnknownNameError, match="`order`"):
        metadata_table(catalog, TableName("order", "default", system_table="files"))


def test_partitions_come_from_the_manifests(catalog: Catalog) -> None:
    table = catalog.load(NAME)
    (Path(table.location) / "dt=2020-01-01").mkdir(exist_ok=True)
    assert set(list_partitions(table)) == {
        (datetime.date(2024, 1, 2), "a/b=c e"),
        (None, None),
        (None, ""),
    }
    names = [partition_name(table, values) for values in list_partitions(table)]
    assert sorted(names) == ["dt=2024-01-02/p=a%2Fb%3Dc e", "dt=null/p=", "dt=null/p=null"]


def test_listing_partitions_of_an_unpartitioned_table_is_refused(catalog: Catalog) -> None:
    table = create(catalog, "CREATE TABLE flat (k INT)", TableName("flat", "default"))
    with pytest.raises(InvalidTableError, match="no partitions"):
        list_partitions(table)


@pytest.mark.parametrize(
    "text",
    [
        ORDERS,
        "CREATE TABLE t (k BIGINT, `odd ``name` ARRAY<STRUCT<a: INT NOT NULL COMMENT 'c'>>, "
        "m MAP<STRING, TIMESTAMP_NTZ(3)> NOT NULL, b VARBINARY(3), f BINARY(2), x BINARY, "
        "n TIMESTAMP, z TIMESTAMP_LTZ(9), t9 TIMESTAMP_NTZ, c CHAR(2)) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2', 'note' = 'it''s \\n two')",
    ],
)
def test_show_create_table_recreates_an_equal_table(tmp_path: Path, text: str) -> None:
    catalog = Catalog.open({"warehouse": str(tmp_path)})
    table = create(catalog, text, TableName("odd table", "default"))
    printed = parse_statement(create_statement(table))
    assert isinstance(printed, CreateTable)
    assert printed.name == TableName("odd table", "default")
    again = plan_create_table(printed)
    assert dict(again.options) == dict(table.schema.options)
    assert replace(again, options=table.schema.options) == table.schema


def test_describe_prints_the_same_as_spark(catalog: Catalog) -> None:
    table = catalog.load(NAME)
    rows = describe_rows(table)
    assert rows == [
        ("k", "int", "the key"),
        ("dt", "date", None),
        ("p", "string", None),
        ("s", "struct<Name:string,d:decimal(9,2)>", "it's"),
        ("v", "varchar(9)", None),
        ("# Partition Information", "", ""),
        ("# col_name", "data_type", "comment"),
        ("dt", "date", None),
        ("p", "string", None),
    ]
    extended = describe_rows(table, extended=True)
    assert extended[: len(rows)] == rows
    assert ("# Detailed Table Information", "", "") in extended
    assert ("Location", table.location, "") in extended
    assert ("Comment", "a \\ b", "") in extended


def test_describe_column_shows_its_default(catalog: Catalog) -> None:
    assert describe_column(catalog.load(NAME), "v") == [
        ("col_name", "v"),
        ("data_type", "varchar(9)"),
        ("comment", "NULL"),
        ("default", "'x'"),
    ]


def test_options_are_shown_with_the_primary_key(tmp_path: Path) -> None:
    catalog = Catalog.open({"warehouse": str(tmp_path)})
    table = create(
        catalog, "CREATE TABLE orders (k INT) TBLPROPERTIES ('primary-key'='k','bucket'='1')"
    )
    assert option_rows(table.schema) == [("bucket", "1"), ("primary-key", "k")]
