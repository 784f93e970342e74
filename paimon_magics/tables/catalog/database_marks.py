"""The mark in a database's folder that says under which id somebody keeps its properties.

A warehouse in a file system has no place for them. The mark goes with its folder: a database that
was dropped and made again has none, whoever did it.
"""

from __future__ import annotations

import uuid

from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.stores.paths import local_path

__all__ = ["database_mark", "mark_database"]

_NAME = ".paimon-magics-database"


def database_mark(catalog: Catalog, database: str) -> str | None:
    """The id of a database, None where nobody keeps properties of it."""
    path = _path(catalog, database)
    content = catalog.stores.of(path).read(path)
    return None if content is None else content.decode().strip()


def mark_database(catalog: Catalog, database: str) -> str:
    """Give a database an id, unless it has one; return it."""
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
