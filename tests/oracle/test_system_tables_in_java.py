"""Metadata system tables, compared with those of Paimon's Java library on the same tables."""

from __future__ import annotations

import datetime
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from paimon_magics import Session
from paimon_magics.statements.clauses.names import table_name_of
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.system_tables.registry import METADATA_TABLES, metadata_table
from tests.oracle.java_reader import JavaPaimon

pytestmark = [pytest.mark.spark, pytest.mark.java]


def plain(value: Any) -> Any:
    """A value in comparable form: JSON with sorted keys, and bytes without the address that Java
    prints for them."""
    if isinstance(value, str):
        value = re.sub(r"=(0x|\[B@)[0-9a-f]+", "=bytes", value)
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.dumps(json.loads(value), sort_keys=True)
        except ValueError:
            return value
    return value


def rows_here(catalog: Catalog, name: str) -> list[str]:
    table_name = table_name_of(name.split("."))
    assert table_name is not None
    found = metadata_table(catalog, table_name)
    return sorted(repr([plain(v) for v in row.values()]) for row in found.to_pylist())


def rows_in_java(java: JavaPaimon, catalog: Catalog, name: str) -> list[str]:
    options = {"warehouse": f"file:{catalog.warehouse}", "cache-enabled": "false"}
    found = java.rows(options, name)
    return sorted(repr([plain(v) for v in row]) for row in found)


# The system tables of which hardly any rows were recorded.
@pytest.mark.parametrize("system_table", ["file_key_ranges", "files", "partitions", "schemas"])
def test_recorded_tables_are_described_as_in_java(
    java_paimon: JavaPaimon, recorded_warehouse: Path, system_table: str
) -> None:
    catalog = Catalog.open({"warehouse": str(recorded_warehouse)})
    for database in catalog.list_databases():
        for table in catalog.list_tables(database):
            name = f"{database}.{table}${system_table}"
            assert rows_here(catalog, name) == rows_in_java(java_paimon, catalog, name), name


@pytest.mark.parametrize("system_table", ["files", "schemas", "snapshots"])
def test_branch_is_described_as_in_java(
    java_paimon: JavaPaimon, recorded_warehouse: Path, system_table: str
) -> None:
    catalog = Catalog.open({"warehouse": str(recorded_warehouse)})
    name = f"c1.pk$branch_b1${system_table}"
    assert rows_here(catalog, name) == rows_in_java(java_paimon, catalog, name)


TYPED = (
    "CREATE TABLE typed (k INT NOT NULL, b BOOLEAN, y TINYINT, l BIGINT, f FLOAT, d DOUBLE, "
    "small DECIMAL(9, 2), large DECIMAL(38, 9), s STRING, c CHAR(3), day DATE, "
    "at TIMESTAMP_NTZ, short TIMESTAMP_NTZ(3), moment TIMESTAMP, a ARRAY<INT>, m MAP<STRING, INT>, "
    "r STRUCT<x: INT, `y z`: STRING>, p DATE NOT NULL, q STRING NOT NULL) PARTITIONED BY (p, q) "
    "TBLPROPERTIES ('primary-key' = 'p,q,k,s', 'bucket' = '2')"
)
DAY = datetime.date(2024, 2, 29)
MOMENT = datetime.datetime(2024, 2, 29, 12, 30, 0, 120000)
NESTED = ([1, None], [("a", 1)], {"x": 1, "y z": "b"})
TYPED_ROWS = [
    (
        *(1, True, -3, 2**40, 1.1, 1e-5, Decimal("-1.50"), Decimal("0.000000001"), "ünï", "ab "),
        *(DAY, MOMENT, MOMENT.replace(microsecond=0), MOMENT.replace(tzinfo=datetime.UTC)),
        *(*NESTED, DAY, "x/y=1"),
    ),
    (
        *(2, False, 3, -5, 1e10, -0.0, Decimal("12.00"), None, "long enough text", "abc"),
        *(datetime.date(1960, 1, 1), MOMENT.replace(microsecond=123456), MOMENT, None),
        *(*NESTED, DAY, "x/y=1"),
    ),
    (*(3, None, None, None, None, 123456789.125, None, None, "", None), *[None] * 7, DAY, " "),
]


def test_every_type_is_shown_as_in_java(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    session.run(TYPED)
    java_paimon.write(warehouse, "default.typed", TYPED_ROWS)
    for system_table in METADATA_TABLES:
        name = f"default.typed${system_table}"
        assert rows_here(session.catalog, name) == rows_in_java(
            java_paimon, session.catalog, name
        ), name


def test_statistics_follow_the_schema(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    session.run(
        "CREATE TABLE changed (i INT, gone STRING, renamed DOUBLE) "
        "TBLPROPERTIES ('metadata.stats-dense-store' = 'true', 'fields.gone.stats-mode' = 'none')"
    )
    java_paimon.write(warehouse, "default.changed", [(1, "a", 0.5), (7, None, None)])
    session.run(
        "ALTER TABLE changed ADD COLUMN late INT;"
        "ALTER TABLE changed ALTER COLUMN i TYPE BIGINT;"
        "ALTER TABLE changed RENAME COLUMN renamed TO anew"
    )
    fresh = {"warehouse": str(warehouse), "cache-enabled": "false"}
    java_paimon.write(fresh, "default.changed", [(2**40, "b", 1.0, 9)])
    session.run(
        "ALTER TABLE changed UNSET TBLPROPERTIES ('fields.gone.stats-mode');"
        "ALTER TABLE changed DROP COLUMN gone"
    )
    name = "default.changed$files"
    actual = rows_here(session.catalog, name)
    assert actual == rows_in_java(java_paimon, session.catalog, name)
    assert any("{anew=0.5, i=1, late=null}" in row for row in actual)


def test_aggregate_functions_are_listed_in_the_order_of_java(
    session: Session, java_paimon: JavaPaimon
) -> None:
    columns = [f"v{number}" for number in range(9)]
    options = [
        f"'fields.{column}.{key}' = '{value}'"
        for column in columns
        for key, value in (
            ("aggregate-function", "listagg"),
            ("ignore-retract", "true"),
            ("list-agg-delimiter", "ü"),
        )
    ]
    session.run(
        f"CREATE TABLE sums (k INT NOT NULL, {', '.join(f'{column} STRING' for column in columns)})"
        " TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1', 'merge-engine' = 'aggregation', "
        f"{', '.join(options)})"
    )
    name = "default.sums$aggregation_fields"
    here = rows_here(session.catalog, name)
    assert here == rows_in_java(java_paimon, session.catalog, name)
    assert "listagg" in here[1]
