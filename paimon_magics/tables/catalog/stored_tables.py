"""Tables as they are stored, for a server that offers a catalog to other engines.

Unlike `Catalog.load` this does not read the schema into a TableSchema. So engines can use a table
with types that this project does not support. A table's id stays the same as long as the table
exists at its location: a table that is dropped and created again, or moved, gets another id.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import TypeVar

from pypaimon.catalog import catalog_exception as missing
from pypaimon.schema.schema_manager import SchemaManager
from pypaimon.table.file_store_table import FileStoreTable

from paimon_magics.errors import UnknownNameError, UnsupportedStatementError
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.names import identifier
from paimon_magics.tables.schema.files import schema_text
from paimon_magics.tables.stores.paths import plain_location
from paimon_magics.tables.table import StoredTable

__all__ = ["load_stored"]

_T = TypeVar("_T")


def load_stored(catalog: Catalog, name: TableName) -> StoredTable:
    """The table with its newest schema; `name` must have its database.

    Raises UnknownNameError for a table, branch or database that does not exist, and
    UnsupportedStatementError for tables that are no Paimon file store and for branches through a
    jdbc catalog.
    """
    if name.branch is not None and catalog.metastore == "jdbc":
        raise UnsupportedStatementError(
            f"The branch `{name}` can't be used through a jdbc catalog.",
            hint="Open the same warehouse with a filesystem catalog.",
        )
    table = _known(name, lambda: catalog.paimon.get_table(identifier(name)))
    if not isinstance(table, FileStoreTable):
        raise UnsupportedStatementError(
            f"`{name}` is a {type(table).__name__}, which is not offered.",
            hint="Only Paimon's own tables can be used here.",
        )
    location = plain_location(str(table.table_path))
    first = SchemaManager(table.file_io, location).get_schema(0)
    schema = json.loads(schema_text(table.table_schema))
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


def _known(name: TableName, load: Callable[[], _T]) -> _T:
    try:
        return load()
    except (missing.CatalogException, FileNotFoundError):
        raise UnknownNameError(f"There is no table `{name}`.") from None
