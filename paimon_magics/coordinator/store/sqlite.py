"""A store in SQLite: one file in the coordinator's state folder, on a local disk.

WAL mode with synchronous=FULL and one connection: when `write` returns, the changes are on the
disk. A database that can't be opened, is locked by another process, or lies on a network file
system is refused at the start. If the process dies in a `write`, the next start finds all of it or
nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from paimon_magics.coordinator.store.database import Change, Dialect, StoreUnavailableError
from paimon_magics.errors import SetupError

__all__ = ["MemoryDatabase", "SqliteDatabase"]

_BUSY_MS = 1_000

# When SQLite reports these, it has undone everything. After any other error, such as one of the
# disk, what the disk holds is unknown until the file is opened again.
_PASSING = (apsw.FullError, apsw.BusyError, apsw.LockedError, apsw.ReadOnlyError)


class _Connected:
    """One connection for all threads. A reader would see another thread's changes before they are
    durable, so every use holds `_turn`."""

    dialect = Dialect(integer="INTEGER", bytes="BLOB", table_end=" STRICT")

    def __init__(self, name: str) -> None:
        self._turn = threading.Lock()
        self.name = name
        self._connection: apsw.Connection

    def read(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """See `Database.read`."""
        with self._turn:
            return list(self._connection.execute(statement, values))

    def write(self, changes: Sequence[Change]) -> None:
        """See `Database.write`."""
        try:
            with self._turn:
                self._write(changes)
        except _PASSING as error:
            raise StoreUnavailableError(
                f"The coordinator's database {self.name} can't be written: {error}.",
                hint="Check the disk's free space and the folder's rights.",
            ) from error

    def close(self) -> None:
        """See `Database.close`; after that the file is complete without the write-ahead log."""
        with self._turn:
            self._connection.close()

    def _write(self, changes: Sequence[Change]) -> None:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            for change in changes:
                execute(change.statement, change.values)
            execute("COMMIT")
        except BaseException:
            # SQLite has rolled back by itself after some errors, a full disk among them.
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise


class MemoryDatabase(_Connected):
    """A `Database` in this process's memory, which its user makes durable. `image` is the image of
    another one to start with."""

    def __init__(self, name: str, image: bytes | None = None) -> None:
        super().__init__(name)
        self._connection = apsw.Connection(":memory:")
        if image is not None:
            self._connection.deserialize("main", image)

    def image(self) -> bytes:
        """Return the whole database as bytes, without deleted rows."""
        with self._turn:
            self._connection.execute("VACUUM")
            return self._connection.serialize("main")


class SqliteDatabase(_Connected):
    """A `Database` in a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        try:
            self._connection = apsw.Connection(str(path))
            self._connection.set_busy_timeout(_BUSY_MS)
            mode = self._connection.pragma("journal_mode", "wal")
            self._connection.pragma("synchronous", "full")
            # The lock is kept: a second coordinator on the same file fails here, not later.
            self._connection.pragma("locking_mode", "exclusive")
            self._connection.execute("BEGIN IMMEDIATE; COMMIT")
        except apsw.BusyError as error:
            raise SetupError(
                f"The coordinator's database {path} is in use by another process.",
                hint="Stop the other coordinator, or give this one another state folder.",
            ) from error
        except apsw.Error as error:
            raise SetupError(
                f"The coordinator's database {path} can't be opened: {error}.",
                hint="Check the folder's rights and free space, and that it is on a local disk.",
            ) from error
        if mode != "wal":
            raise SetupError(
                f"The coordinator's database {path} can't use a write-ahead log there.",
                hint="Put the state folder on a local disk.",
            )
