"""A store in PostgreSQL, for a coordinator that may be started on another machine.

One connection does everything. Its session holds a lock, so that there is one owner, and commits
with synchronous_commit. Each `write` increments a counter in a row that also names the owner. After
a lost connection is made again, that row shows whether the last commit arrived, that nothing was
lost, and that nobody else was the owner meanwhile; otherwise StoreLostError is raised.

If the process dies in a `write`, the next start finds all of it or nothing. The server releases the
lock when it notices: at once on the same machine, and after about 25 seconds of TCP keep-alives
when the other machine has died.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import socket
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from paimon_magics.coordinator.store.database import (
    Change,
    Dialect,
    StoreLostError,
    StoreUnavailableError,
)
from paimon_magics.errors import SetupError

__all__ = ["PostgresDatabase", "trouble_at"]

SCHEMA = "paimon_coordinator"

_LOCK = int.from_bytes(b"paimon-c")  # the same for all sessions in one database
_CONNECT_SECONDS = 5
_LOCK_SECONDS = 2.0  # the session of a process that has just died may take so long to end
_RECONNECT_SECONDS = 2.0
_POLL_SECONDS = 0.1
_SESSION = {
    "connect_timeout": _CONNECT_SECONDS,
    # Both ends close a silent connection.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    # Of several hosts, choose the one that takes writes.
    "target_session_attrs": "read-write",
}
_SETTINGS = (
    "SET lock_timeout = '2s'",
    "SET tcp_keepalives_idle = 10",
    "SET tcp_keepalives_interval = 5",
    "SET tcp_keepalives_count = 3",
    f"SET search_path = {SCHEMA}",
)


class PostgresDatabase:
    """A `Database` on a server. `address` is in libpq's form: a URL, or `key=value` pairs.

    libpq finds what the address leaves out in PGPASSWORD, ~/.pgpass and so on. `is_heir` says that
    the caller owns the commits of `warehouse` now: a session of another coordinator of the same
    warehouse that holds the lock is ended, since its process may stand still or be out of reach.
    """

    dialect = Dialect(integer="BIGINT", bytes="BYTEA", table_end="")

    def __init__(self, address: str, warehouse: str = "", *, is_heir: bool = False) -> None:
        self._turn = threading.Lock()
        self._address = address
        self._application = _application(warehouse)
        self._is_heir = is_heir
        self.name = _name(address)
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._session: tuple[Any, ...] = (0, None)
        self._generation: int | None = None
        self._saved = 0
        self._unclear = False  # a commit was sent and not answered
        with self._turn:
            self._connected()

    def read(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """See `Database.read`."""
        with self._turn:
            deadline = self._deadline()
            while True:
                connection = self._connected_by(deadline)
                try:
                    return connection.execute(_translated(statement), values).fetchall()
                except psycopg.Error as error:
                    if not connection.closed:
                        raise self._unavailable(error, unclear=False) from error

    def write(self, changes: Sequence[Change]) -> None:
        """See `Database.write`."""
        with self._turn:
            deadline = self._deadline()
            sent_as: int | None = None
            while True:
                connection = self._connected_by(deadline)
                if sent_as is not None and self._saved == sent_as:
                    return  # the answer was lost, not the commit
                try:
                    self._write(connection, changes)
                    return
                except psycopg.Error as error:
                    if not connection.closed:
                        self._unclear = False  # the server says that it has undone everything
                        with contextlib.suppress(psycopg.Error):
                            connection.rollback()
                        raise self._unavailable(error, unclear=False) from error
                    sent_as = self._saved + 1 if self._unclear else None

    def close(self) -> None:
        """See `Database.close`."""
        with self._turn:
            if self._connection is not None:
                self._connection.close()

    def _write(
        self, connection: psycopg.Connection[tuple[Any, ...]], changes: Sequence[Change]
    ) -> None:
        connection.execute("BEGIN")
        for change in changes:
            connection.execute(_translated(change.statement), change.values)
        counted = connection.execute(
            "UPDATE owner SET saved = saved + 1 WHERE generation = %s AND saved = %s",
            (self._generation, self._saved),
        )
        if counted.rowcount != 1:
            connection.rollback()
            raise self._lost(connection)
        self._unclear = True
        done = connection.execute("COMMIT").statusmessage
        self._unclear = False
        if done != "COMMIT":
            raise StoreLostError(f"{self.name} answered a commit with {done}.")
        self._saved += 1

    def _deadline(self) -> float:
        """Until when to wait for a connection that breaks now; no wait if it was broken before."""
        connected = self._connection is not None and not self._connection.closed
        return time.monotonic() + (_RECONNECT_SECONDS if connected else 0)

    def _connected_by(self, deadline: float) -> psycopg.Connection[tuple[Any, ...]]:
        while True:
            try:
                return self._connected()
            except StoreUnavailableError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_SECONDS)

    def _connected(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Return the connection, after making it and checking the owner if there is none."""
        if self._connection is not None and not self._connection.closed:
            return self._connection
        try:
            connection = psycopg.connect(
                self._address,
                autocommit=True,
                application_name=self._application,
                **_SESSION,  # type: ignore[arg-type]
            )
        except psycopg.Error as error:
            raise self._unavailable(error, unclear=self._unclear) from error
        try:
            for setting in _SETTINGS:
                connection.execute(setting.encode())
            self._check_durable(connection)
            self._lock(connection)
            if self._generation is None:
                self._own(connection)
            else:
                self._check_owned(connection)
            self._session = _session(connection)
        except psycopg.Error as error:
            connection.close()
            raise self._unavailable(error, unclear=self._unclear) from error
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _check_durable(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        for setting in ("fsync", "synchronous_commit"):
            (value,) = connection.execute(f"SHOW {setting}".encode()).fetchone() or ("",)
            if value == "off":
                raise SetupError(
                    f"{self.name} has {setting} = off: acknowledged changes could be lost.",
                    hint=f"Set {setting} = on "
                    + (
                        "in the server's configuration."
                        if setting == "fsync"
                        else "for the coordinator's role or for the whole server."
                    ),
                )

    def _lock(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        deadline = time.monotonic() + _LOCK_SECONDS
        # A session of our own may have ended without the server noticing.
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid = %s AND backend_start = %s",
            self._session,
        )
        while connection.execute("SELECT pg_try_advisory_lock(%s)", (_LOCK,)).fetchone() != (True,):
            if time.monotonic() > deadline:
                raise self._owned_by_another(connection)
            if self._is_heir and self._generation is None:
                self._end_predecessor(connection)
            time.sleep(_POLL_SECONDS)

    def _end_predecessor(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """End the session that holds the lock, if it is of a coordinator of the same warehouse."""
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid) "
            "WHERE locktype = 'advisory' AND granted AND classid = %s AND objid = %s "
            "AND application_name = %s",
            (_LOCK >> 32, _LOCK & 0xFFFF_FFFF, self._application),
        )

    def _own(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        if connection.execute("SELECT to_regnamespace(%s)", (SCHEMA,)).fetchone() == (None,):
            connection.execute(f"CREATE SCHEMA {SCHEMA}".encode())
        connection.execute(
            "CREATE TABLE IF NOT EXISTS owner (one BOOLEAN PRIMARY KEY CHECK (one), "
            "generation BIGINT NOT NULL, saved BIGINT NOT NULL, holder TEXT NOT NULL)"
        )
        row = connection.execute(
            "INSERT INTO owner AS was VALUES (true, 1, 0, %s) ON CONFLICT (one) DO UPDATE "
            "SET generation = was.generation + 1, holder = excluded.holder "
            "RETURNING generation, saved",
            (_holder(),),
        ).fetchone()
        assert row is not None
        self._generation, self._saved = row

    def _check_owned(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        row = connection.execute("SELECT generation, saved FROM owner").fetchone()
        if row == (self._generation, self._saved + 1) and self._unclear:
            self._saved += 1
        elif row != (self._generation, self._saved):
            raise self._lost(connection)
        self._unclear = False

    def _lost(self, connection: psycopg.Connection[tuple[Any, ...]]) -> StoreLostError:
        row = connection.execute("SELECT generation, saved, holder FROM owner").fetchone()
        generation, saved, holder = row or (0, 0, "")
        if generation > (self._generation or 0):
            return StoreLostError(
                f"{self.name} was taken over by another coordinator: {holder}.",
                hint="Clients have to connect to that one.",
            )
        return StoreLostError(
            f"{self.name} is not as this coordinator left it: {self._saved} changes were made, "
            f"{saved} are there.",
            hint="An older copy was restored, or a standby that was behind became the server. "
            "Restore the latest state, then start the coordinator again.",
        )

    def _owned_by_another(self, connection: psycopg.Connection[tuple[Any, ...]]) -> SetupError:
        holder = "another process"
        if connection.execute("SELECT to_regclass('owner')").fetchone() != (None,):
            row = connection.execute("SELECT holder FROM owner").fetchone()
            holder = row[0] if row is not None else holder
        return SetupError(
            f"{self.name} is in use by another coordinator: {holder}.",
            hint="Use that one, or stop it first; or give this one a database of its own.",
        )

    def _unavailable(self, error: psycopg.Error, *, unclear: bool) -> StoreUnavailableError:
        lines = str(error).strip().splitlines()
        return StoreUnavailableError(
            f"{self.name} does not work: {lines[0] if lines else type(error).__name__}.",
            hint="Check that the server runs and takes writes. The coordinator goes on by itself "
            "then.",
            unclear=unclear,
        )


def trouble_at(address: str) -> str:
    """Why a server takes no writes now; "" if it does."""
    try:
        psycopg.connect(address, application_name=_application(""), **_SESSION).close()  # type: ignore[arg-type]
    except psycopg.Error as error:
        return str(error).strip().split("\n", 1)[0]
    return ""


def _application(warehouse: str) -> str:
    """The name that a session tells the server; those for one warehouse have the same."""
    digest = hashlib.sha256(warehouse.encode()).hexdigest()[:16] if warehouse else ""
    return f"paimon-coordinator {digest}".rstrip()


def _translated(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()


def _session(connection: psycopg.Connection[tuple[Any, ...]]) -> tuple[Any, ...]:
    row = connection.execute(
        "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    ).fetchone()
    return row or (0, None)


def _name(address: str) -> str:
    try:
        parts = conninfo_to_dict(address)
    except psycopg.ProgrammingError as error:
        raise SetupError(
            "The address of the coordinator's store can't be read.",
            hint="Write it as postgresql://USER@HOST:PORT/DATABASE.",
        ) from error
    user = f"{parts['user']}@" if parts.get("user") else ""
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{user}{parts.get('host', '')}{port}/{parts.get('dbname', '')}"


def _holder() -> str:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return f"{getpass.getuser()} on {socket.gethostname()}, process {os.getpid()}, since {since}"
