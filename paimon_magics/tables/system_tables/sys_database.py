"""The system tables of a whole catalog, in the database `sys`: `tables`, `partitions`,
`all_table_options` and `catalog_options`.

Each reads the schemas of all tables, `sys.partitions` also their manifests. A table that is dropped
during the read is left out. Sources: Paimon's `AllTablesTable`, `AllPartitionsTable`,
`AllTableOptionsTable`, `CatalogOptionsTable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from operator import itemgetter
from typing import Any

import pyarrow as pa

from paimon_magics.errors import (
    TableDamagedError,
    UnknownNameError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.planning.options.values import boolean_value
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.snapshots.chain import latest_document
from paimon_magics.tables.system_tables.partitions import partition_sums
from paimon_magics.tables.system_tables.table_view import Column, TableView, table_of
from paimon_magics.tables.table import StoredTable

SYSTEM_DATABASE = "sys"


def _number(key: str) -> Callable[[Mapping[str, Any]], int | None]:
    """The function that reads an option as a number."""
    return lambda row: int(row[key]) if key in row else None


def _no_value(_: object) -> None:
    return None


_TABLES = (
    Column("database_name", pa.string(), "database"),
    Column("table_name", pa.string(), "table"),
    Column("table_type", pa.string(), lambda row: row.get("type", "table")),
    Column("partitioned", pa.bool_(), "partitioned"),
    Column("primary_key", pa.bool_(), "keyed"),
    Column("owner", pa.string(), "owner"),
    Column("created_at", pa.int64(), _number("createdAt")),
    Column("created_by", pa.string(), "createdBy"),
    Column("updated_at", pa.int64(), _number("updatedAt")),
    Column("updated_by", pa.string(), "updatedBy"),
    Column("record_count", pa.int64(), _no_value),
    Column("file_size_in_bytes", pa.int64(), _no_value),
    Column("file_count", pa.int64(), _no_value),
    Column("last_file_creation_time", pa.int64(), _no_value),
)
_PARTITIONS = (
    Column("database_name", pa.string(), "database"),
    Column("table_name", pa.string(), "table"),
    Column("partition_name", pa.string(), "name"),
    Column("record_count", pa.int64(), "record_count"),
    Column("file_size_in_bytes", pa.int64(), "file_size_in_bytes"),
    Column("file_count", pa.int64(), "file_count"),
    Column("last_file_creation_time", pa.int64(), "last_creation_ms"),
    Column("done", pa.bool_(), lambda _: False),
)
_TABLE_OPTIONS = (
    Column("database_name", pa.string(), itemgetter(0)),
    Column("table_name", pa.string(), itemgetter(1)),
    Column("key", pa.string(), itemgetter(2)),
    Column("value", pa.string(), itemgetter(3)),
)
_CATALOG_OPTIONS = (
    Column("key", pa.string(), itemgetter(0), required=True),
    Column("value", pa.string(), itemgetter(1), required=True),
)
_CATALOG_OPTIONS_ENABLED = "catalog-options-table.enabled"


def catalog_table_names(catalog: Catalog) -> list[str]:
    """The names of the tables in `sys`. `catalog_options` is among them only if the catalog option
    `catalog-options-table.enabled` is true, since options may hold secrets."""
    shown = boolean_value(
        _CATALOG_OPTIONS_ENABLED, catalog.options.get(_CATALOG_OPTIONS_ENABLED, "false")
    )
    return sorted(name for name in _LOADERS if shown or name != "catalog_options")


def catalog_table(catalog: Catalog, name: str) -> pa.Table:
    """Read the table `sys.<name>`. Raises UnknownNameError for an unknown table."""
    names = catalog_table_names(catalog)
    wanted = name.lower()
    if wanted not in names:
        hidden = wanted in _LOADERS
        raise UnknownNameError(
            f"There is no system table `{SYSTEM_DATABASE}.{name}`.",
            hint=f"Open the catalog with '{_CATALOG_OPTIONS_ENABLED}' = 'true' to see it."
            if hidden
            else nearest(wanted, names, what=f"tables in `{SYSTEM_DATABASE}`"),
        )
    return _LOADERS[wanted](catalog)


def _tables(catalog: Catalog) -> pa.Table:
    rows = [
        {
            **_described(table),
            "database": table.name.database,
            "table": table.name.table,
            "partitioned": bool(table.schema.get("partitionKeys")),
            "keyed": bool(table.schema.get("primaryKeys")),
        }
        for table in _stored_tables(catalog)
    ]
    return table_of(_TABLES, rows)


def _partitions(catalog: Catalog) -> pa.Table:
    rows: list[dict[str, Any]] = []
    for table in _stored_tables(catalog):
        if not table.schema.get("partitionKeys"):
            continue
        view = TableView(table, latest_document(table), table.schema, ManifestCache(table.paimon))
        rows += (
            {
                **asdict(each),
                "database": table.name.database,
                "table": table.name.table,
                "name": "/".join(f"{key}={text}" for key, text in each.spec(view).items()),
            }
            for each in partition_sums(view)
        )
    return table_of(_PARTITIONS, rows)


def _table_options(catalog: Catalog) -> pa.Table:
    rows = [
        (table.name.database, table.name.table, key, value)
        for table in _stored_tables(catalog)
        for key, value in _described(table).items()
    ]
    return table_of(_TABLE_OPTIONS, rows)


def _catalog_options(catalog: Catalog) -> pa.Table:
    return table_of(_CATALOG_OPTIONS, sorted(catalog.options.items()))


_LOADERS: Mapping[str, Callable[[Catalog], pa.Table]] = {
    "tables": _tables,
    "partitions": _partitions,
    "all_table_options": _table_options,
    "catalog_options": _catalog_options,
}


def _stored_tables(catalog: Catalog) -> Iterator[StoredTable]:
    for database in catalog.list_databases():
        if not catalog.database_exists(database):
            continue
        for name in catalog.list_tables(database):
            try:
                yield load_stored(catalog, TableName(name, database))
            except (UnknownNameError, UnsupportedStatementError, TableDamagedError):
                continue  # dropped meanwhile, no table of Paimon's own, or it can't be described


def _described(table: StoredTable) -> dict[str, str]:
    """The table's options, also those that a REST catalog adds, and its `path`."""
    options = table.paimon.table_schema.options or {}
    path = table.location if "://" in table.location else f"file:{table.location}"
    return {**{key: str(value) for key, value in options.items()}, "path": path}
