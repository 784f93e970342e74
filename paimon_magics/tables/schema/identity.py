"""All schemas that a table has had, by their ids; and what tells a table from one that was created
later at the same location."""

from __future__ import annotations

import contextlib
import hashlib
import uuid

from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.tables.schema.alterations import schema_of
from paimon_magics.tables.stores.corruption import misread
from paimon_magics.tables.stores.paths import canonical_location
from paimon_magics.tables.table import Table

__all__ = ["Definitions", "created_at_ms", "creation_of", "table_id_of_legacy", "version_of"]

_TABLES_MAX = 256


class Definitions:
    """A cache of tables' schemas. A stored schema never changes."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], dict[int, TableSchema]] = {}

    def of(self, table: Table) -> dict[int, TableSchema]:
        """The table's schemas by id, up to the one that it was loaded with."""
        key = table.location, _first_ms(table)
        if key not in self._known and len(self._known) >= _TABLES_MAX:
            self._known.clear()
        known = self._known.setdefault(key, {})
        present = table.schema.schema_id
        known[present] = table.schema
        for schema_id in range(present):
            if schema_id not in known:
                schema = table.paimon.schema_manager.get_schema(schema_id)
                if schema is not None:  # a rollback may have removed it
                    known[schema_id] = schema_of(schema)
        return dict(known)


def created_at_ms(table: Table) -> int | None:
    """When the table that is at the location now was created, in milliseconds since 1970 UTC; None
    where its first schema is gone. Asks the store each time."""
    manager = table.paimon.schema_manager
    first = manager.copy_with_branch(manager.branch).get_schema(0)
    return None if first is None else int(first.time_millis)


def creation_of(table: Table) -> str:
    """What tells the table from others that had, or will have, its name: a catalog server's id of
    it, or when the one at the location was created, which asks the store each time; "" where
    neither can be known. Paimon makes the uuid of a table so (`CatalogUtils.loadTable`). Raises
    OSError."""
    if table.paimon.catalog_environment.supports_version_management:
        return str(table.paimon.catalog_environment.uuid or "")
    try:
        created_ms = created_at_ms(table)
    except Exception as error:
        if misread(error) is None:
            raise
        created_ms = None
    return "" if created_ms is None else str(created_ms)


def version_of(table: Table) -> str:
    """A text that changes with the table's schema, and when it is dropped and created again."""
    text = f"{_first_ms(table)}#{table.schema.schema_id}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def table_id_of_legacy(identity: str) -> str:
    """The id of a table that older versions knew by its location and creation time,
    `LOCATION@MILLISECONDS`. All spellings of the location give the same id."""
    location, _, created_ms = identity.rpartition("@")
    text = f"{canonical_location(location)}@{created_ms}"
    return uuid.uuid5(uuid.NAMESPACE_URL, text).hex


def _first_ms(table: Table) -> int:
    """When the table was created; 0 where its first schema is gone, or can't be read: it only tells
    tables apart here."""
    with contextlib.suppress(Exception):
        first = table.paimon.schema_manager.get_schema(0)
        return 0 if first is None else int(first.time_millis)
    return 0
