"""Databases with their properties, such as a comment or an owner.

The jdbc and rest catalogs keep properties themselves. A warehouse in a file system has no place for
them: there the coordinator's store keeps them (see `database_marks`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from paimon_magics.errors import InvalidTableError, UnsupportedStatementError
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.database_marks import database_mark, mark_database
from paimon_magics.tables.catalog.databases import DEFAULT_DATABASE
from paimon_magics.tables.stores.paths import local_path

__all__ = ["Altered", "Databases", "PropertyStore"]

_LOCATION = "location"


class PropertyStore(Protocol):
    """Keeps properties of databases; `DatabasePropertyTable` is one."""

    def of(self, id: str) -> dict[str, str]:
        """The properties kept under an id, empty for an unknown id."""

    def save(self, id: str, properties: Mapping[str, str]) -> None:
        """Keep properties under an id; empty ones delete it."""


@dataclass(frozen=True, slots=True)
class Altered:
    """The properties that were removed, those that were set, and those to remove that were
    missing."""

    removed: tuple[str, ...]
    updated: tuple[str, ...]
    missing: tuple[str, ...]


class Databases:
    """The databases of a catalog. `store` keeps properties where the catalog can't."""

    def __init__(self, catalog: Catalog, store: PropertyStore | None) -> None:
        self._catalog = catalog
        self._store = store

    def create(self, name: str, properties: Mapping[str, str]) -> bool:
        """Create a database; False when it exists.

        Raises InvalidTableError for a name that is not allowed or for another location, and
        UnsupportedStatementError where properties can't be kept.
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
        found = self._catalog.database_properties(name)
        if self._store is None or not self._keeps_here:
            return found
        mark = database_mark(self._catalog, name)
        return found if mark is None else self._store.of(mark) | found

    def alter(self, name: str, removals: Collection[str], updates: Mapping[str, str]) -> Altered:
        """Change properties. Raises what `create` raises."""
        updates = self._without_location(name, updates)
        before = self.properties(name)
        removed = tuple(key for key in removals if key in before and key != _LOCATION)
        missing = tuple(key for key in removals if key not in removed)
        if self._keeps_here:
            self._need_store(name, updates or removals)
            kept = {k: v for k, v in before.items() if k != _LOCATION and k not in removed}
            self._keep(name, kept | dict(updates))
        elif removed or updates:
            self._catalog.alter_database(name, removed, updates)
        return Altered(removed, tuple(updates), missing)

    def drop(self, name: str, *, cascade: bool = False) -> None:
        """Drop a database without tables, with `cascade` whatever else is in its folder."""
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
        database's folder; a rest catalog decides about it itself."""
        location = properties.get(_LOCATION)
        if location is not None and self._catalog.metastore != "rest":
            own = self._catalog.database_folder(name)
            if (local_path(location) or location).rstrip("/") != (local_path(own) or own):
                raise InvalidTableError(
                    f"The database `{name}` can't have the location {location}: databases are "
                    f"found by their names, in folders of the warehouse, this one as {own}.",
                    hint="Leave LOCATION out, or connect to a warehouse at that location.",
                )
            return {key: value for key, value in properties.items() if key != _LOCATION}
        return dict(properties)
