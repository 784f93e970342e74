"""All schemas that a table has had, by their ids; and an identity that differs for a table that
was created later at the same location."""

from __future__ import annotations

import hashlib

from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.tables.schema.alterations import schema_of
from paimon_magics.tables.table import Table

__all__ = ["Definitions", "created_at_ms", "identity_of", "version_of"]

_TABLES_MAX = 256


class Definitions:
    """A cache of tables' schemas. A stored schema never changes."""

    def __init__(self) -> None:
        self._known: dict[str, dict[int, TableSchema]] = {}

    def of(self, table: Table) -> dict[int, TableSchema]:
        """The table's schemas by id, up to the one that it was loaded with."""
        key = identity_of(table)
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


def identity_of(table: Table) -> str:
    """The table's location and the time of its first schema. A table that is dropped and created
    again at the same location gets another identity."""
    first = table.paimon.schema_manager.get_schema(0)
    return f"{table.location}@{0 if first is None else first.time_millis}"


def created_at_ms(table: Table) -> int | None:
    """When the table that is at the location now was created, in milliseconds since 1970 UTC; None
    where its first schema is gone. Asks the store each time."""
    manager = table.paimon.schema_manager
    first = manager.copy_with_branch(manager.branch).get_schema(0)
    return None if first is None else int(first.time_millis)


def version_of(identity: str, schema: TableSchema) -> str:
    """A text that changes with the table's identity and with its schema."""
    return hashlib.sha256(f"{identity}#{schema.schema_id}".encode()).hexdigest()[:16]
