"""The system tables of a whole catalog, in the database `sys`: `tables`, `partitions`,
`all_table_options` and `catalog_options`.

Each reads the schemas of all tables, `sys.partitions` also their manifests. A table that is dropped
meanwhile is left out. Sources: Paimon's `AllTablesTable`, `AllPartitionsTable`,
`AllTableOptionsTable`, `CatalogOptionsTable`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
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
from paimon_magics.tables.system_tables.table_view import TableView, rows_of
from paimon_magics.tables.table import StoredTable

SYSTEM_DATABASE = "sys"

_TABLES = pa.schema(
    [
        ("database_name", pa.string()),
        ("table_name", pa.string()),
        ("table_type", pa.string()),
        ("partitioned", pa.bool_()),
        ("primary_key", pa.bool_()),
        ("owner", pa.string()),
        ("created_at", pa.int64()),
        ("created_by", pa.string()),
        ("updated_at", pa.int64()),
        ("updated_by", pa.string()),
        ("record_count", pa.int64()),
        ("file_size_in_bytes", pa.int64()),
        ("file_count", pa.int64()),
        ("last_file_creation_time", pa.int64()),
    ]
)
_PARTITIONS = pa.schema(
    [
        ("database_name", pa.string()),
        ("table_name", pa.string()),
        ("partition_name", pa.string()),
        ("record_count", pa.int64()),
        ("file_size_in_bytes", pa.int64()),
        ("file_count", pa.int64()),
        ("last_file_creation_time", pa.int64()),
        ("done", pa.bool_()),
    ]
)
_TABLE_OPTIONS = pa.schema(
    [
        ("database_name", pa.string()),
        ("table_name", pa.string()),
        ("key", pa.string()),
        ("value", pa.string()),
    ]
)
_CATALOG_OPTIONS = pa.schema(
    [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string(), nullable=False)]
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
    rows = []
    for table in _stored_tables(catalog):
        schema, found = table.schema, _described(table)
        rows.append(
            (
                table.name.database,
                table.name.table,
                found.get("type", "table"),
                bool(schema.get("partitionKeys")),
                bool(schema.get("primaryKeys")),
                found.get("owner"),
                _number(found.get("createdAt")),
                found.get("createdBy"),
                _number(found.get("updatedAt")),
                found.get("updatedBy"),
                *([None] * 4),
            )
        )
    return rows_of(_TABLES, rows)


def _partitions(catalog: Catalog) -> pa.Table:
    rows: list[tuple[Any, ...]] = []
    for table in _stored_tables(catalog):
        if not table.schema.get("partitionKeys"):
            continue
        view = TableView(table, latest_document(table), table.schema, ManifestCache(table.paimon))
        rows += (
            (
                table.name.database,
                table.name.table,
                "/".join(f"{key}={text}" for key, text in partition_sum.spec(view).items()),
                partition_sum.record_count,
                partition_sum.file_size_in_bytes,
                partition_sum.file_count,
                _epoch_ms(partition_sum.last_creation),
                False,
            )
            for partition_sum in partition_sums(view)
        )
    return rows_of(_PARTITIONS, rows)


def _table_options(catalog: Catalog) -> pa.Table:
    rows = [
        (table.name.database, table.name.table, key, value)
        for table in _stored_tables(catalog)
        for key, value in _described(table).items()
    ]
    return rows_of(_TABLE_OPTIONS, rows)


def _catalog_options(catalog: Catalog) -> pa.Table:
    return rows_of(_CATALOG_OPTIONS, sorted(catalog.options.items()))


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
    return {**{key: str(value) for key, value in options.items()}, "path": _path(table)}


def _path(table: StoredTable) -> str:
    return f"file:{table.location}" if "://" not in table.location else table.location


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _epoch_ms(wall_clock: Any) -> int | None:
    """A wall-clock time in this process's zone as milliseconds since 1970 UTC."""
    if wall_clock is None:
        return None
    return int(time.mktime(wall_clock.timetuple())) * 1000 + int(wall_clock.microsecond) // 1000
