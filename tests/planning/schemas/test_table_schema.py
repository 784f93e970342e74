"""What CREATE TABLE makes of a statement, and the properties that planning asks for."""

from __future__ import annotations

import pytest

from paimon_magics.errors import InvalidTableError, UnknownNameError
from paimon_magics.planning.schemas.table_schema import Column, TableSchema, plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable
from paimon_magics.statements.types.type_text import from_sql


def planned(text: str, **defaults: str) -> TableSchema:
    statement = parse_statement(text)
    assert isinstance(statement, CreateTable)
    return plan_create_table(statement, defaults=defaults)


def test_primary_key_leaves_the_options_and_makes_columns_not_null() -> None:
    schema = planned(
        "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2')"
    )
    assert schema.primary_keys == ("k",)
    assert schema.options == (("bucket", "2"),)
    assert [column.type.nullable for column in schema.columns] == [False, True]


def test_defaults_of_the_catalog_are_options_that_the_statement_does_not_set() -> None:
    schema = planned("CREATE TABLE t (k INT) TBLPROPERTIES ('bucket' = '-1')", bucket="4", path="x")
    assert dict(schema.options) == {"bucket": "-1", "path": "x"}


def test_column_ids_leave_room_for_nested_fields() -> None:
    schema = planned(
        "CREATE TABLE t (a STRUCT<x: INT, y: ARRAY<STRUCT<z: INT>>>, b MAP<STRING, STRUCT<p: INT>>,"
        " c INT)"
    )
    assert [column.id for column in schema.columns] == [0, 4, 6]


def test_clauses_and_options_are_equivalent() -> None:
    by_clause = planned("CREATE TABLE t (k INT, dt STRING) PARTITIONED BY (DT) COMMENT 'c'")
    by_option = planned(
        "CREATE TABLE t (k INT, dt STRING) TBLPROPERTIES ('partition' = 'dt', 'comment' = 'c')"
    )
    assert by_clause == by_option
    assert by_clause.partition_keys == ("dt",)


def test_location_becomes_the_path_option() -> None:
    assert planned("CREATE TABLE t (k INT) LOCATION '/x/y'").stored_option("path") == "/x/y"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "CREATE TABLE t (k INT, dt STRING) PARTITIONED BY (dt) "
            "TBLPROPERTIES ('partition' = 'dt')",
            "Both PARTITIONED BY and the option",
        ),
        ("CREATE TABLE t (k INT) TBLPROPERTIES ('location' = '/x')", "can't be a table option"),
        (
            "CREATE TABLE t (k INT) COMMENT 'a' TBLPROPERTIES ('comment' = 'b')",
            "The COMMENT clause says 'a'",
        ),
    ],
)
def test_contradicting_clauses_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidTableError, match=message):
        planned(text)


def test_create_table_as_select_takes_columns_from_the_query() -> None:
    statement = parse_statement(
        "CREATE TABLE t TBLPROPERTIES ('primary-key' = 'k') AS SELECT 1 AS k, 'a' AS v"
    )
    assert isinstance(statement, CreateTable)
    query_columns = [Column(0, "k", from_sql("INT")), Column(1, "v", from_sql("STRING"), "note")]
    schema = plan_create_table(statement, query_columns)
    assert schema.column_names == ("k", "v")
    assert schema.column("k").type == from_sql("INT NOT NULL")
    assert schema.column("v").comment == "note"


@pytest.mark.parametrize(
    ("options", "partitioned", "mode", "bucket_keys"),
    [
        ("", "", "BUCKET_UNAWARE", ()),
        ("'bucket' = '4', 'bucket-key' = 'v'", "", "HASH_FIXED", ("v",)),
        ("'primary-key' = 'k,dt', 'bucket' = '4'", "dt", "HASH_FIXED", ("k",)),
        ("'primary-key' = 'k'", "", "HASH_DYNAMIC", ("k",)),
        ("'primary-key' = 'k'", "dt", "KEY_DYNAMIC", ("k",)),
        ("'primary-key' = 'k', 'bucket' = '-2'", "", "POSTPONE_MODE", ("k",)),
    ],
)
def test_options_determine_the_bucket_mode(
    options: str, partitioned: str, mode: str, bucket_keys: tuple[str, ...]
) -> None:
    text = "CREATE TABLE t (k INT, dt STRING, v INT)"
    text += f" PARTITIONED BY ({partitioned})" if partitioned else ""
    text += f" TBLPROPERTIES ({options})" if options else ""
    schema = planned(text)
    assert schema.bucket_mode == mode
    assert schema.bucket_keys == bucket_keys


def test_options_have_paimons_defaults() -> None:
    schema = planned("CREATE TABLE t (k INT) TBLPROPERTIES ('file.format' = 'ORC')")
    assert schema.file_format == "orc"
    assert schema.merge_engine == "deduplicate"
    assert schema.option("snapshot.num-retained.min") == "10"
    assert schema.option("target-file-size") is None
    assert schema.option("owner") is None
    assert schema.flag("dynamic-partition-overwrite")


def test_unknown_column_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError) as refusal:
        planned("CREATE TABLE t (customer INT)").column("custmer")
    assert refusal.value.hint == "Did you mean `customer`?"
