"""Databases with their properties, and the views and functions in them.

A warehouse in a file system has no place for them: the coordinator's store keeps them, under the id
in the database's folder (see `marks`). It also keeps the properties of databases there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from paimon_magics.coordinator.turns import Turn
from paimon_magics.errors import InvalidTableError, UnknownNameError, UnsupportedStatementError
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.databases import DEFAULT_DATABASE
from paimon_magics.tables.catalog.marks import database_mark, mark_database
from paimon_magics.tables.stores.paths import local_path

if TYPE_CHECKING:  # a session that commits in its own process loads no store
    from paimon_magics.coordinator.store.state_store import DatabasePropertyTable, DefinitionTable

Document = dict[str, Any]

_LOCATION = "location"
_OF_THE_FIRST = ("id", "owner", "createdAt", "createdBy")  # members that a replacement keeps


class Kind(StrEnum):
    """What a definition defines."""

    VIEW = "view"
    FUNCTION = "function"


class Definitions:
    """The views and functions of a catalog's databases, which must exist. For any thread.

    `turn` keeps changes apart: those of the whole warehouse, since a view may move from one
    database to another. Raises UnsupportedStatementError if nothing can keep them: without a store,
    and for catalogs other than a file system's.
    """

    def __init__(self, catalog: Catalog, store: DefinitionTable | None, turn: Turn) -> None:
        self._catalog = catalog
        self._store = store
        self._turn = turn

    def names(self, kind: Kind, database: str) -> list[str]:
        """The names of a database's views or functions, in no order; none if none are kept."""
        mark = self._mark(database)
        return [] if mark is None else self._need_store(kind).names(mark, kind)

    def of(self, kind: Kind, name: TableName) -> Document:
        """The document of a view or a function. Raises UnknownNameError."""
        return self._stored(kind, name)[1]

    def exists(self, kind: Kind, name: TableName) -> bool:
        """Whether there is a view or a function of that name."""
        try:
            self.of(kind, name)
        except UnknownNameError:
            return False
        return True

    def create(
        self, kind: Kind, name: TableName, document: Document, *, replaces: bool = False
    ) -> bool:
        """Keep a new definition; False if there is a definition of that name. With `replaces` the
        new one takes its place in one step, and has its id, owner and creator.

        Raises InvalidTableError for a view with the name of a table, and UnknownNameError if there
        is no such database.
        """
        store = self._need_store(kind)
        with self._turn(self._catalog.warehouse):
            self._check_no_table(kind, name)
            id = mark_database(self._catalog, _database(name))
            before = store.of(id, kind, name.table)
            if before is not None:
                if not replaces:
                    return False
                document = document | {key: before[key] for key in _OF_THE_FIRST}
            store.save(id, kind, name.table, document)
        return True

    def change(self, kind: Kind, name: TableName, changed: Callable[[Document], Document]) -> None:
        """Replace a document by the result of `changed`. Raises UnknownNameError."""
        store = self._need_store(kind)
        with self._turn(self._catalog.warehouse):
            id, document = self._stored(kind, name)
            store.save(id, kind, name.table, changed(document))

    def rename(self, kind: Kind, source: TableName, target: TableName) -> bool:
        """Give a definition another name, or another database; False if the name exists. Raises
        UnknownNameError, and InvalidTableError for a view with the name of a table.
        """
        store = self._need_store(kind)
        with self._turn(self._catalog.warehouse):
            source_id, _ = self._stored(kind, source)
            self._check_no_table(kind, target)
            id = mark_database(self._catalog, _database(target))
            if store.of(id, kind, target.table) is not None:
                return False
            store.move(kind, (source_id, source.table), (id, target.table))
        return True

    def drop(self, kind: Kind, name: TableName) -> None:
        """Drop a definition. Raises UnknownNameError."""
        store = self._need_store(kind)
        with self._turn(self._catalog.warehouse):
            id, _ = self._stored(kind, name)
            store.delete(id, kind, name.table)

    def drop_all(self, database: str) -> None:
        """Drop all definitions of a database that is about to be dropped."""
        mark = self._mark(database)
        if mark is not None and self._store is not None:
            with self._turn(self._catalog.warehouse):
                self._store.delete_all(mark)

    def _stored(self, kind: Kind, name: TableName) -> tuple[str, Document]:
        """The id of a definition's database, and its document. Raises UnknownNameError."""
        id = self._mark(_database(name))
        document = None if id is None else self._need_store(kind).of(id, kind, name.table)
        if id is None or document is None:
            raise UnknownNameError(f"There is no {kind} `{name}`.")
        return id, document

    def _mark(self, database: str) -> str | None:
        """The id of a database; None if nothing is kept for it here."""
        keeps = self._store is not None and self._keeps_here
        return database_mark(self._catalog, database) if keeps else None

    @property
    def _keeps_here(self) -> bool:
        return self._catalog.metastore == "filesystem"

    def _need_store(self, kind: Kind) -> DefinitionTable:
        if self._store is None or not self._keeps_here:
            raise UnsupportedStatementError(
                f"This catalog can't keep {kind}s: a coordinator's store keeps them, for "
                "warehouses in a file system."
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


# Databases with their properties, such as a comment or an owner.
#
# The jdbc and rest catalogs keep properties themselves. A warehouse in a file system has no place
# for them: there the coordinator's store keeps them (see `marks`).


@dataclass(frozen=True, slots=True)
class Altered:
    """The removed properties, the set properties, and the properties to remove that were
    missing."""

    removed: tuple[str, ...]
    updated: tuple[str, ...]
    missing: tuple[str, ...]


class Databases:
    """The databases of a catalog. `store` keeps properties if the catalog can't."""

    def __init__(self, catalog: Catalog, store: DatabasePropertyTable | None) -> None:
        self._catalog = catalog
        self._store = store

    def create(self, name: str, properties: Mapping[str, str]) -> bool:
        """Create a database; False when it exists.

        Raises InvalidTableError for a name that is not allowed or for another location, and
        UnsupportedStatementError if properties can't be kept.
        """
        if self._catalog.is_stored(name):
            return False
        properties = self._without_location(name, properties)
        if properties and self._keeps_here:
            self._need_store(name, properties)
            self._make(name, {})
            self._keep(name, properties)
        else:
            self._make(name, properties)
        return True

    def _make(self, name: str, properties: Mapping[str, str]) -> None:
        if name == DEFAULT_DATABASE and not properties:
            self._catalog.make_database_folder(name)
        else:
            self._catalog.create_database(name, properties=properties)

    def properties(self, name: str) -> dict[str, str]:
        """A database's properties, with its location if it has one. Raises UnknownNameError."""
        properties = self._catalog.database_properties(name)
        if self._store is None or not self._keeps_here:
            return properties
        mark = database_mark(self._catalog, name)
        return properties if mark is None else self._store.of(mark) | properties

    def alter(self, name: str, removals: Collection[str], updates: Mapping[str, str]) -> Altered:
        """Change properties. Raises what `create` raises."""
        updates = self._without_location(name, updates)
        before = self.properties(name)
        goes = {key for key in removals if key in before and key != _LOCATION}
        removed = tuple(key for key in removals if key in goes)
        missing = tuple(key for key in removals if key not in goes)
        if self._keeps_here:
            self._need_store(name, updates or removals)
            remaining = {k: v for k, v in before.items() if k != _LOCATION and k not in goes}
            self._keep(name, remaining | dict(updates))
        elif removed or updates:
            self._catalog.make_database_folder(name)  # `default` may not be stored yet
            self._catalog.alter_database(name, removed, updates)
        return Altered(removed, tuple(updates), missing)

    def drop(self, name: str, *, cascade: bool = False) -> None:
        """Drop a database without tables; with `cascade`, also everything else in its folder."""
        mark = database_mark(self._catalog, name) if self._keeps_here else None
        self._catalog.drop_database(name, if_exists=True, cascade=cascade)
        if self._store is not None and mark is not None:
            self._store.save(mark, {})

    @property
    def _keeps_here(self) -> bool:
        return self._catalog.metastore == "filesystem"

    def _need_store(self, name: str, properties: Collection[str]) -> None:
        if self._store is None:
            raise UnsupportedStatementError(
                f"A session that commits in its own process can't keep properties of the database "
                f"`{name}`: {', '.join(sorted(properties))}.",
                hint="Leave COMMENT and DBPROPERTIES out, or connect with coordinator='embedded' "
                "or the address of a coordinator, which keeps them.",
            )

    def _keep(self, name: str, properties: Mapping[str, str]) -> None:
        assert self._store is not None
        self._store.save(mark_database(self._catalog, name), properties)

    def _without_location(self, name: str, properties: Mapping[str, str]) -> dict[str, str]:
        """The properties without a location. Raises InvalidTableError for a location other than the
        database's folder; a rest catalog checks it itself.
        """
        location = properties.get(_LOCATION)
        if location is not None and self._catalog.metastore != "rest":
            own = self._catalog.database_folder(name)
            if (local_path(location) or location).rstrip("/") != (local_path(own) or own):
                raise InvalidTableError(
                    f"The database `{name}` can't have the location {location}: a database is "
                    "found by its name, in a folder of the warehouse. This database must be in "
                    f"{own}.",
                    hint="Leave LOCATION out, or connect to a warehouse at that location.",
                )
            return {key: value for key, value in properties.items() if key != _LOCATION}
        return dict(properties)
