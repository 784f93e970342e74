"""Makes a backup of a coordinator's store, in the process that owns it or in one of its own.

The log is copied before the store, so that the store knows each transaction that the log names. If
the process dies, nothing has the backup's name; the next backup removes what is left.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paimon_magics.coordinator.http.answers import JSONResponse, json_body
from paimon_magics.coordinator.http.audited import report
from paimon_magics.coordinator.http.limits import run_in_threadpool
from paimon_magics.coordinator.inserts.log.database import DatabaseLog
from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.store.backups import Manifest, copy_postgres, write_backup
from paimon_magics.coordinator.store.sqlite import SqliteDatabase
from paimon_magics.version import build

BACKUP_PATH = "/v1/coordinator/backup"

MAKING = "backups-under-way"
"""The folder, in a state folder, for backups that nobody has fetched yet."""
_OWN = re.compile(r"\.?[0-9a-f]{32}\.sqlite")  # a backup, or one that is not whole yet
_FETCHED_SECONDS = 3_600.0
_DETAIL_CHARACTERS_MAX = 500
_LOG_FILE = "log.sqlite"
STORE_FILE = "coordinator.sqlite"
"""The file of a store in a state folder."""


def open_log_tables(database: object) -> None:
    """Make the tables of a log in a database."""
    assert isinstance(database, SqliteDatabase)
    DatabaseLog(database, owned=False)


def manifest_of(warehouse_id: str, warehouse: str, *, log: str) -> Manifest:
    """The manifest of a backup that is made now."""
    return Manifest(1, now_ms(), build(), warehouse_id, warehouse, log)


def write_backup_of_folder(state: Path, target: Path, manifest: Manifest) -> None:
    """Write a backup of the SQLite files of a state folder that no coordinator uses."""
    names = [STORE_FILE] if manifest.log == "warehouse" else [_LOG_FILE, STORE_FILE]

    def copy_of(name: str) -> Callable[[Path], None]:
        def copy(part: Path) -> None:
            with contextlib.closing(SqliteDatabase(state / name)) as database:
                if name == _LOG_FILE:
                    open_log_tables(database)
                database.copy_to(part)

        return copy

    write_backup(target, [copy_of(name) for name in names], manifest)


def write_backup_of_postgres(address: str, target: Path, manifest: Manifest) -> None:
    """Write a backup of the store in a PostgreSQL database, whether a coordinator uses it or not.

    Raises StoreUnavailableError."""
    write_backup(target, [copy_postgres(address, open_log_tables)], manifest)


class _Making:
    """The folder in which a running coordinator makes its backups, until the command that asked for
    one has fetched it. Nobody else's files are there. For any thread."""

    def __init__(self, state: Path) -> None:
        self._folder = state / MAKING
        self._turn = threading.Lock()
        self._begun: dict[str, float] = {}

    def new(self) -> Path:
        """A path for one more backup. Removes what earlier commands did not fetch."""
        with self._turn:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            now = time.monotonic()
            young = {name for name, at in self._begun.items() if now - at < _FETCHED_SECONDS}
            for left in self._folder.iterdir():
                if _OWN.match(left.name) and not any(name in left.name for name in young):
                    left.unlink(missing_ok=True)
            name = f"{uuid.uuid4().hex}.sqlite"
            self._begun = {name: now} | {old: self._begun[old] for old in young}
            return self._folder / name


def backup_route(
    state: Path, databases: list[SqliteDatabase], manifest: Callable[[], Manifest]
) -> Route:
    """The route that writes a backup of a running coordinator's SQLite files, log first, into its
    state folder, and answers its path: `paimon-coordinator backup` moves it on. Without such files,
    the command has made the backup, and the route keeps the audit entry."""
    making = _Making(state)

    def make() -> Path:
        target = making.new()
        write_backup(target, [database.copy_to for database in databases], manifest())
        return target

    async def back_up(request: Request) -> Response:
        body = await json_body(request)
        if not databases:
            report(request.scope, detail=str(body.get("file", ""))[:_DETAIL_CHARACTERS_MAX])
            return JSONResponse({"file": None})
        target = await run_in_threadpool(make)
        report(request.scope, detail=f"{target.stat().st_size} bytes")
        return JSONResponse({"file": str(target)})

    return Route(BACKUP_PATH, back_up, methods=["POST"])
