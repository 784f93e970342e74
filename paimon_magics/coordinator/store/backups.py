"""Backups of a coordinator's store: one SQLite file with the tables of the store and of the log.

A backup has the same form whatever kind of database it comes from, so it can be restored into
either kind. A file is written under another name and renamed when it is whole.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import apsw

from paimon_magics.coordinator.store.database import Change, Database
from paimon_magics.coordinator.store.sqlite import SqliteDatabase
from paimon_magics.coordinator.store.state_store import STORE_FORMAT, StateStore
from paimon_magics.coordinator.store.tables import UNFINISHED
from paimon_magics.errors import InvalidValueError

_FORMAT = 1
_MANIFEST = "backup"
_LOG_PREFIX = "log_"
_ROWS_AT_ONCE = 1_000

Opening = Callable[[Database], object]
"""Makes the tables of a log in a database."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup is of. `log` is "store" if it has the log of small inserts, "warehouse" if that
    lies in the warehouse. Times are in ms; `version` made it."""

    format: int
    at_ms: int
    version: str
    warehouse_id: str
    warehouse: str
    log: str


class Backup:
    """A backup's file, to be read. Raises InvalidValueError for a file that is no whole backup of
    this version's form."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise InvalidValueError(
                f"There is no backup {path}.",
                hint="Name a file that `paimon-coordinator backup` has written.",
            )
        try:
            self._connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
            names = [field.name for field in fields(Manifest)]
            rows = list(self._connection.execute(f"SELECT {', '.join(names)} FROM {_MANIFEST}"))
            self.manifest = Manifest(*rows[0])
            whole = [str(row[0]) for row in self._connection.execute("PRAGMA integrity_check")]
            self.store_format = next(iter(self._connection.execute("SELECT format FROM meta")))[0]
        except (apsw.Error, IndexError, StopIteration) as error:
            raise InvalidValueError(
                f"{path} is not a backup: {error or 'it has no manifest'}.",
                hint="Name a file that `paimon-coordinator backup` has written.",
            ) from error
        if whole != ["ok"]:
            raise InvalidValueError(
                f"The backup {path} is damaged: {whole[0]}.", hint="Use another backup."
            )
        if (self.manifest.format, self.store_format) != (_FORMAT, STORE_FORMAT):
            raise InvalidValueError(
                f"The backup {path} has the format {self.manifest.format}, of a store of the "
                f"format {self.store_format}; this version has {_FORMAT} and {STORE_FORMAT}.",
                hint=f"Restore it with the version that made it, {self.manifest.version}.",
            )

    def tables(self, *, of_log: bool) -> list[str]:
        """The names of the tables of the store, or of the log."""
        names = [
            str(row[0])
            for row in self._connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            )
        ]
        return [
            name for name in names if name != _MANIFEST and name.startswith(_LOG_PREFIX) == of_log
        ]

    def rows(self, table: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The names of a table's columns, and its rows."""
        columns = [row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")]
        return columns, list(self._connection.execute(f"SELECT * FROM {table}"))

    @property
    def warehouse_id(self) -> str:
        """The id of the warehouse that its store belongs to; "" for a store without one."""
        return str(next(iter(self._connection.execute("SELECT warehouse_id FROM meta")))[0])

    def acknowledged(self) -> tuple[str, dict[str, tuple[str, int]]]:
        """The id of its log, and each table's id with its name and the number of its last
        acknowledged record. The log's id is "" where the backup has no log."""
        if "log_meta" not in self.tables(of_log=True):
            return "", {}
        ids = list(self._connection.execute("SELECT id FROM log_meta"))
        tables = self._connection.execute("SELECT table_id, name, acknowledged FROM log_tables")
        return str(ids[0][0]) if ids else "", {id: (name, last) for id, name, last in tables}

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A file to write in the `with` block, which gets the name `path` when the block has ended.
    Raises InvalidValueError if there is something of that name."""
    if path.exists():
        raise InvalidValueError(f"{path} exists already.", hint="Name another file.")
    if not path.parent.is_dir():
        raise InvalidValueError(
            f"There is no folder {path.parent}.", hint="Make it, or name another one."
        )
    partial = path.with_name(f".{path.name}-{uuid.uuid4().hex}.partial")
    try:
        yield partial
        with partial.open("rb") as whole:
            os.fsync(whole.fileno())
        os.link(partial, path)  # which fails where another process was faster
    except FileExistsError as error:
        raise InvalidValueError(f"{path} exists already.", hint="Name another file.") from error
    finally:
        for file in list(partial.parent.iterdir()):
            if file.name.startswith(partial.name):
                file.unlink(missing_ok=True)


def write_backup(path: Path, copies: Sequence[Callable[[Path], None]], manifest: Manifest) -> None:
    """Write a backup of the databases that `copies` copy, each into a file of its own. The first
    one is the log's, so that the store knows every transaction that the log names."""
    with new_file(path) as partial:
        parts = [partial.with_name(f"{partial.name}.{number}") for number in range(len(copies))]
        for copy, part in zip(copies, parts, strict=True):
            copy(part)
        _make_private(partial)
        connection = apsw.Connection(str(partial))
        with contextlib.closing(connection):
            for number, part in enumerate(parts):
                _copy_tables(connection, part, f"part{number}")
            names = ", ".join(field.name for field in fields(Manifest))
            connection.execute(f"CREATE TABLE {_MANIFEST} ({names})")
            values = tuple(asdict(manifest).values())
            marks = ", ".join("?" * len(values))
            connection.execute(f"INSERT INTO {_MANIFEST} VALUES ({marks})", values)


def copy_postgres(address: str, opens_log: Opening) -> Callable[[Path], None]:
    """What copies the store in a PostgreSQL database into a file, as of one moment, without
    disturbing the coordinator that uses it."""

    def copy(target: Path) -> None:
        from paimon_magics.coordinator.store.postgres import snapshot_rows

        _make_private(target)
        database = SqliteDatabase(target)
        try:
            tables = _emptied(database, opens_log)
            for table, columns, rows in snapshot_rows(address, tables):
                database.write(_insertions(table, columns, rows))
        finally:
            database.close()

    return copy


def replacing(backup: Backup, *, log: bool, store: bool) -> Iterator[Change]:
    """The changes that put a backup in the place of what a database has. The restored store takes
    no start before its restore has ended."""
    for of_log in (False, True):
        if not (log if of_log else store):
            continue
        for table in backup.tables(of_log=of_log):
            yield Change(f"DELETE FROM {table}")
            yield from _insertions(table, *backup.rows(table))
    if store:
        yield Change("UPDATE pairing SET mark = ?, prior = ''", (UNFINISHED,))


def fill_sqlite(path: Path, backup: Backup, opens_log: Opening | None) -> None:
    """Make a database file of a backup: of its log if `opens_log` is given, else of its store."""
    for end in ("", "-wal", "-shm", "-journal"):
        path.with_name(f"{path.name}{end}").unlink(missing_ok=True)
    database = SqliteDatabase(path)
    try:
        if opens_log is None:
            StateStore(database)
        else:
            opens_log(database)
        is_log = opens_log is not None
        database.write(list(replacing(backup, log=is_log, store=not is_log)))
    finally:
        database.close()


def _emptied(database: SqliteDatabase, opens_log: Opening) -> dict[str, list[str]]:
    """Make all tables in a database, without rows; return their columns."""
    StateStore(database)
    opens_log(database)
    names = [
        str(row[0]) for row in database.read("SELECT name FROM sqlite_master WHERE type = 'table'")
    ]
    database.write([Change(f"DELETE FROM {name}") for name in names])
    return {
        name: [
            str(row[0]) for row in database.read(f"SELECT name FROM pragma_table_info('{name}')")
        ]
        for name in names
    }


def _insertions(
    table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> list[Change]:
    marks = ", ".join("?" * len(columns))
    statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
    return [Change(statement, tuple(map(_plain, row))) for row in rows]


def _plain(value: Any) -> object:
    return bytes(value) if isinstance(value, memoryview) else value


def _copy_tables(connection: apsw.Connection, part: Path, alias: str) -> None:
    connection.execute(f"ATTACH ? AS {alias}", (str(part),))
    for name, sql in list(
        connection.execute(f"SELECT name, sql FROM {alias}.sqlite_master WHERE type = 'table'")
    ):
        there = connection.execute("SELECT 1 FROM main.sqlite_master WHERE name = ?", (name,))
        if list(there):
            continue
        connection.execute(str(sql))
        connection.execute(f"INSERT INTO main.{name} SELECT * FROM {alias}.{name}")


def _make_private(path: Path) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
