"""A store in PostgreSQL, for a coordinator that may be started on another machine.

One connection does everything. Its session holds a lock, so that there is one owner, and commits
with synchronous_commit. Each `write` increments a counter in a row that also names the owner, and
leaves its id there. After a reconnection, that row shows whether the last commit arrived, that
nothing was lost, and that nobody else was the owner meanwhile; otherwise StoreLostError is raised.
The lock comes only when the previous session has ended, so that row is final then.

Nothing waits for the server for longer than some seconds, even if the server stands still.

If the process dies in a `write`, the next start finds all of it or nothing. The server releases the
lock when it notices: at once on the same machine, and after about 25 seconds of TCP keep-alives
when the other machine has died.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from paimon_magics.columnar.time_zones import UTC, moment_text
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

SCHEMA = "paimon_coordinator"

DEADLINE_SECONDS = 5.0
"""The deadline of a read, of each statement of a write, and of connecting, in seconds. No statement
of ours takes so long on a working server, and no client's request has timed out by then.
"""

_log = logging.getLogger(__name__)
_BYTES_PER_SECOND = 5_000_000  # a write of many bytes, or many statements, has more time
_STATEMENTS_PER_SECOND = 100
_OPEN_SECONDS = 15.0  # a server that is starting, or a predecessor that is ending
_TURN_SECONDS = 1.0  # a read does not wait for a write that waits for the server
_LOCK = int.from_bytes(b"paimon-c")  # the same for all sessions in one database
_LOCK_SECONDS = 2.0  # how long the session of a process that just died may take to end
_RECONNECT_SECONDS = 2.0
_POLL_SECONDS = 0.1
_COPY_ROWS = 1_000
_SETTINGS = (
    "SET lock_timeout = '2s'",
    "SET tcp_keepalives_idle = 10",
    "SET tcp_keepalives_interval = 5",
    "SET tcp_keepalives_count = 3",
    f"SET search_path = {SCHEMA}",
)
_UNSTORABLE = (
    psycopg.DataError,
    psycopg.IntegrityError,
    UnicodeError,
    OverflowError,
)

CONNECT_SECONDS = 2  # the shortest that libpq knows; there may be several hosts
_OPTIONS: dict[str, Any] = {
    "connect_timeout": CONNECT_SECONDS,
    # Both ends close a silent connection.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    # Of several hosts, choose the one that takes writes.
    "target_session_attrs": "read-write",
}


class PostgresDatabase:
    """A `Database` on a server. `address` is in libpq's form: a URL, or `key=value` pairs.

    libpq finds what the address leaves out in PGPASSWORD, ~/.pgpass and so on. `is_heir` says that
    the caller owns the commits of `warehouse` now. Then the session of another coordinator of the
    same warehouse that holds the lock is ended, since its process may stand still or be
    unreachable.
    """

    dialect = Dialect(integer="BIGINT", bytes="BYTEA", table_end="")
    is_shared = True

    def __init__(self, address: str, warehouse: str = "", *, is_heir: bool = False) -> None:
        self._address = address
        self._application = _application(warehouse)
        self._is_heir = is_heir
        self.name = _name(address)
        self._turn = Turn(self.name)
        self._connection: Session | None = None
        self._session: tuple[Any, ...] = (0, None)
        self._generation: int | None = None
        self._saved = 0
        self._is_closed = False
        self._is_sent = False  # a commit was sent on this connection and not answered
        self._known = KnownWrites()
        with self._turn.within(_TURN_SECONDS):
            self._connected(time.monotonic() + _OPEN_SECONDS)

    def read(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """See `Database.read`."""
        begin, was_connected = time.monotonic(), self._is_connected
        with self._turn.within(_TURN_SECONDS if was_connected else 0):
            while True:
                connection = self._connected_by(begin, begin + DEADLINE_SECONDS, was_connected)
                try:
                    return connection.execute(_translated(statement), values).fetchall()
                except BaseException as error:
                    self._raise_unless_cut(error, connection)

    def write(self, changes: Sequence[Change], id: str = "") -> None:
        """See `Database.write`."""
        id = id or uuid.uuid4().hex
        begin, was_connected = time.monotonic(), self._is_connected
        try:
            with self._turn.within(DEADLINE_SECONDS if was_connected else _TURN_SECONDS):
                while True:
                    connection = self._connected_by(begin, begin + DEADLINE_SECONDS, was_connected)
                    if self._known.is_done(id):
                        return  # the answer was lost, not the commit
                    try:
                        self._write(connection, changes, id)
                        return
                    except BaseException as error:
                        if self._is_sent:
                            self._known.unclear(id)
                        self._raise_unless_cut(error, connection)
        except StoreUnavailableError as error:
            error.unclear = self._known.is_open(id)
            raise

    def close(self) -> None:
        """See `Database.close`."""
        with self._turn.within(DEADLINE_SECONDS):
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()

    def _write(self, connection: Session, changes: Sequence[Change], id: str) -> None:
        last = time.monotonic() + len(changes) / _STATEMENTS_PER_SECOND
        connection.execute("BEGIN")
        for change in changes:
            seconds = sum(len(v) for v in change.values if isinstance(v, bytes)) / _BYTES_PER_SECOND
            last += seconds
            connection.deadline = min(time.monotonic() + seconds, last) + DEADLINE_SECONDS
            connection.execute(_translated(change.statement), change.values)
        connection.deadline = time.monotonic() + DEADLINE_SECONDS
        counted = connection.execute(
            "UPDATE owner SET saved = saved + 1, last_write = %s "
            "WHERE generation = %s AND saved = %s",
            (id, self._generation, self._saved),
        )
        if counted.rowcount != 1:
            connection.rollback()
            raise self._lost(connection)
        self._is_sent = True
        done = connection.execute("COMMIT").statusmessage
        if done != "COMMIT":
            raise StoreLostError(f"{self.name} answered a commit with {done}.")
        self._saved += 1
        self._is_sent = False
        self._known.succeeded(id)

    def _raise_unless_cut(self, error: BaseException, connection: Session) -> None:
        """Raise the error of a failed statement. Return if its connection was cut, so that the
        caller can try another connection. A connection in an unknown state is closed.
        """
        if isinstance(error, SetupError):
            raise error
        was_cut = isinstance(error, psycopg.Error) and connection.closed
        if isinstance(error, psycopg.Error) and self._is_undone(error, connection):
            if self._is_sent:
                self._is_sent = False
                self._known.settle()
            raise self._unavailable(error) from error
        connection.close()
        if not isinstance(error, Exception):
            raise error
        if not was_cut:
            raise self._unavailable(error) from error

    def _is_undone(self, error: psycopg.Error, connection: Session) -> bool:
        """Whether the server has undone a transaction with this error, or does so now."""
        if self._is_sent and error.sqlstate is None:  # it is no answer to the commit
            return False
        try:
            connection.rollback()
            return connection.info.transaction_status == TransactionStatus.IDLE
        except Exception as failure:  # of any type: the connection is closed then
            _log.warning("PostgreSQL did not roll back a transaction: %r", failure)
            return False

    @property
    def _is_connected(self) -> bool:
        return self._connection is not None and not self._connection.closed

    def _connected_by(self, begin: float, deadline: float, was_connected: bool) -> Session:
        """The connection. If it has broken since `begin`, this waits for it, but not for long."""
        until = begin + _RECONNECT_SECONDS if was_connected else begin
        while True:
            try:
                return self._connected(deadline)
            except StoreUnavailableError:
                if time.monotonic() > until:
                    raise
            time.sleep(_POLL_SECONDS)

    def _connected(self, deadline: float) -> Session:
        """Return the connection. If there is none, make it and check the owner first."""
        if self._connection is not None and not self._connection.closed:
            self._connection.deadline = deadline
            return self._connection
        if self._is_closed:
            raise StoreUnavailableError(f"{self.name} was closed.")
        connection: Session | None = None
        try:
            connection = connected(self._address, self._application, deadline)
            for setting in _SETTINGS:
                connection.execute(setting.encode())
            self._check_durable(connection)
            self._lock(connection, deadline)
            if self._generation is None:
                self._own(connection)
            else:
                self._check_owned(connection)
            self._session = _session(connection)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, SetupError) or not isinstance(error, Exception):
                raise
            raise self._unavailable(error) from error
        self._connection = connection
        return connection

    def _check_durable(self, connection: Session) -> None:
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

    def _lock(self, connection: Session, deadline: float) -> None:
        until = min(deadline, time.monotonic() + _LOCK_SECONDS)
        while True:
            # A session of our own may have ended without the server noticing.
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid = %s AND backend_start = %s",
                self._session,
            )
            if connection.execute("SELECT pg_try_advisory_lock(%s)", (_LOCK,)).fetchone() == (
                True,
            ):
                return
            if time.monotonic() > until:
                raise self._owned_by_another(connection)
            if self._is_heir and self._generation is None:
                self._end_predecessor(connection)
            time.sleep(_POLL_SECONDS)

    def _end_predecessor(self, connection: Session) -> None:
        """End the session that holds the lock, if it belongs to a coordinator of the same
        warehouse.
        """
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid) "
            "WHERE locktype = 'advisory' AND granted AND classid = %s AND objid = %s "
            "AND application_name = %s",
            (_LOCK >> 32, _LOCK & 0xFFFF_FFFF, self._application),
        )

    def _own(self, connection: Session) -> None:
        if connection.execute("SELECT to_regnamespace(%s)", (SCHEMA,)).fetchone() == (None,):
            connection.execute(f"CREATE SCHEMA {SCHEMA}".encode())
        connection.execute(
            "CREATE TABLE IF NOT EXISTS owner (one BOOLEAN PRIMARY KEY CHECK (one), "
            "generation BIGINT NOT NULL, saved BIGINT NOT NULL, holder TEXT NOT NULL)"
        )
        connection.execute(  # older versions did not have it
            "ALTER TABLE owner ADD COLUMN IF NOT EXISTS last_write TEXT NOT NULL DEFAULT ''"
        )
        row = connection.execute(
            "INSERT INTO owner AS was VALUES (true, 1, 0, %s) ON CONFLICT (one) DO UPDATE "
            "SET generation = was.generation + 1, holder = excluded.holder "
            "RETURNING generation, saved",
            (_holder(),),
        ).fetchone()
        assert row is not None
        self._generation, self._saved = row

    def _check_owned(self, connection: Session) -> None:
        row = connection.execute("SELECT generation, saved, last_write FROM owner").fetchone()
        generation, saved, last = row or (0, 0, "")
        if (generation, saved) == (self._generation, self._saved + 1) and self._known.is_open(last):
            # Its replicas may not have it yet. They have it when they have this write.
            connection.execute("UPDATE owner SET holder = holder")
            self._saved += 1
            self._known.settle(last)
        elif (generation, saved) != (self._generation, self._saved):
            raise self._lost(connection)
        else:
            self._known.settle()
        self._is_sent = False

    def _lost(self, connection: Session) -> StoreLostError:
        row = connection.execute("SELECT generation, saved, holder FROM owner").fetchone()
        generation, saved, holder = row or (0, 0, "")
        if generation > (self._generation or 0):
            return StoreLostError(
                f"{self.name} was taken over by another coordinator: {holder}.",
                hint="Clients must connect to that coordinator.",
            )
        return StoreLostError(
            f"{self.name} is not as this coordinator left it: the coordinator made {self._saved} "
            f"changes, but the database has {saved}.",
            hint=(
                "An older copy was restored, or a server that lagged behind was promoted. "
                "Restore the latest state, then start the coordinator again."
            ),
        )

    def _owned_by_another(self, connection: Session) -> SetupError:
        holder = "another process"
        if connection.execute("SELECT to_regclass('owner')").fetchone() != (None,):
            row = connection.execute("SELECT holder, generation FROM owner").fetchone()
            holder, generation = row or (holder, 0)
            if generation == self._generation:  # nobody else has become the owner
                return StoreUnavailableError(f"{self.name} has not ended the previous session yet.")
            if self._generation is not None:
                return self._lost(connection)
        return SetupError(
            f"{self.name} is in use by another coordinator: {holder}.",
            hint=(
                "Use that coordinator, or stop it first. Or give this coordinator its own database."
            ),
        )

    def _unavailable(self, error: Exception) -> StoreUnavailableError:
        lines = str(error).strip().splitlines()
        text = f"{self.name} does not work: {lines[0] if lines else type(error).__name__}."
        if isinstance(error, _UNSTORABLE):
            return UnstorableError(text)
        return StoreUnavailableError(
            text,
            hint=(
                "Check that the server runs and accepts writes. The coordinator then resumes by "
                "itself."
            ),
        )


def trouble_at(address: str) -> str:
    """Why a server accepts no writes now; "" if it does."""
    try:
        connected(address, _application(""), time.monotonic() + DEADLINE_SECONDS).close()
    except Exception as error:
        return str(error).strip().split("\n", 1)[0] or type(error).__name__
    return ""


def snapshot_rows(
    address: str, tables: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, Sequence[str], list[tuple[Any, ...]]]]:
    """Yield the rows of tables, a part at a time, all as of one moment: the table's name, the given
    columns, and rows. Raises StoreUnavailableError."""
    name = _name(address)
    try:
        session = connected(address, "paimon-coordinator backup", time.monotonic() + _OPEN_SECONDS)
        with contextlib.closing(session):
            session.deadline = float("inf")
            session.execute(f"SET search_path = {SCHEMA}".encode())
            session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            for table, columns in tables.items():
                with session.cursor(f"copy_{table}") as cursor:
                    cursor.execute(f"SELECT {', '.join(columns)} FROM {table}".encode())
                    while rows := cursor.fetchmany(_COPY_ROWS):
                        yield table, columns, rows
    except psycopg.Error as error:
        raise StoreUnavailableError(
            f"{name} can't be copied: {str(error).strip()}",
            hint="Start this version of the coordinator on it once, then repeat the command.",
        ) from error


def _application(warehouse: str) -> str:
    """The name that a session sends to the server; all sessions for one warehouse have the same
    name.
    """
    digest = hashlib.sha256(warehouse.encode()).hexdigest()[:16] if warehouse else ""
    return f"paimon-coordinator {digest}".rstrip()


def _translated(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()


def _session(connection: Session) -> tuple[Any, ...]:
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
    since = moment_text(time.time_ns() // 10**6, UTC)
    return f"{getpass.getuser()} on {socket.gethostname()}, process {os.getpid()}, since {since}"


# A session with a PostgreSQL server, in which nothing waits for longer than a deadline.
#
# libpq's own limits notice a server that is gone. One that stands still (its processes are stopped,
# its disk does not answer) keeps its connections: so each wait has a deadline here, after which the
# connection is closed. What it was doing there ends before another session gets the owner's lock.


class Session(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose statements raise psycopg.OperationalError when `deadline`, in the time of
    time.monotonic, has passed. It must be closed then."""

    deadline = float("inf")

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """See `psycopg.Connection.wait`."""
        return super().wait(_until(gen, self.deadline), *args, **kwargs)


def connected(address: str, application: str, deadline: float) -> Session:
    """Connect to a server until a deadline. Raises psycopg's errors."""
    answer: Future[Session] = Future()

    def connect() -> None:
        try:
            session = Session.connect(
                address, autocommit=True, application_name=application, **_OPTIONS
            )
        except BaseException as error:
            answer.set_exception(error)
        else:
            answer.set_result(session)

    # In a thread, since nothing ends the look-up of a host's name.
    threading.Thread(target=connect, name="postgres-connect", daemon=True).start()
    try:
        session = answer.result(max(0.0, deadline - time.monotonic()))
    except TimeoutError as error:
        answer.add_done_callback(_close)
        raise psycopg.OperationalError("the server does not answer") from error
    session.deadline = deadline
    return session


def _close(answer: Future[Session]) -> None:
    if answer.exception() is None:
        answer.result().close()


def _until(gen: Generator[Any, Any, Any], deadline: float) -> Generator[Any, Any, Any]:
    """The same steps, as long as the deadline has not passed. The wait returns at least ten times a
    second.
    """
    try:
        step = next(gen)
        while True:
            ready = yield step
            if time.monotonic() > deadline:
                raise psycopg.OperationalError("the server does not answer")
            step = gen.send(ready)
    except StopIteration as end:
        return end.value
