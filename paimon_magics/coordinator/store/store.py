"""What a coordinator remembers over its own death: transactions, and what they asked to commit.

One text of every table and statement, for whichever database stands behind it: when `save` returns,
the state is durable there.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from paimon_magics.coordinator.core import FINISHED, Origin, Pause, Phase, Stopped, TransactionState
from paimon_magics.coordinator.store.database import Change, Database
from paimon_magics.coordinator.store.sqlite import SqliteDatabase
from paimon_magics.errors import SetupError
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.planning.commits.requests import CommitReceipt
from paimon_magics.statements.statement import TableName

__all__ = ["Store", "open_store", "store_address"]

_FORMAT = 4
_SCHEMES = ("postgresql://", "postgres://")

# `finished` is 1 when a transaction is committed or aborted, with all that belongs to that. `body`
# is the coordinator's own view of it; `opened` its commit user, file prefix and base snapshot,
# which never change; `request` what was asked to be committed, once it was; `runs` how often that
# was begun, with files named by the number of the run. `watched` is 1 while something can be lost
# by writing over a publication. `repetitions` are publications as they were when somebody wrote
# over them, `runs` and `begun_at_ms` how often publishing them again was begun, and when last.
_TABLES = (
    "CREATE TABLE IF NOT EXISTS meta (format {integer} NOT NULL){table_end}",
    "CREATE TABLE IF NOT EXISTS transactions ("
    "id TEXT PRIMARY KEY, finished {integer} NOT NULL, expires_at_ms {integer} NOT NULL, "
    "body TEXT NOT NULL, opened TEXT NOT NULL, request {bytes}, "
    "runs {integer} NOT NULL DEFAULT 0){table_end}",
    "CREATE INDEX IF NOT EXISTS transactions_by_end ON transactions (finished, expires_at_ms)",
    "CREATE TABLE IF NOT EXISTS publications ("
    "id TEXT PRIMARY KEY, location TEXT NOT NULL, branch TEXT NOT NULL, "
    "snapshot_id {integer} NOT NULL, commit_user TEXT NOT NULL, "
    "watched {integer} NOT NULL, kept_until_ms {integer} NOT NULL, body TEXT NOT NULL){table_end}",
    "CREATE INDEX IF NOT EXISTS publications_by_user ON publications (location, commit_user)",
    "CREATE INDEX IF NOT EXISTS publications_by_end ON publications (watched, kept_until_ms)",
    "CREATE TABLE IF NOT EXISTS repetitions ("
    "id TEXT NOT NULL, snapshot_id {integer} NOT NULL, runs {integer} NOT NULL, "
    "begun_at_ms {integer} NOT NULL, body TEXT NOT NULL, PRIMARY KEY (id, snapshot_id)){table_end}",
    "CREATE TABLE IF NOT EXISTS stopped ("
    "location TEXT PRIMARY KEY, reason TEXT NOT NULL, since_ms {integer} NOT NULL){table_end}",
    "CREATE TABLE IF NOT EXISTS databases (id TEXT PRIMARY KEY, body TEXT NOT NULL){table_end}",
    "CREATE TABLE IF NOT EXISTS pause (by_whom TEXT NOT NULL, since_ms {integer} NOT NULL)"
    "{table_end}",
)


def open_store(state: Path, address: str | None = None) -> Store:
    """The store of the coordinator whose state folder this is; it is made when there is none.

    `address` is that of a PostgreSQL database; without one it is an SQLite file in the folder.
    Raises SetupError for a store that can't be used, or that another coordinator uses.
    """
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise SetupError(
            f"The coordinator's state folder {state} can't be made: {error.strerror}.",
            hint="Name a folder on a local disk that you may write to.",
        ) from error
    if address is None:
        return Store(SqliteDatabase(state / "coordinator.sqlite"))
    if not address.startswith(_SCHEMES):
        raise SetupError(
            "The address of the coordinator's store names no database that is known.",
            hint="Write it as postgresql://USER@HOST:PORT/DATABASE.",
        )
    try:
        from paimon_magics.coordinator.store.postgres import PostgresDatabase
    except ImportError as error:
        raise SetupError(
            f"A store in PostgreSQL needs the psycopg package: {error}.",
            hint="Install it with: pip install 'paimon-magics[postgres]'",
        ) from error
    return Store(PostgresDatabase(address))


def store_address(option: str | None) -> str | None:
    """The store's address: the command line's `option`, else what PAIMON_COORDINATOR_STORE says.

    Raises SetupError for an option with a password, which every user of the machine could read.
    """
    if option is None:
        return os.environ.get("PAIMON_COORDINATOR_STORE") or None
    parts = urlsplit(option)
    if parts.password is not None or "password" in parse_qs(parts.query):
        raise SetupError(
            "The command line holds the password of the coordinator's store.",
            hint="Put it into ~/.pgpass or PGPASSWORD, or the whole address into "
            "PAIMON_COORDINATOR_STORE.",
        )
    return option


class Store:
    """What one coordinator has stored, for any thread. Owns the database.

    Raises StoreUnavailableError and StoreLostError: see `Database`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turn = threading.RLock()
        self._together: list[Change] | None = None
        dialect = asdict(database.dialect)
        database.write([Change(statement.format(**dialect)) for statement in _TABLES])
        self._check_format()

    @property
    def database(self) -> Database:
        """Where it is kept."""
        return self._database

    def unfinished(self) -> list[tuple[TransactionState, dict[str, object]]]:
        """All transactions that are not finished, each with what was noted when it was opened."""
        rows = self._read("SELECT body, opened FROM transactions WHERE finished = 0 ORDER BY id")
        return [(_held(body), json.loads(opened)) for body, opened in rows]

    def finished(self, id: str) -> TransactionState | None:
        """A finished transaction, None when there is none (any more) or it is not finished."""
        rows = self._read("SELECT body FROM transactions WHERE id = ? AND finished = 1", id)
        return _held(rows[0][0]) if rows else None

    def recently_finished(self, count: int) -> list[TransactionState]:
        """The transactions that were finished last, the newest first."""
        rows = self._read(
            "SELECT body FROM transactions WHERE finished = 1 ORDER BY expires_at_ms DESC LIMIT ?",
            count,
        )
        return [_held(body) for (body,) in rows]

    def opened(self, id: str) -> dict[str, object] | None:
        """What was noted when the transaction was opened."""
        rows = self._read("SELECT opened FROM transactions WHERE id = ?", id)
        return json.loads(rows[0][0]) if rows else None

    def request(self, id: str) -> bytes | None:
        """What the transaction asked to commit."""
        rows = self._read("SELECT request FROM transactions WHERE id = ?", id)
        return rows[0][0] if rows else None

    def runs(self, id: str) -> int:
        """How often a run of the transaction's commit was begun."""
        rows = self._read("SELECT runs FROM transactions WHERE id = ?", id)
        return int(rows[0][0]) if rows else 0

    @contextmanager
    def together(self) -> Iterator[None]:
        """All that is saved in the body becomes durable at once, at its end; nothing when it
        raises."""
        with self._turn:
            changes: list[Change] = []
            self._together = changes
            try:
                yield
            finally:
                self._together = None
            if changes:
                self._database.write(changes)

    def open(self, held: TransactionState, opened: dict[str, object]) -> None:
        """Store a new transaction."""
        self._write(
            "INSERT INTO transactions (id, finished, expires_at_ms, body, opened) "
            "VALUES (?, 0, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET finished = 0, "
            "expires_at_ms = excluded.expires_at_ms, body = excluded.body, "
            "opened = excluded.opened",
            *(held.id, held.expires_at_ms, _body(held), json.dumps(opened)),
        )

    def save(self, held: TransactionState, request: bytes | None = None) -> None:
        """Store a transaction's new state, and what it asks to commit where that is given."""
        self._write(
            "UPDATE transactions SET finished = ?, expires_at_ms = ?, body = ?, "
            "request = coalesce(?, request) WHERE id = ?",
            *(int(held.phase in FINISHED), held.expires_at_ms, _body(held), request, held.id),
        )

    def begin_run(self, id: str) -> None:
        """Store that another run of the transaction's commit begins."""
        # Done twice it skips a number, which is as good.
        self._write("UPDATE transactions SET runs = runs + 1 WHERE id = ?", id)

    def forget_finished(self, until_ms: int) -> None:
        """Delete the finished transactions, and the publications that nobody watches, that need not
        be kept longer than `until_ms`."""
        self._write("DELETE FROM transactions WHERE finished = 1 AND expires_at_ms <= ?", until_ms)
        self._write("DELETE FROM publications WHERE watched = 0 AND kept_until_ms <= ?", until_ms)

    def watched(self) -> list[Publication]:
        """The publications that are watched, in the order of their snapshots."""
        rows = self._read("SELECT body FROM publications WHERE watched = 1 ORDER BY snapshot_id")
        return [_publication(body) for (body,) in rows]

    def publications_of(self, location: str, commit_user: str) -> list[Publication]:
        """What a commit user published to a table, as far as it is kept."""
        rows = self._read(
            "SELECT body FROM publications WHERE location = ? AND commit_user = ?",
            location,
            commit_user,
        )
        return [_publication(body) for (body,) in rows]

    def save_publication(self, publication: Publication, watched: bool) -> None:
        """Store a publication, or what is known of it now."""
        self._write(
            "INSERT INTO publications (id, location, branch, snapshot_id, commit_user, watched, "
            "kept_until_ms, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET location = excluded.location, "
            "branch = excluded.branch, snapshot_id = excluded.snapshot_id, "
            "watched = excluded.watched, kept_until_ms = excluded.kept_until_ms, "
            "body = excluded.body",
            *(publication.id, publication.location, publication.table.branch or ""),
            *(publication.snapshot_id, publication.commit_user, int(watched)),
            *(publication.kept_until_ms, json.dumps(asdict(publication))),
        )

    def drop_publication(self, id: str) -> None:
        """Delete a publication."""
        self._write("DELETE FROM publications WHERE id = ?", id)

    def drop_publications(self, location: str, branch: str | None, above: int) -> None:
        """Delete the publications of a table's branch with snapshot ids above `above`."""
        self._write(
            "DELETE FROM publications WHERE location = ? AND branch = ? AND snapshot_id > ?",
            *(location, branch or "", above),
        )

    def drop_all_publications(self, location: str) -> None:
        """Delete the publications of a table and its branches."""
        self._write("DELETE FROM publications WHERE location = ?", location)

    def begin_repetition(self, publication: Publication, now_ms: int) -> None:
        """Store that another run begins to publish an overwritten commit again."""
        # Done twice it skips a number, which is as good.
        self._write(
            "INSERT INTO repetitions (id, snapshot_id, runs, begun_at_ms, body) "
            "VALUES (?, ?, 1, ?, ?) ON CONFLICT (id, snapshot_id) DO UPDATE SET "
            "runs = repetitions.runs + 1, begun_at_ms = excluded.begun_at_ms",
            *(publication.id, publication.snapshot_id, now_ms, json.dumps(asdict(publication))),
        )

    def repetitions(self) -> list[tuple[Publication, int, int]]:
        """The overwritten publications of which files may be left, as they were: each with the
        number of runs that published it again, and when the last began."""
        rows = self._read("SELECT body, runs, begun_at_ms FROM repetitions ORDER BY begun_at_ms")
        return [(_publication(body), runs, begun_ms) for body, runs, begun_ms in rows]

    def repetition_runs(self, publication: Publication) -> int:
        """How often publishing an overwritten commit again was begun."""
        rows = self._read(
            "SELECT runs FROM repetitions WHERE id = ? AND snapshot_id = ?",
            *(publication.id, publication.snapshot_id),
        )
        return int(rows[0][0]) if rows else 0

    def drop_repetition(self, publication: Publication) -> None:
        """Store that nothing is left of an overwritten publication."""
        self._write(
            "DELETE FROM repetitions WHERE id = ? AND snapshot_id = ?",
            *(publication.id, publication.snapshot_id),
        )

    def stopped(self) -> list[tuple[str, Stopped]]:
        """The tables that take no commits, by their locations."""
        rows = self._read("SELECT location, reason, since_ms FROM stopped ORDER BY location")
        return [(location, Stopped(reason, since_ms)) for location, reason, since_ms in rows]

    def save_stopped(self, location: str, stopped: Stopped | None) -> None:
        """Store that a table is stopped, or (None) that it is not."""
        self._write("DELETE FROM stopped WHERE location = ?", location)
        if stopped is not None:
            self._write(
                "INSERT INTO stopped VALUES (?, ?, ?)", location, stopped.reason, stopped.since_ms
            )

    def pause(self) -> Pause | None:
        """Who has let nothing new begin, None when nobody has."""
        rows = self._read("SELECT by_whom, since_ms FROM pause")
        return Pause(*rows[0]) if rows else None

    def save_pause(self, pause: Pause | None) -> None:
        """Store that nothing new begins, or (None) that it does."""
        self._write("DELETE FROM pause")
        if pause is not None:
            self._write("INSERT INTO pause VALUES (?, ?)", pause.by, pause.since_ms)

    def database_properties(self, id: str) -> dict[str, str]:
        """The properties of a database, nothing for an unknown one. See `Databases`."""
        rows = self._read("SELECT body FROM databases WHERE id = ?", id)
        properties: dict[str, str] = json.loads(rows[0][0]) if rows else {}
        return properties

    def save_database_properties(self, id: str, properties: Mapping[str, str]) -> None:
        """Store the properties of a database; none at all forgets it."""
        if properties:
            self._write(
                "INSERT INTO databases (id, body) VALUES (?, ?) "
                "ON CONFLICT (id) DO UPDATE SET body = excluded.body",
                *(id, json.dumps(dict(properties))),
            )
        else:
            self._write("DELETE FROM databases WHERE id = ?", id)

    def recent_publications(self, count: int) -> list[Publication]:
        """What was published last, within and outside transactions, the newest first."""
        found = [
            _publication(body)
            for watched in (0, 1)  # each by the index
            for (body,) in self._read(
                "SELECT body FROM publications WHERE watched = ? "
                "ORDER BY kept_until_ms DESC LIMIT ?",
                *(watched, count),
            )
        ]
        return sorted(found, key=lambda p: p.published_at_ms, reverse=True)[:count]

    def check(self) -> None:
        """Write something; raises an error when that does not work."""
        self._write("UPDATE meta SET format = format")

    def close(self) -> None:
        """Give the database up."""
        self._database.close()

    def _read(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return self._database.read(statement, *values)

    def _write(self, statement: str, *values: object) -> None:
        # What it does twice must be as if done once: it is repeated when it is unclear whether it
        # was done.
        with self._turn:
            change = Change(statement, values)
            if self._together is None:
                self._database.write([change])
            else:
                self._together.append(change)

    def _check_format(self) -> None:
        found = [row[0] for row in self._database.read("SELECT format FROM meta")]
        if not found:
            self._write("INSERT INTO meta VALUES (?)", _FORMAT)
        elif found != [_FORMAT]:
            self.close()
            raise SetupError(
                f"{self._database.name} was written by another version (format {found[0]}, "
                f"this one is {_FORMAT}).",
                hint="Use the version that wrote it, or drain it there and start anew.",
            )


def _body(held: TransactionState) -> str:
    return json.dumps(asdict(held))


def _held(text: str) -> TransactionState:
    body: dict[str, object] = json.loads(text)
    receipt = body.pop("receipt")
    origin = body.pop("origin", None)  # which older versions did not store
    return TransactionState(
        **{**body, "phase": Phase(str(body["phase"]))},  # type: ignore[arg-type]
        receipt=CommitReceipt(**receipt) if isinstance(receipt, dict) else None,
        origin=Origin(**origin) if isinstance(origin, dict) else Origin(),
    )


def _publication(text: str) -> Publication:
    body: dict[str, Any] = json.loads(text)
    name, properties = body.pop("table"), body.pop("properties")
    manifests = body.pop("manifests", ())  # which older versions did not store
    return Publication(
        table=TableName(**name),
        properties=tuple((k, v) for k, v in properties),
        manifests=tuple(manifests),
        **body,
    )
