"""The schemas of a table's history, each read from its file once."""

from __future__ import annotations

from typing import Any

from paimon_magics.columnar.fields import Field
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.tables.pypaimon_internals import schema_path
from paimon_magics.tables.schema.alterations import schema_of
from paimon_magics.tables.schema.types import fields_of
from paimon_magics.tables.stores.corruption import damaged, parsing

__all__ = ["TableSchemas"]


class TableSchemas:
    """Schemas by number. `paimon` is pypaimon's table; its own schema is not read again."""

    def __init__(self, paimon: Any) -> None:
        self._paimon = paimon
        self._schemas: dict[int, Any] = {paimon.table_schema.id: paimon.table_schema}

    def schema(self, schema_id: int) -> Any:
        """pypaimon's schema of that number. Raises TableDamagedError if it is gone or damaged."""
        found = self._schemas.get(schema_id)
        if found is None:
            manager = self._paimon.schema_manager
            what = f"The schema file {schema_path(manager, schema_id)}"
            with parsing(what):
                found = manager.get_schema(schema_id)
            if found is None:
                raise damaged(what, "it is gone")
            self._schemas[schema_id] = found
        return found

    def columns(self, schema_id: int) -> tuple[Column, ...]:
        """The columns of the schema of that number."""
        return schema_of(self.schema(schema_id)).columns

    def fields(self, schema_id: int) -> tuple[Field, ...]:
        """The columns with their nested fields, in the form for the Arrow kernels."""
        return fields_of(self.schema(schema_id).fields)
