"""All schemas that a table has had, as definitions by their ids; and what tells a table from one
that was made later at the same place."""

from __future__ import annotations

import hashlib

from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.tables.schema.alterations import schema_of
from paimon_magics.tables.table import Table

__all__ = ["Definitions", "identity_of", "version_of"]

_TABLES_MAX = 256


class Definitions:
    """Remembers the schemas of tables, which never change once they are there."""

    def __init__(self) -> None:
        self._known: dict[str, dict[int, TableSchema]] = {}

    def of(self, table: Table) -> dict[int, TableSchema]:
        """The table's schemas up to the one that it was loaded with."""
        key = identity_of(table)
        if key not in self._known and len(self._known) >= _TABLES_MAX:
            self._known.clear()
        known = self._known.setdefault(key, {})
        present = table.schema.schema_id
        known[present] = table.schema
        for schema_id in range(present):
            if schema_id not in known:
                schema = table.paimon.schema_manager.get_schema(schema_id)
                if schema is not None:  # a rolled back one is gone
                    known[schema_id] = schema_of(schema)
        return dict(known)


def identity_of(table: Table) -> str:
    """Where the table lies and when it was made: another one has another identity, also one that is
    made there after it was dropped."""
    first = table.paimon.schema_manager.get_schema(0)
    return f"{table.location}@{0 if first is None else first.time_millis}"


def version_of(identity: str, schema: TableSchema) -> str:
    """A text that differs where the table is another, or has another schema."""
    return hashlib.sha256(f"{identity}#{schema.schema_id}".encode()).hexdigest()[:16]
