"""Makes a backup of a coordinator's store, puts it in the place of a store, or accepts a store that
was put back by other means.

A backup is made in the process that owns the store, or in one of its own. The log is copied before
the store, so that the store knows each transaction that the log names. If the process dies, nothing
has the backup's name; the next backup removes what is left.

A restored store is older than the warehouse. What it can't know is looked up there: how often
rights were taken away (else all tokens and grants end), and which of its waiting records are in the
tables already. Tables whose acknowledged records it lacks are named; the coordinator keeps them
closed to inserts until somebody accepts that.

The store takes no start from the first step on, until the last one pairs it with the warehouse. If
the process dies in between, the same command does everything again.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paimon_magics.coordinator.http.answers import JSONResponse, json_body
from paimon_magics.coordinator.http.audited import report
from paimon_magics.coordinator.http.limits import run_in_threadpool
from paimon_magics.coordinator.inserts.log.database import DatabaseLog
from paimon_magics.coordinator.inserts.log.log import Log, LogTable, queue_id, table_name
from paimon_magics.coordinator.inserts.log.objects import ObjectLog
from paimon_magics.coordinator.inserts.log.records import read_segments
from paimon_magics.coordinator.inserts.log.registry import LogRegistry
from paimon_magics.coordinator.ownership.lease import FOLDER
from paimon_magics.coordinator.ownership.pairing import (
    Pairing,
    Standing,
    WarehousePair,
    standing,
    warehouse_pair,
)
from paimon_magics.coordinator.ownership.state_folder import StateFolder
from paimon_magics.coordinator.process.offline import Offline
from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.store.backups import (
    Backup,
    Manifest,
    copy_postgres,
    fill_sqlite,
    replacing,
    write_backup,
)
from paimon_magics.coordinator.store.sqlite import SqliteDatabase
from paimon_magics.coordinator.store.state_store import StateStore, open_store
from paimon_magics.coordinator.store.tables import UNFINISHED, StoredGrant, StorePair
from paimon_magics.errors import InvalidValueError, PaimonMagicsError
from paimon_magics.faults import reach
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.marks import TableIds
from paimon_magics.tables.catalog.warehouse_mark import read_warehouse_id
from paimon_magics.tables.commits.receipts import log_position
from paimon_magics.tables.snapshots.latest import latest_snapshot_id
from paimon_magics.tables.stores.paths import canonical_location
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


Compared = tuple[Standing, StorePair | None, WarehousePair | None]
"""How a store and a warehouse stand to each other, and what each of them notes."""

_REPLACED = "replaced"
_PUBLICATIONS_MAX = 100_000
_NEW = ".restored"


@dataclass(frozen=True, slots=True)
class _Rights:
    """What a store that is replaced knows of rights: its pair, the ids of good tokens, grants."""

    pair: StorePair
    tokens: set[str]
    grants: set[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Risk:
    """A table with acknowledged records after number `last` that the store lacks. Those up to
    `until` were certainly acknowledged, if it is larger."""

    table: str
    last: int
    until: int

    @property
    def line(self) -> str:
        """What to know, and what to do."""
        if self.until <= self.last:
            return (
                f"{self.table}: the store lacks the records after {self.last}, if any were "
                "acknowledged later: the warehouse does not know the last seconds before a loss. "
                "Who repeats one of them by its label inserts it once."
            )
        return (
            f"{self.table}: the store lacks the records {self.last + 1} to {self.until}, which "
            "were acknowledged later, and maybe others after them. Those that are in the table "
            f"stay there; the others are lost. Inserts are refused until `%paimon queue "
            f"{self.table} accept-loss`; who repeats one of them inserts it again."
        )


@dataclass(frozen=True, slots=True)
class Restoring:
    """One restore. `address` is the store's in PostgreSQL, None for files in the state folder;
    `log` says where the log of small inserts is. With `keeps_rights` nobody looks whether rights
    were taken away since."""

    place: Offline
    address: str | None
    log: str
    keeps_rights: bool = False
    lines: list[str] = field(default_factory=list)
    present: list[_Rights] = field(default_factory=list)

    def replace(self, backup: Backup) -> None:
        """Put a backup in the place of the store."""
        if self.address is None:
            self._replace_files(backup)
        else:
            with closing(self._opened()) as store:
                DatabaseLog(store.database, owned=False)
                changes = list(replacing(backup, log=self.log == "store", store=True))
                store.database.write(changes)
        reach("restore.filled")

    def at_risk(self, backup: Backup) -> list[str]:
        """The names of the tables of which acknowledged records are lost, or may be."""
        if self.log == "warehouse":
            return []
        log_id, known = backup.acknowledged()
        return [risk.table for risk in self._risks(log_id, known)]

    def accept(self, known: Compared | None) -> None:
        """Let the store belong to the warehouse, with what it lacks looked up there. `known` is how
        they stood to each other; by default as they do now."""
        with ExitStack() as ending:
            store = self._opened()
            ending.callback(store.close)
            pairing = self._pairing(store)
            compared = known or pairing.compared()
            may_lack = self.log == "store" and compared[0] is not Standing.WAREHOUSE_OLDER
            if not self.keeps_rights and _lacks_rights(*compared):
                self._end_rights(store)
            elif self.keeps_rights:
                self.lines.append("Tokens and grants are as the store has them.")
            else:
                self.lines.append(
                    "No rights were taken away since: tokens and grants are as they were."
                )
            reach("restore.rights_settled")
            self._forget_lost_commits(store)
            log = self._log(store, ending)
            self._settle(log, may_lack=may_lack)
            reach("restore.settled")
            pairing.accept()

    def standing_of(self, backup: Backup) -> Compared:
        """How the store of a backup and the warehouse stand to each other."""
        columns, rows = backup.rows("pairing")
        pair = StorePair(**dict(zip(columns, rows[0], strict=True))) if rows else None
        place = self.place
        rights = self._present_rights()
        noted = None if pair is None else warehouse_pair(place.files, place.warehouse, pair.id)
        if rights is not None and noted is not None and rights.pair.id == noted.store:
            # While no coordinator ran, only the store may know it.
            noted = replace(noted, rights=max(noted.rights, rights.pair.rights))
            self.present.append(rights)
        return standing(pair, noted), pair, noted

    def _present_rights(self) -> _Rights | None:
        """The rights in the store that is replaced; None where it is lost, or not whole. Has the
        warehouse know how many were taken away, for a restore that is killed and repeated."""
        state = self.place.folder.path
        if self.address is None and not (state / STORE_FILE).exists():
            return None
        try:
            with closing(self._opened()) as store:
                pair = store.pair.read()
                if pair is None or pair.mark == UNFINISHED:
                    return None
                self._pairing(store).note_rights()
                good = {token.id for token in store.tokens.all() if token.is_good(now_ms())}
                return _Rights(pair, good, set(map(_key, store.grants.all())))
        except PaimonMagicsError:
            return None

    def _opened(self) -> StateStore:
        place = self.place
        return open_store(
            place.folder.path,
            self.address,
            place.warehouse,
            is_heir=True,
            warehouse_id=place.binding.id,
        )

    def _pairing(self, store: StateStore) -> Pairing:
        place = self.place
        name = store.database.name
        return Pairing(place.files, place.warehouse, store.pair, name=name, who=place.who)

    def _replace_files(self, backup: Backup) -> None:
        """Exchange the files of the state folder; those before are kept in a folder of their own.

        The store's file is new first, so that no start takes a log that is not its own."""
        state = self.place.folder.path
        fill_sqlite(state / f"{STORE_FILE}{_NEW}", backup, None)
        names = [STORE_FILE]
        if self.log == "store":
            fill_sqlite(state / f"{_LOG_FILE}{_NEW}", backup, open_log_tables)
            names.append(_LOG_FILE)
        reach("restore.written")
        replaced = state / _REPLACED / time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime())
        for name in names:
            for old in (state / f"{name}{end}" for end in ("", "-wal", "-shm")):
                if old.exists():
                    replaced.mkdir(parents=True, exist_ok=True, mode=0o700)
                    old.replace(replaced / old.name)
            (state / f"{name}{_NEW}").replace(state / name)
            _sync(state)
            reach("restore.exchanged")
        if replaced.exists():
            self.lines.append(f"The store that was there is in {replaced}.")

    def _end_rights(self, store: StateStore) -> None:
        """End all tokens and grants, since it is not known which of them were taken away."""
        good = [token for token in store.tokens.all() if token.is_good(now_ms())]
        grants = store.grants.all()
        for token in good:
            store.tokens.revoke(token.id, now_ms())
        store.grants.change((), list(map(_key, grants)))
        if not good and not grants:
            return
        since = "Leave out those that were taken away since; the others are made again by"
        ended = len(good), len(grants)
        for rights in self.present:
            since = "Those that were not, by the store that was there, are made again by"
            good = [token for token in good if token.id in rights.tokens]
            grants = [grant for grant in grants if _key(grant) in rights.grants]
        self.lines.append(
            f"Rights may have been taken away after this store's state, so {ended[0]} tokens and "
            f"{ended[1]} grants have ended. {since}:"
        )
        for token in good:
            allows = "".join(f" --allow {text}" for text in token.allows)
            self.lines.append(f"  paimon-coordinator token add '{token.name}'{allows}")
        for grant in grants:
            is_role = grant.text.startswith("role:")
            text = f"--role {grant.text[5:]}" if is_role else grant.text
            grantee = grant.grantee.removeprefix("user:")
            self.lines.append(f"  paimon-coordinator grant {text} --to '{grantee}'")

    def _forget_lost_commits(self, store: StateStore) -> None:
        """Forget commits that a warehouse lacks which was put back: nobody waits for them."""
        newest: dict[tuple[str, str | None], tuple[TableName, int]] = {}
        for published in store.publications.recent(_PUBLICATIONS_MAX, with_removed=False):
            key = published.location, published.table.branch
            last = max(published.snapshot_id, newest[key][1] if key in newest else 0)
            newest[key] = published.table, last
        for (location, branch), (name, last) in newest.items():
            latest = self._latest(name)
            if latest is None or latest >= last:
                continue
            store.publications.drop_above(location, branch, latest)
            self.lines.append(
                f"{name}: the commits of the snapshots {latest + 1} to {last} are gone."
            )

    def _latest(self, name: TableName) -> int | None:
        """The id of a table's latest snapshot; None for a table that can't be read."""
        try:
            table = self.place.catalog.find(name)
            return None if table is None else latest_snapshot_id(table)
        except (PaimonMagicsError, OSError) as error:
            self.lines.append(f"{name} could not be looked at: {error}")
            return None

    def _log(self, store: StateStore, ending: ExitStack) -> Log:
        place = self.place
        log: Log
        if self.log == "warehouse":
            log = ObjectLog(place.files, place.warehouse, place.who, warehouse_id=place.binding.id)
        elif self.address is None:
            file = SqliteDatabase(place.folder.path / _LOG_FILE)
            log = DatabaseLog(file, warehouse_id=place.binding.id)
        else:
            log = DatabaseLog(store.database, owned=False, warehouse_id=place.binding.id)
        ending.callback(log.close)
        return log

    def _risks(self, log_id: str, known: Mapping[str, tuple[str, int]]) -> Iterator[_Risk]:
        """The tables of which acknowledged records are missing in a log, or may be. `known` has
        their ids, with their names and the last records in the log."""
        place = self.place
        ids = TableIds(place.catalog)
        for note in LogRegistry(place.files, place.warehouse, log_id, "", place.who).notes():
            text, last = known.get(note.table_id, ("", 0))
            if note.log == log_id and (note.is_open or note.first > last + 1):
                name = table_name(text) if text else ids.find(note.table_id)
                yield _Risk(str(name or note.table_id), last, note.first - 1)

    def _settle(self, log: Log, *, may_lack: bool) -> None:
        """Remove waiting records that are in their tables, and name tables that lack records, or
        `may_lack` them."""
        place = self.place
        registry = LogRegistry(place.files, place.warehouse, log.id, log.name, place.who)
        ids = TableIds(place.catalog)
        stored = {table.table_id: table for table in log.tables()}
        for table in stored.values():
            ids.expect(table.table_id, table_name(table.name))
        known = {id: (table.name, table.acknowledged) for id, table in stored.items()}
        risks = list(self._risks(log.id, known))
        self.lines.extend(risk.line for risk in risks if may_lack or risk.until > risk.last)
        for table in stored.values():
            reason = None
            try:
                self._settle_table(log, registry, ids, table)
            except PaimonMagicsError as error:
                reason = error.message
            if reason is not None:
                self.lines.append(f"{table_name(table.name)} could not be looked at: {reason}")

    def _settle_table(
        self, log: Log, registry: LogRegistry, ids: TableIds, table: LogTable
    ) -> None:
        note = registry.note(table.table_id)
        published = note.published if note is not None and note.log == log.id else 0
        name = ids.find(table.table_id) or table_name(table.name)
        loaded = self.place.catalog.find(name)
        if loaded is not None and ids.is_of(loaded, table.table_id):
            latest = latest_snapshot_id(loaded)
            if (table.snapshot_id or 0) > latest:
                why = (
                    f"The log {log.name} knows records up to {table.published} in the table's "
                    f"snapshot {table.snapshot_id}, but the latest is {latest}: the warehouse was "
                    "put back"
                )
                log.close_table(table.table_id, why)
                self.lines.append(
                    f"{name}: snapshot {table.snapshot_id}, with records up to {table.published}, "
                    f"is gone; the latest is {latest}. Inserts are refused until `%paimon queue "
                    f"{name} accept-loss`."
                )
                return
            queue = queue_id(log.id, table.table_id)
            position = log_position(loaded, queue, table.snapshot_id or 0)
            if position is not None:
                published = max(published, position.last)
        last = min(published, table.acknowledged)
        if last <= table.published:
            return
        segments = log.read(table.table_id, last, last)
        _, chain = read_segments(segments, last - 1, upto=last)
        assert chain is not None
        log.publish(table.table_id, last, chain, None)
        self.lines.append(
            f"{name}: records {table.published + 1} to {last} waited in the store, and are in the "
            "table: they are not loaded again."
        )


def check_fits(backup: Backup | None, log: str, folder: StateFolder, catalog: Catalog) -> None:
    """Raise InvalidValueError for a warehouse that a backup, or a store in place, is not of, and
    for a backup that lacks the log. Writes nothing."""
    if backup is not None and log == "store" and backup.manifest.log == "warehouse":
        raise InvalidValueError(
            f"The backup {backup.path} has no log of small inserts: it is in the warehouse.",
            hint="Give --log warehouse, as to the coordinator.",
        )
    warehouse = catalog.warehouse
    id = read_warehouse_id(catalog.stores, warehouse)
    binding = folder.binding()
    if id is None and binding is not None and binding.location == canonical_location(warehouse):
        id = binding.id  # which an unmarked warehouse gets again
    wanted = "" if backup is None else backup.warehouse_id
    if id is not None and wanted in ("", id):
        return
    if backup is None or not wanted:
        raise InvalidValueError(
            f"{warehouse} is not a warehouse that a coordinator has used.",
            hint="Name the warehouse with --warehouse, or in --catalog.",
        )
    shown = "which has no id" if id is None else f"with the id {id}"
    raise InvalidValueError(
        f"The backup {backup.path} is of the warehouse with the id {wanted}, which was "
        f"{backup.manifest.warehouse}, not of {warehouse}, {shown}.",
        hint="Name that warehouse with --warehouse. A copy of it is another warehouse; if it is to "
        "replace the original, remove the original's warehouse-id first. If its own was lost, "
        f"write {wanted} into {warehouse.rstrip('/')}/{FOLDER}/warehouse-id.",
    )


def _key(grant: StoredGrant) -> tuple[str, str]:
    return grant.grantee, grant.text


def _lacks_rights(verdict: Standing, stored: StorePair | None, noted: WarehousePair | None) -> bool:
    """Whether rights may have been taken away that a store still gives. A warehouse that is itself
    older than the store does not know it, either."""
    if stored is None or noted is None or stored.mark == UNFINISHED:
        return stored is not None
    return verdict is Standing.WAREHOUSE_OLDER or noted.rights > stored.rights


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def shown_lines(lines: list[str]) -> Iterator[str]:
    """The lines of a restore, and what comes next."""
    yield from lines
    yield "The store belongs to the warehouse again. Start the coordinator."
