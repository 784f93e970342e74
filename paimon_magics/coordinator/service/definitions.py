"""The views and functions of databases. Engines define them and use them by the REST catalog.

A warehouse in a file system has no place for them: the coordinator's store keeps them, under the
id in the database's folder (see `database_marks`), as it keeps the properties of databases.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol

from paimon_magics.coordinator.turns import Turn
from paimon_magics.errors import InvalidTableError, UnknownNameError, UnsupportedStatementError
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.database_marks import database_mark, mark_database

__all__ = ["DefinitionStore", "Definitions", "Kind"]

Document = dict[str, Any]


class Kind(StrEnum):
    """What a definition defines."""

    VIEW = "view"
    FUNCTION = "function"


class DefinitionStore(Protocol):
    """Keeps views and functions under ids of databases; `DefinitionTable` is one."""

    def names(self, database_id: str, kind: str) -> list[str]:
        """The names of a database's views or functions."""

    def of(self, database_id: str, kind: str, name: str) -> Document | None:
        """The document of one; None if there is none of that name."""

    def save(self, database_id: str, kind: str, name: str, document: Document) -> None:
        """Keep a document, in place of what has its name."""

    def move(self, kind: str, source: tuple[str, str], target: tuple[str, str]) -> None:
        """Give one another name, or another database."""

    def delete(self, database_id: str, kind: str, name: str) -> None:
        """Delete one."""

    def delete_all(self, database_id: str) -> None:
        """Delete those of a database."""


class Definitions:
    """The views and functions of a catalog's databases, which must exist. For any thread.

    `turn` keeps changes apart: those of the whole warehouse, since a view may move from one
    database to another. Raises UnsupportedStatementError where nothing can keep them: without a
    store, and for catalogs of another kind than a file system's.
    """

    def __init__(self, catalog: Catalog, store: DefinitionStore | None, turn: Turn) -> None:
        self._catalog = catalog
        self._store = store
        self._turn = turn

    def names(self, kind: Kind, database: str) -> list[str]:
        """The names of a database's views or functions, in no order; none where none are kept."""
        if self._store is None or not self._keeps_here:
            return []
        mark = database_mark(self._catalog, database)
        return [] if mark is None else self._store.names(mark, kind)

    def of(self, kind: Kind, name: TableName) -> Document:
        """The document of a view or a function. Raises UnknownNameError."""
        found = None
        if self._store is not None and self._keeps_here:
            mark = database_mark(self._catalog, _database(name))
            found = None if mark is None else self._store.of(mark, kind, name.table)
        if found is None:
            raise UnknownNameError(f"There is no {kind} `{name}`.")
        return found

    def exists(self, kind: Kind, name: TableName) -> bool:
        """Whether there is a view or a function of that name."""
        try:
            self.of(kind, name)
        except UnknownNameError:
            return False
        return True

    def create(self, kind: Kind, name: TableName, document: Document) -> bool:
        """Keep a new one; False when there is one of that name.

        Raises InvalidTableError for a view with the name of a table.
        """
        store = self._need_store(kind)
        with self._turn(self._catalog.warehouse):
            self._check_no_table(kind, name)
            id = mark_database(self._catalog, _database(name))
            if store.of(id, kind, name.table) is not None:
                return False
            store.save(id, kind, name.table, document)
        return True

    def change(self, kind: Kind, name: TableName, changed: Callable[[Document], Document]) -> None:
        """Put what `changed` makes of a document in its place. Raises UnknownNameError."""
        store = self._need_store(kind)
        with self._turn(self._catalog.warehouse):
            document = changed(self.of(kind, name))
            store.save(mark_database(self._catalog, _database(name)), kind, name.table, document)

    def rename(self, kind: Kind, source: TableName, target: TableName) -> bool:
        """Give one another name, or another database; False when the name is taken. Raises
        UnknownNameError, and InvalidTableError for a view to be named like a table."""
        store = self._need_store(kind)
        with self._turn(self._catalog.warehouse):
            self.of(kind, source)
            self._check_no_table(kind, target)
            id = mark_database(self._catalog, _database(target))
            if store.of(id, kind, target.table) is not None:
                return False
            source_id = mark_database(self._catalog, _database(source))
            store.move(kind, (source_id, source.table), (id, target.table))
        return True

    def drop(self, kind: Kind, name: TableName) -> None:
        """Drop one. Raises UnknownNameError."""
        store = self._need_store(kind)
        with self._turn(self._catalog.warehouse):
            self.of(kind, name)
            store.delete(mark_database(self._catalog, _database(name)), kind, name.table)

    def drop_all(self, database: str) -> None:
        """Drop those of a database that is about to be dropped."""
        if self._store is not None and self._keeps_here:
            mark = database_mark(self._catalog, database)
            if mark is not None:
                self._store.delete_all(mark)

    @property
    def _keeps_here(self) -> bool:
        return self._catalog.metastore == "filesystem"

    def _need_store(self, kind: Kind) -> DefinitionStore:
        if self._store is None or not self._keeps_here:
            raise UnsupportedStatementError(
                f"Nothing here keeps {kind}s: they are kept for warehouses in a file system, in "
                "the coordinator's store."
            )
        return self._store

    def _check_no_table(self, kind: Kind, name: TableName) -> None:
        if kind is Kind.VIEW and self._catalog.table_exists(name):
            raise InvalidTableError(
                f"`{name}` is a table: a view can't have its name.", hint="Choose another name."
            )


def _database(name: TableName) -> str:
    assert name.database is not None
    return name.database
