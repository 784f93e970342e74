"""All schemas that a table has had, as definitions by their ids."""

from __future__ import annotations

from paimon_magics.planning.definitions import TableDefinition
from paimon_magics.tables.catalog import Table
from paimon_magics.tables.schema_changes import definition_of

__all__ = ["Definitions"]

_TABLES_MAX = 256


class Definitions:
    """Remembers the schemas of tables, which never change once they are there."""

    def __init__(self) -> None:
        self._known: dict[str, dict[int, TableDefinition]] = {}

    def of(self, table: Table) -> dict[int, TableDefinition]:
        """The table's schemas up to the one that it was loaded with."""
        first = table.paimon.schema_manager.get_schema(0)
        # A table that was dropped and made anew at one place has schemas of its own.
        made_ms = 0 if first is None else first.time_millis
        key = f"{table.location}@{made_ms}"
        if key not in self._known and len(self._known) >= _TABLES_MAX:
            self._known.clear()
        known = self._known.setdefault(key, {})
        present = table.definition.schema_id
        known[present] = table.definition
        for schema_id in range(present):
            if schema_id not in known:
                schema = table.paimon.schema_manager.get_schema(schema_id)
                if schema is not None:  # a rolled back one is gone
                    known[schema_id] = definition_of(schema)
        return dict(known)
