"""The registry of metadata system tables (`orders$snapshots`, `orders$files`, …), which it returns
as Arrow tables.

Columns, types and the text of values are those of Paimon's Java library. Times are wall-clock times
in this process's zone, as Java's are in the JVM's. Nothing is written, no data folder is listed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from paimon_magics.errors import UnknownNameError, nearest
from paimon_magics.planning.reads.views import ViewKind, view_named
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.pypaimon_internals import schema_path
from paimon_magics.tables.snapshots.chain import (
    latest_document,
    list_tags,
    load_tag,
    snapshot_by_id,
)
from paimon_magics.tables.system_tables import files as file_tables
from paimon_magics.tables.system_tables import partitions as layout_tables
from paimon_magics.tables.system_tables import versions as version_tables
from paimon_magics.tables.system_tables.sys_database import SYSTEM_DATABASE, catalog_table
from paimon_magics.tables.system_tables.table_view import TableView
from paimon_magics.tables.table import StoredTable

_TABLES = {**version_tables.TABLES, **layout_tables.TABLES, **file_tables.TABLES}
METADATA_TABLES = tuple(sorted(_TABLES))
METADATA_COLUMNS = {name: columns for name, (_, columns) in _TABLES.items()}
"""The columns of each metadata table, known without reading it."""
_DATA_TABLES = tuple(kind.value for kind in ViewKind if kind.value)
TIME_TRAVELLING = frozenset(
    {"file_key_ranges", "files", "manifests", "partitions", "statistics", "table_indexes"}
)
"""The metadata tables that can show an earlier snapshot; the others show the current state."""


def is_catalog_table(name: TableName) -> bool:
    """Whether the full name is in the database `sys`, which has only system tables."""
    return name.database == SYSTEM_DATABASE


def is_metadata(name: TableName) -> bool:
    """Whether the full name is that of a metadata table of a table or catalog. System tables that
    show a table's data, such as `$audit_log`, are not metadata tables."""
    return view_named(name.system_table) is None or is_catalog_table(name)


def metadata_table(
    catalog: Catalog,
    name: TableName,
    *,
    snapshot_id: int | None = None,
    folder_of: Callable[[StoredTable], ManifestCache] | None = None,
) -> pa.Table:
    """Read the metadata table `name.system_table` of a table or branch, or a table in the database
    `sys`.

    With `snapshot_id` the tables of TIME_TRAVELLING are as of that snapshot, which may be one that
    only a tag keeps. `folder_of` returns the cache of a table's manifests. Raises UnknownNameError
    for an unknown table or snapshot (with the nearest names, or all of them).
    """
    if is_catalog_table(name):
        return catalog_table(catalog, name.object_name)
    if name.system_table is None:
        raise ValueError(f"{name} names no system table")
    wanted = name.system_table.lower()
    table = _stored(catalog, replace(name, system_table=None))
    if wanted not in _TABLES:
        raise UnknownNameError(
            f"There is no system table `{name.object_name}`.",
            hint=nearest(wanted, (*METADATA_TABLES, *_DATA_TABLES), what="system tables"),
        )
    folder = folder_of(table) if folder_of is not None else ManifestCache(table.paimon)
    load, _ = _TABLES[wanted]
    return load(_view(table, folder, snapshot_id if wanted in TIME_TRAVELLING else None))


def table_view(catalog: Catalog, name: TableName, snapshot_id: int | None = None) -> TableView:
    """A table or branch at a snapshot, which may be one that only a tag keeps; at the latest if
    `snapshot_id` is None. Raises UnknownNameError for an unknown table or snapshot."""
    table = _stored(catalog, name)
    return _view(table, ManifestCache(table.paimon), snapshot_id)


def _view(table: StoredTable, folder: ManifestCache, snapshot_id: int | None) -> TableView:
    if snapshot_id is None:
        return TableView(table, latest_document(table), table.schema, folder)
    snapshot = _snapshot(table, snapshot_id)
    return TableView(table, snapshot, _schema(table, snapshot["schemaId"]), folder)


def _stored(catalog: Catalog, name: TableName) -> StoredTable:
    try:
        return load_stored(catalog, name)
    except UnknownNameError:
        catalog.load(name)  # names the nearest name
        raise


def _snapshot(table: StoredTable, snapshot_id: int) -> dict[str, Any]:
    snapshot = snapshot_by_id(table, snapshot_id)
    if snapshot is not None:
        return snapshot
    for name in list_tags(table):
        tag = load_tag(table, name)
        if tag is not None and tag["id"] == snapshot_id:
            return tag
    raise UnknownNameError(
        f"`{table.name}` has no snapshot {snapshot_id}.",
        hint=f"`{table.name}$snapshots` lists the snapshots that have not expired.",
    )


def _schema(table: StoredTable, schema_id: int) -> dict[str, Any]:
    if schema_id == table.schema["id"]:
        return table.schema
    path = schema_path(table.paimon.schema_manager, schema_id)
    document: dict[str, Any] = json.loads(table.paimon.file_io.read_file_utf8(path))
    return document
