"""Tables as they are stored, for a server that offers a catalog to other engines.

Unlike `Catalog.load` this does not read the schema into a TableSchema. So engines can use a table
with types that this project does not support. A table's id stays the same as long as the table
exists at its location: a table that is dropped and created again, or moved, gets another id.
"""

from __future__ import annotations

import json
import uuid

from pypaimon.schema.schema_manager import SchemaManager
from pypaimon.table.file_store_table import FileStoreTable

from paimon_magics.errors import UnknownNameError
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.schema.history import schema_text
from paimon_magics.tables.stores.paths import plain_location
from paimon_magics.tables.table import StoredTable


def load_stored(catalog: Catalog, name: TableName) -> StoredTable:
    """The table with its newest schema; `name` must have its database.

    Raises UnknownNameError for a table, branch or database that does not exist, TableDamagedError
    for a table that can't be read, and UnsupportedStatementError for tables that are no Paimon file
    store and for branches through a jdbc catalog.
    """
    table = catalog.open_file_store(name)
    if table is None:
        raise UnknownNameError(f"There is no table `{name}`.")
    return catalog.reading(name, lambda: _stored(catalog, name, table))


def _stored(catalog: Catalog, name: TableName, table: FileStoreTable) -> StoredTable:
    location = plain_location(str(table.table_path))
    first = SchemaManager(table.file_io, location).get_schema(0)
    text = schema_text(table.table_schema)
    text.encode()  # an answer with a lone surrogate could not be sent
    schema = json.loads(text)
    if not isinstance(schema.get("options"), dict):
        raise ValueError("its `options` are not an object")
    created_at_ms = int(first.time_millis) if first is not None else 0
    return StoredTable(
        name=name,
        location=location,
        table_id=table.catalog_environment.uuid
        or str(uuid.uuid5(uuid.NAMESPACE_URL, f"{location}#{created_at_ms}")),
        schema=schema,
        created_at_ms=created_at_ms,
        updated_at_ms=int(schema.get("timeMillis") or created_at_ms),
        paimon=table,
        store=catalog.stores.of(location),
        paths=catalog.paths_of(location, table),
    )
