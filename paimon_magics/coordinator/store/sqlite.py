"""A store in SQLite: one file in the coordinator's state folder, on a local disk.

WAL mode with synchronous=FULL and one connection: when `write` returns, the changes are on the
disk. The start fails if the database can't be opened, is locked by another process, or is on a
network file system. If the process dies in a `write`, the next start finds all of it or nothing.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

from paimon_magics.coordinator.store.database import (
    Change,
    Dialect,
    KnownWrites,
    StoreLostError,
    StoreUnavailableError,
    Turn,
    UnstorableError,
)
from paimon_magics.errors import SetupError

_BUSY_MS = 1_000
_READ_TURN_SECONDS = 1.0  # readers don't wait for a slow disk
_WRITE_TURN_SECONDS = 5.0
_COPY_PAGES = 1_000  # in one turn, so that others wait for some milliseconds
_COPY_PAUSE_SECONDS = 0.005
_COPY_END_SECONDS = 60.0  # without it, nobody could use the connection safely

# When SQLite reports these, it has undone everything. After any other error of a COMMIT, such as
# one of the disk, it has undone everything for this process, but a start would find what the disk
# holds; until the next COMMIT, which writes to the same place.
_PASSING = (apsw.FullError, apsw.BusyError, apsw.LockedError, apsw.ReadOnlyError)
_LOST = (apsw.CorruptError, apsw.NotADBError)
_UNSTORABLE = (
    *(apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, apsw.RangeError),
    *(UnicodeError, OverflowError, TypeError),  # of a value, before it comes to SQLite
)


_log = logging.getLogger(__name__)


class _Connected:
    """One connection for all threads. A reader would see another thread's changes before they are
    durable, so every use holds `_turn`."""

    dialect = Dialect(integer="INTEGER", bytes="BLOB", table_end=" STRICT")
    is_shared = False

    def __init__(self, name: str) -> None:
        self.name = name
        self._turn = Turn(f"The coordinator's database {name}")
        self._known = KnownWrites()
        self._is_dirty = False  # a transaction of a write that has failed is still open
        self._connection: apsw.Connection

    def read(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """See `Database.read`."""
        with self._used("read", _READ_TURN_SECONDS):
            return list(self._connection.execute(statement, values))

    def write(self, changes: Sequence[Change], id: str = "") -> None:
        """See `Database.write`."""
        try:
            with self._turn.within(_WRITE_TURN_SECONDS):
                if self._is_dirty:
                    self._clean("written")
                if not self._known.is_done(id):
                    self._write(changes, id)
                    if id:
                        self._known.succeeded(id)
                    self._known.settle()  # it was written in place of those that failed
        except StoreUnavailableError as error:
            error.unclear |= self._known.is_open(id)
            raise

    def close(self) -> None:
        """See `Database.close`; after that the file is complete without the write-ahead log."""
        with self._turn.within(_WRITE_TURN_SECONDS):
            try:
                self._connection.close()
            except Exception as error:
                raise self._translated(error, "closed") from error

    def _write(self, changes: Sequence[Change], id: str) -> None:
        commits = False
        try:
            execute = self._connection.execute
            execute("BEGIN IMMEDIATE")
            for change in changes:
                execute(change.statement, change.values)
            commits = True
            execute("COMMIT")
        except BaseException as error:
            has_ended = self._roll_back()
            if isinstance(error, apsw.Error):
                unclear = commits and not isinstance(error, _PASSING + _UNSTORABLE)
            else:  # only an error of SQLite's own would have undone a transaction that has ended
                unclear = commits and has_ended
            if unclear and id:
                self._known.unclear(id)
                if not isinstance(error, apsw.Error):
                    self._known.succeeded(id)
            if not isinstance(error, Exception):
                raise
            raise self._translated(error, "written", unclear=unclear) from error

    def _roll_back(self) -> bool:
        """Roll back. Return whether the transaction had ended before: SQLite has rolled back by
        itself, as after some errors, or it was committed."""
        try:
            if not self._connection.in_transaction:
                return True
            self._connection.execute("ROLLBACK")
            self._is_dirty = False
        except apsw.ConnectionClosedError:
            pass
        except Exception as error:  # the next use tries again
            _log.warning("%s: a transaction can't be rolled back: %r", self.name, error)
            self._is_dirty = True
        return False

    def _clean(self, done: str) -> None:
        """Roll back the transaction of a write that has failed."""
        self._roll_back()
        if self._is_dirty:
            raise self._translated(RuntimeError("a transaction can't be rolled back"), done)

    @contextmanager
    def _used(self, done: str, seconds: float) -> Iterator[None]:
        """Use the connection: wait for the turn, and raise errors of the library as ours."""
        with self._turn.within(seconds):
            if self._is_dirty:
                self._clean(done)
            try:
                yield
            except Exception as error:
                raise self._translated(error, done) from error

    def _translated(self, error: Exception, done: str, *, unclear: bool = False) -> SetupError:
        """Our error for an error of the library."""
        if isinstance(error, apsw.ConnectionClosedError):
            text = f"The coordinator's database {self.name} was closed: the coordinator ends."
            return StoreUnavailableError(text, hint="Ask its successor.", unclear=unclear)
        text = f"The coordinator's database {self.name} can't be {done}: {error}."
        if isinstance(error, _LOST):
            return StoreLostError(text, hint="Restore the file from a backup.")
        if isinstance(error, _UNSTORABLE) and done == "written":
            return UnstorableError(text)
        hint = "Check the disk's free space and the folder's permissions."
        return StoreUnavailableError(text, hint=hint, unclear=unclear)


class MemoryDatabase(_Connected):
    """A `Database` in this process's memory, which its user makes durable. `image` is the image of
    another database to start with.
    """

    def __init__(self, name: str, image: bytes | None = None) -> None:
        super().__init__(name)
        with self._used("opened", _WRITE_TURN_SECONDS):
            self._connection = apsw.Connection(":memory:")
            if image is not None:
                self._connection.deserialize("main", image)

    def image(self) -> bytes:
        """Return the whole database as bytes, without deleted rows."""
        with self._used("copied", _WRITE_TURN_SECONDS):
            self._connection.execute("VACUUM")
            return self._connection.serialize("main")


class SqliteDatabase(_Connected):
    """A `Database` in a file that only its owner may read, since it contains waiting rows."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        try:
            _make_private(path)
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
                hint="Stop the other coordinator, or give this coordinator another state folder.",
            ) from error
        except Exception as error:
            raise SetupError(
                f"The coordinator's database {path} can't be opened: {error}.",
                hint=(
                    "Check the folder's permissions and free space, and that it is on a local disk."
                ),
            ) from error
        if mode != "wal":
            raise SetupError(
                f"The coordinator's database {path} can't use a write-ahead log there.",
                hint="Put the state folder on a local disk.",
            )

    def copy_to(self, target: Path) -> None:
        """Copy the database, as it is at the end of the copying, into a new file. Others read and
        write meanwhile: the copy gets what they write."""
        _make_private(target)
        copy = apsw.Connection(str(target))
        try:
            copy.pragma("synchronous", "off")  # else the last step would wait for the disk
            with self._used("copied", _WRITE_TURN_SECONDS):
                backup = copy.backup("main", self._connection, "main")
            try:
                done = False
                while not done:
                    with self._used("copied", _WRITE_TURN_SECONDS):
                        done = backup.step(_COPY_PAGES)
                    time.sleep(_COPY_PAUSE_SECONDS)
            finally:
                # The end uses both connections, too.
                with self._turn.within(_COPY_END_SECONDS):
                    backup.close(force=True)
            copy.pragma("journal_mode", "delete")
        finally:
            copy.close()


def _make_private(path: Path) -> None:
    """Restrict a database, which is made if it is absent, to its owner. SQLite gives the files
    beside it the same permissions.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    for file in (path, *(path.with_name(f"{path.name}-{end}") for end in ("wal", "shm"))):
        with suppress(OSError):  # it does not exist, or its disk has no permissions
            file.chmod(0o600)
