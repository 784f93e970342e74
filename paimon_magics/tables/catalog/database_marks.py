"""The mark in a database's folder: the id under which its properties are kept elsewhere.

A filesystem catalog has no place for properties. The mark goes with the folder: a database that was
dropped and created again has none, whichever client did it.
"""

from __future__ import annotations

import uuid

from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.stores.paths import local_path

__all__ = ["database_mark", "mark_database"]

_NAME = ".paimon-magics-database"


def database_mark(catalog: Catalog, database: str) -> str | None:
    """The id of a database; None if no properties of it are kept."""
    path = _path(catalog, database)
    content = catalog.stores.of(path).read(path)
    return None if content is None else content.decode().strip()


def mark_database(catalog: Catalog, database: str) -> str:
    """Return the database's id; give it a new one if it has none."""
    known = database_mark(catalog, database)
    if known is not None:
        return known
    catalog.make_database_folder(database)
    id, path = uuid.uuid4().hex, _path(catalog, database)
    catalog.stores.of(path).write(path, id.encode())
    return id


def _path(catalog: Catalog, database: str) -> str:
    folder = catalog.database_folder(database)
    return f"{(local_path(folder) or folder).rstrip('/')}/{_NAME}"
