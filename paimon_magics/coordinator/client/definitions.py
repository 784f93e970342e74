"""The interface through which a session changes definitions: tables and databases.

A session with a coordinator sends each change to it, which checks rights and ownership and carries
it out; without one it is carried out in this process, by the same service on the same catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from paimon_magics.coordinator.protocol.definition_changes import (
    DatabaseCreation,
    DatabaseDrop,
    DefinitionChange,
    TableAlteration,
    TableCreation,
    TableDrop,
    TableRename,
)
from paimon_magics.errors import TableDamagedError
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.table_changes import TableChange
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.names import check_name, check_new_table
from paimon_magics.tables.schema.identity import created_at_ms

__all__ = ["Definitions"]


class Definitions:
    """Changes definitions of the warehouse that `catalog` reads, by `change`, which returns whether
    anything was created or dropped. All names have their databases."""

    def __init__(self, catalog: Catalog, change: Callable[[DefinitionChange], bool]) -> None:
        self._catalog = catalog
        self._change = change

    def create_table(
        self, name: TableName, schema: TableSchema, *, if_not_exists: bool = False
    ) -> bool:
        """Create a table; return whether it was created. Raises what `Catalog.create_table` and
        `check_schema` raise."""
        check_new_table(name)
        return self._change(TableCreation(name, schema, if_not_exists))

    def drop_table(
        self, name: TableName, *, if_exists: bool = False, only_empty: bool = False
    ) -> bool:
        """Drop a table; return whether it was dropped. With `only_empty` a table that has snapshots
        stays. Raises what `Catalog.drop_table` raises."""
        if if_exists and name.system_table is None and not self._catalog.table_exists(name):
            return False
        return self._change(TableDrop(name, if_exists, only_empty, self._created_at_ms(name)))

    def rename_table(self, name: TableName, new_name: TableName) -> None:
        """Rename a table. Raises what `Catalog.rename_table` raises."""
        check_new_table(new_name)
        self._change(TableRename(name, new_name, self._created_at_ms(name)))

    def alter_table(self, name: TableName, changes: Sequence[TableChange], base: int) -> None:
        """Change a table's columns and options, as planned on the schema `base`. Raises what
        `Catalog.alter_table` raises."""
        self._change(TableAlteration(name, tuple(changes), base))

    def create_database(
        self, name: str, properties: Mapping[str, str], *, if_not_exists: bool = False
    ) -> bool:
        """Create a database; return whether it was created. Raises StatementError where it exists,
        UnsupportedStatementError where properties can't be kept."""
        check_name(name, "database")
        return self._change(DatabaseCreation(name, tuple(properties.items()), if_not_exists))

    def drop_database(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> bool:
        """Drop a database, with `cascade` its tables too; return whether it was dropped. Raises
        what `Catalog.drop_database` raises."""
        return self._change(DatabaseDrop(name, if_exists, cascade))

    def _created_at_ms(self, name: TableName) -> int | None:
        try:
            return created_at_ms(self._catalog.load(name))
        except TableDamagedError:
            return None
