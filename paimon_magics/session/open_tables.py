"""The tables that a statement names: each is loaded from the catalog once.

So all steps of a statement see one schema. `renew` loads the newest, for planning again.
"""

from __future__ import annotations

from paimon_magics.errors import InvalidTableError, UnsupportedStatementError
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.table import Table

__all__ = ["OpenTables"]


class OpenTables:
    """The tables of one statement, by full name. For the statement's thread only."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._tables: dict[TableName, Table] = {}

    def load(self, name: TableName) -> Table:
        """Return the table. Raises what `Catalog.load` raises.

        A missing table is looked up again the next time: the statement may create it.
        """
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = self._catalog.load(name)
        return table

    def exists(self, name: TableName) -> bool:
        """Whether the catalog has the table, including one that can't be read here."""
        if name in self._tables:
            return True
        if name.database is None or not self._catalog.database_exists(name.database):
            return False
        try:
            table = self._catalog.find(name)
        except (InvalidTableError, UnsupportedStatementError):
            return True  # `load` says what is wrong with it
        if table is not None:
            self._tables[name] = table
        return table is not None

    def renew(self) -> None:
        """Load each table again on its next use."""
        self._tables.clear()
