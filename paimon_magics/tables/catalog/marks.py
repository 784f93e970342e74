"""Tables' ids: a UUID for each table, in a mark file in its folder.

The mark moves with the folder when any engine renames it, and is deleted when the table is dropped.
It notes where the table was and when it was created. So a copy of the folder gets its own id, and
so does a new table in a folder with an old mark.

Paimon's orphan clean-up (OrphanFilesClean.java) looks into the folders of snapshots, manifests,
indexes, statistics and buckets only, and its lists of tables and partitions at folders only: the
mark affects no engine, and no engine removes it.

Only the coordinator that owns the warehouse makes marks. If the process dies while it writes a
mark, either the old mark or the new mark exists.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from dataclasses import asdict, dataclass
from functools import partial

from pypaimon.schema.schema_manager import SchemaManager

from paimon_magics.errors import PaimonMagicsError, UnknownNameError
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.schema.history import created_at_ms, table_id_of_legacy
from paimon_magics.tables.stores.corruption import parsing
from paimon_magics.tables.stores.paths import local_path, plain_location
from paimon_magics.tables.stores.store import store_errors
from paimon_magics.tables.table import MARK_NAME, Table, gone

_TABLES_MAX = 16_384
_PLACES_MAX = 4 * _TABLES_MAX
_TURNS = 64  # a store that is slow for one table does not stop the first look at all others
_ID = re.compile(r"[0-9a-f]{32}")
_FOLDER = re.compile(r"(?P<database>[^/]+)\.db/(?P<table>[^/]+)")


_DATABASE_MARK = ".paimon-magics-database"


@dataclass(frozen=True, slots=True)
class _Mark:
    """A table's id; its folder, relative to the warehouse, and when it was created, as of when the
    mark was written."""

    id: str
    path: str
    created_ms: int


class TableIds:
    """The ids of a warehouse's tables, for the coordinator that owns it. Safe for several threads.

    Raises the errors of the warehouse's store.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._root = plain_location(catalog.warehouse)
        self._guard = threading.Lock()
        self._turns = [threading.Lock() for _ in range(_TURNS)]
        self._known: dict[tuple[str, int], str] = {}
        self._places: dict[str, str] = {}

    def id_of(self, table: Table, *, look: bool = False) -> str:
        """The table's id, which is created if the table has none. A branch has the id of its table.

        A known id is not read again, unless with `look`. Raises UnknownNameError for a table that
        was dropped or renamed since it was loaded, and leaves nothing in its folder.
        """
        if self._catalog.metastore == "rest":
            return _server_id(table)
        path = table.location.removeprefix(f"{self._root}/")
        created_ms = self._created_ms(table, path)
        with self._guard:
            known = self._known.get((path, created_ms))
            if known is not None and not look and self._places.get(known) == path:
                return known
        with self._turns[hash(path) % _TURNS]:
            id = self._settled(table, path, created_ms)
        with self._guard:
            if len(self._known) >= _TABLES_MAX:
                self._known.clear()
            self._known[path, created_ms] = id
        return id

    def is_of(self, table: Table, id: str, *, look: bool = False) -> bool:
        """Whether a loaded table has an id; False where it was dropped or renamed since."""
        try:
            return self.id_of(table, look=look) == id
        except UnknownNameError:
            return False

    def expect(self, id: str, name: TableName) -> None:
        """Note where a table was when its id was last used, as a log knows it."""
        with self._guard:
            self._places.setdefault(id, f"{name.database}.db/{name.table}")

    def find(self, id: str, database: str | None = None) -> TableName | None:
        """The current name of the table with this id, which may have moved within the warehouse;
        None if there is none. Reads the marks of all tables, or of those of a database.

        Raises the store's error if a mark that may belong to the table can't be read.
        """
        catalog, unread = self._catalog, None
        if catalog.metastore == "rest":
            return None
        for other in catalog.stored_databases() if database is None else [database]:
            for table in catalog.call(partial(catalog.paimon.list_tables, other)):
                try:
                    mark = self._read(f"{other}.db/{table}")
                    name = TableName(table, other)
                    loaded = catalog.find(name) if mark is not None and mark.id == id else None
                    if loaded is not None and self.is_of(loaded, id, look=True):
                        return name
                except (PaimonMagicsError, OSError) as error:
                    unread = error
        if unread is not None:
            raise unread
        return None

    def _settled(self, table: Table, path: str, created_ms: int) -> str:
        mark = self._read(path)
        if mark is not None and created_ms in (mark.created_ms, 0):
            if not self._has_moved(table, mark, path):  # it is a copy
                mark = self._write(table, _Mark(uuid.uuid4().hex, path, created_ms))
            elif mark.path != path:
                mark = self._write(table, _Mark(mark.id, path, mark.created_ms))
            return mark.id
        id = table_id_of_legacy(f"{table.location}@{created_ms}")
        wanted = _Mark(id, path, created_ms)
        if not self._has_moved(table, wanted, path):
            wanted = _Mark(uuid.uuid4().hex, path, created_ms)
        return self._write(table, wanted, is_new=mark is None).id

    def _has_moved(self, table: Table, mark: _Mark, path: str) -> bool:
        """Take a mark's id for the table at `path`. Return False if the table that has the id is
        still, or is now, at another place."""
        while True:
            with self._guard:
                place = self._places.get(mark.id)
            for other in {mark.path, place or path} - {path}:
                there = self._read(other)
                is_same = there is not None and there.id == mark.id
                if is_same and self._created_ms(table, other) in (mark.created_ms, 0):
                    return False
            with self._guard:
                if self._places.get(mark.id) != place:
                    continue  # another thread has met the table meanwhile
                if len(self._places) >= _PLACES_MAX:
                    self._places.clear()
                self._places[mark.id] = path
                return True

    def _read(self, path: str) -> _Mark | None:
        """The mark in a folder; None if it is missing or empty. Raises SetupError if the store
        can't read it, TableDamagedError for a folder in its place."""
        file = self._file(path)
        with (
            store_errors(f"Reading the id of the table, {file},"),
            parsing(f"The id of the table, {file},", "Remove that folder."),
        ):
            content = self._catalog.stores.of(file).read(file)
        return None if content is None else _mark_of(content)

    def _write(self, table: Table, mark: _Mark, *, is_new: bool = False) -> _Mark:
        """Write a mark, and return it; if it `is_new` and another process was faster, return that
        process's mark."""
        file = self._file(mark.path)
        content = json.dumps(asdict(mark)).encode()
        if is_new and not self._catalog.stores.publish(file, content):
            there = self._read(mark.path)
            if there is not None:
                return there
            is_new = False
        if not is_new:
            table.store.write(file, content)
        if created_at_ms(table) is None and table.paimon.schema_manager.latest() is None:
            # It was dropped meanwhile, and on a local disk the mark has made its folder anew.
            table.store.delete([file])
            table.store.remove_if_empty(table.location)
            raise gone(table)
        with self._guard:
            self._places[mark.id] = mark.path
        return mark

    def _file(self, path: str) -> str:
        return f"{self._root}/{path}/{MARK_NAME}"

    def _created_ms(self, table: Table, path: str) -> int:
        """When the table in a folder was created; 0 where its first schema is gone."""
        location = f"{self._root}/{path}"
        manager = table.paimon.schema_manager
        if location != table.location or manager.branch != "main":
            manager = SchemaManager(table.paimon.file_io, location)
        try:
            first = self._catalog.reading(table.name, lambda: manager.get_schema(0))
        except FileNotFoundError:  # it was there a moment ago
            return 0
        return 0 if first is None else int(first.time_millis)


def _server_id(table: Table) -> str:
    """The id of a table of a REST catalog: the server's; of an old server's table one that follows
    from its name and creation."""
    server_id = table.paimon.catalog_environment.uuid
    if server_id:
        return str(server_id).replace("-", "").lower()
    return table_id_of_legacy(f"{table.location}@{created_at_ms(table) or 0}")


def _mark_of(content: bytes) -> _Mark | None:
    """The mark of a document; None for one that can't be read, or that leads out of the
    warehouse."""
    try:
        document = json.loads(content)
        mark = _Mark(str(document["id"]), str(document["path"]), int(document["created_ms"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    parts = _FOLDER.fullmatch(mark.path)
    is_good = _ID.fullmatch(mark.id) and parts is not None and ".." not in mark.path.split("/")
    return mark if is_good else None


# The mark in a database's folder: the id under which its properties are kept elsewhere.
#
# A filesystem catalog has no place for properties. The mark moves with the folder: a database that
# any client dropped and created again has no mark.


def database_mark(catalog: Catalog, database: str) -> str | None:
    """The id of a database; None if no properties of it are kept."""
    path = _path(catalog, database)
    content = catalog.stores.of(path).read(path)
    return None if content is None else content.decode().strip()


def mark_database(catalog: Catalog, database: str) -> str:
    """Return the database's id; give it a new one if it has none. Raises UnknownNameError for a
    database that does not exist: nothing but its creation makes its folder."""
    known = database_mark(catalog, database)
    if known is not None:
        return known
    if not catalog.database_exists(database):
        raise catalog.unknown_database(database)
    catalog.make_database_folder(database)  # the default database exists without one
    id, path = uuid.uuid4().hex, _path(catalog, database)
    catalog.stores.of(path).write(path, id.encode())
    return id


def _path(catalog: Catalog, database: str) -> str:
    folder = catalog.database_folder(database)
    return f"{(local_path(folder) or folder).rstrip('/')}/{_DATABASE_MARK}"
