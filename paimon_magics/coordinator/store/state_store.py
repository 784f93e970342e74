"""The state that survives a coordinator's process: transactions, publications, halts, tokens,
entries of the audit log, properties of databases, their views and functions.

The SQL is the same for each kind of database. When `save` returns, the state is durable.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from paimon_magics.coordinator.core.values import FINISHED, Origin, Phase, TransactionState
from paimon_magics.coordinator.protocol.json_text import dataclass_json
from paimon_magics.coordinator.store.database import Change, Database, check_warehouse
from paimon_magics.coordinator.store.sqlite import SqliteDatabase
from paimon_magics.coordinator.store.tables import (
    AuditLog,
    GrantTable,
    HaltTable,
    PairTable,
    PublicationTable,
    Sql,
    SqlTable,
    TokenTable,
)
from paimon_magics.errors import SetupError
from paimon_magics.planning.commits.requests import CommitReceipt
from paimon_magics.tables.stores.paths import plain_location

STORE_FORMAT = 6
"""The number of the store's format, which it carries."""

_FORMATS_READ = (4, 5, 6)  # 4 has other names in the bodies of transactions, 5 has no warehouse
_SCHEMES = ("postgresql://", "postgres://")

# `finished` is 1 when nothing is left to do for a transaction. `body` is the core's state of it;
# `opened` has its commit user, file prefix and base snapshot, which never change; `request` is the
# commit request, once there is one; `runs` counts the runs of the commit, whose number is in the
# names of their files. `watched` is 1 while overwriting a publication would lose something.
# `repetitions` has overwritten publications as they were; its `runs` counts the runs that began to
# publish them again, the last one at `begun_at_ms`.
_TABLES = (
    "CREATE TABLE IF NOT EXISTS meta (format {integer} NOT NULL, "
    "warehouse_id TEXT NOT NULL DEFAULT '', warehouse TEXT NOT NULL DEFAULT ''){table_end}",
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
    "CREATE TABLE IF NOT EXISTS definitions ("
    "database_id TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL, "
    "PRIMARY KEY (database_id, kind, name)){table_end}",
    "CREATE TABLE IF NOT EXISTS pause (by_whom TEXT NOT NULL, since_ms {integer} NOT NULL)"
    "{table_end}",
    "CREATE TABLE IF NOT EXISTS tokens ("
    "id TEXT PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL, allows TEXT NOT NULL, "
    "created_at_ms {integer} NOT NULL, expires_at_ms {integer} NOT NULL, "
    "revoked_at_ms {integer} NOT NULL){table_end}",
    "CREATE TABLE IF NOT EXISTS grants ("
    "grantee TEXT NOT NULL, text TEXT NOT NULL, granted_by TEXT NOT NULL, "
    "granted_at_ms {integer} NOT NULL, PRIMARY KEY (grantee, text)){table_end}",
    "CREATE TABLE IF NOT EXISTS compaction_pause ("
    "by_whom TEXT NOT NULL, since_ms {integer} NOT NULL){table_end}",
    "CREATE TABLE IF NOT EXISTS audit ("
    "id TEXT PRIMARY KEY, done {integer} NOT NULL, body TEXT NOT NULL){table_end}",
    "CREATE TABLE IF NOT EXISTS pairing ("
    "id TEXT NOT NULL, starts {integer} NOT NULL, mark TEXT NOT NULL, prior TEXT NOT NULL, "
    "rights {integer} NOT NULL){table_end}",
)
# Documents with locations of tables.
_DOCUMENTS = (
    ("transactions", "body"),
    ("transactions", "opened"),
    ("publications", "body"),
    ("repetitions", "body"),
)

_KEY = "database_id = ? AND kind = ? AND name = ?"


def open_store(
    state: Path,
    address: str | None = None,
    warehouse: str = "",
    *,
    is_heir: bool = False,
    warehouse_id: str = "",
) -> StateStore:
    """Open the store of the coordinator with this state folder; make it if there is none.

    `address` is the address of a PostgreSQL database; without it the store is an SQLite file in the
    folder. See `PostgresDatabase` for `warehouse` and `is_heir`, `StateStore` for `warehouse_id`.
    Raises SetupError for a store that another coordinator uses, or another warehouse.
    """
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise SetupError(
            f"The coordinator's state folder {state} can't be made: {error.strerror}.",
            hint="Name a folder on a local disk that you may write to.",
        ) from error
    if address is None:
        sqlite = SqliteDatabase(state / "coordinator.sqlite")
        return StateStore(sqlite, warehouse, warehouse_id)
    if not address.startswith(_SCHEMES):
        raise SetupError(
            "The address of the coordinator's store does not begin with postgresql://.",
            hint="Write it as postgresql://USER@HOST:PORT/DATABASE.",
        )
    try:
        from paimon_magics.coordinator.store.postgres import PostgresDatabase
    except ImportError as error:
        raise SetupError(
            f"A store in PostgreSQL needs the psycopg package: {error}.",
            hint="Install it with: pip install 'paimon-magics[postgres]'",
        ) from error
    postgres = PostgresDatabase(address, warehouse, is_heir=is_heir)
    return StateStore(postgres, warehouse, warehouse_id)


def store_trouble(address: str | None) -> str:
    """Why the store at an address accepts no writes at the moment; "" if it does, or if it is a
    file on this machine.
    """
    if address is None:
        return ""
    from paimon_magics.coordinator.store.postgres import trouble_at

    return trouble_at(address)


def store_address(option: str | None) -> str | None:
    """Return the store's address: the command line's `option`, else PAIMON_COORDINATOR_STORE.

    Raises SetupError for an option with a password, which every user of the machine could read.
    """
    if option is None:
        return os.environ.get("PAIMON_COORDINATOR_STORE") or None
    parts = urlsplit(option)
    if parts.password is not None or "password" in parse_qs(parts.query):
        raise SetupError(
            "The command line contains the password of the coordinator's store.",
            hint="Put it into ~/.pgpass or PGPASSWORD, or the whole address into "
            "PAIMON_COORDINATOR_STORE.",
        )
    return option


class StateStore:
    """The store of one coordinator. It owns the database. For any thread.

    `transactions`, `publications`, `halts`, `tokens`, `grants`, `audit`, `pair`,
    `database_properties` and `definitions` are its tables. It belongs to the warehouse with the id
    `warehouse_id` ("" while that is unknown), and knows tables by locations below `warehouse`, as
    that is spelled now. Its methods raise StoreUnavailableError and StoreLostError; see `Database`.
    """

    def __init__(self, database: Database, warehouse: str = "", warehouse_id: str = "") -> None:
        self.database = database
        """The database in which it is kept."""
        dialect = asdict(database.dialect)
        database.write([Change(statement.format(**dialect)) for statement in _TABLES])
        self._sql = Sql(database)
        try:
            self._check_format()
            self._bind(warehouse, warehouse_id)
        except BaseException:
            self.close()
            raise
        self.transactions = TransactionTable(self._sql)
        self.publications = PublicationTable(self._sql)
        self.halts = HaltTable(self._sql)
        self.tokens = TokenTable(self._sql)
        self.grants = GrantTable(self._sql)
        self.audit = AuditLog(self._sql)
        self.pair = PairTable(self._sql)
        self.database_properties = DatabasePropertyTable(self._sql)
        self.definitions = DefinitionTable(self._sql)

    def together(self, id: str = "") -> AbstractContextManager[None]:
        """Make the changes of the `with` block durable together, at its end; drop them when it
        raises. With an `id` the block may be repeated after an unclear error: see `Database.write`.
        """
        return self._sql.together(id)

    def forget_finished(self, until_ms: int) -> None:
        """Delete the finished transactions and the unwatched publications whose retention ended
        at `until_ms` or before."""
        self.transactions.forget_finished(until_ms)
        self.publications.forget_unwatched(until_ms)

    def check(self) -> None:
        """Write something, so that an error is raised when that does not work."""
        self._sql.write("UPDATE meta SET format = format")

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def _check_format(self) -> None:
        formats = [row[0] for row in self.database.read("SELECT format FROM meta")]
        if not formats:
            self._sql.write("INSERT INTO meta (format) VALUES (?)", STORE_FORMAT)
        elif len(formats) == 1 and formats[0] in _FORMATS_READ:
            if formats[0] != STORE_FORMAT:
                with self._sql.together():
                    for column in ("warehouse_id", "warehouse"):
                        self._sql.write(
                            f"ALTER TABLE meta ADD COLUMN {column} TEXT NOT NULL DEFAULT ''"
                        )
                    # An older version, which can't read it, then says so.
                    self._sql.write("UPDATE meta SET format = ?", STORE_FORMAT)
        else:
            raise SetupError(
                f"{self.database.name} was written by another version (format {formats[0]}; this "
                f"version has format {STORE_FORMAT}).",
                hint=(
                    "Use that version. Or drain the coordinator with it, then start with an "
                    "empty store."
                ),
            )

    def _bind(self, warehouse: str, warehouse_id: str) -> None:
        """Bind the store to a warehouse, and its locations to the present spelling of the
        warehouse.
        """
        bound_id, before = self.database.read("SELECT warehouse_id, warehouse FROM meta")[0]
        check_warehouse(f"The store {self.database.name}", bound_id, warehouse_id)
        id = warehouse_id or bound_id
        now = plain_location(warehouse) if warehouse else before
        if not id or (id, now) == (bound_id, before):
            return
        with self._sql.together():
            if before:
                self._respell(f"{before}/", f"{now}/")
            self._sql.write("UPDATE meta SET warehouse_id = ?, warehouse = ?", id, now)

    def _respell(self, before: str, now: str) -> None:
        """Change the spelling of the locations below a folder, in columns and in documents."""
        moved, length = "? || substr(location, ?)", len(before)
        below = "substr(location, 1, ?) = ?"
        self._sql.write(
            f"INSERT INTO stopped SELECT {moved}, reason, since_ms FROM stopped WHERE {below} "
            "ON CONFLICT (location) DO NOTHING",
            *(now, length + 1, length, before),
        )
        self._sql.write(f"DELETE FROM stopped WHERE {below}", length, before)
        self._sql.write(
            f"UPDATE publications SET location = {moved} WHERE {below}",
            *(now, length + 1, length, before),
        )
        for table, column in _DOCUMENTS:
            for (text,) in self.database.read(f"SELECT DISTINCT {column} FROM {table}"):
                document = json.loads(text)
                changed = {
                    key: now + document[key].removeprefix(before)
                    for key in ("location", "attempts_folder")
                    if str(document.get(key, "")).startswith(before)
                }
                if changed:
                    self._sql.write(
                        f"UPDATE {table} SET {column} = ? WHERE {column} = ?",
                        *(json.dumps({**document, **changed}), text),
                    )


# The table of properties of databases, for warehouses in a file system, which can't keep them.


class DatabasePropertyTable(SqlTable):
    """The properties of databases by their ids; see `service.definitions`."""

    def of(self, id: str) -> dict[str, str]:
        """The properties of a database, empty for an unknown id. See `Databases`."""
        rows = self._sql.read("SELECT body FROM databases WHERE id = ?", id)
        properties: dict[str, str] = json.loads(rows[0][0]) if rows else {}
        return properties

    def save(self, id: str, properties: Mapping[str, str]) -> None:
        """Store the properties of a database; empty properties delete the row."""
        if properties:
            self._sql.write(
                "INSERT INTO databases (id, body) VALUES (?, ?) "
                "ON CONFLICT (id) DO UPDATE SET body = excluded.body",
                *(id, json.dumps(dict(properties))),
            )
        else:
            self._sql.write("DELETE FROM databases WHERE id = ?", id)


# The table of the views and functions of databases, which engines define.


class DefinitionTable(SqlTable):
    """Views and functions by the ids of their databases; see `service.definitions`."""

    def names(self, database_id: str, kind: str) -> list[str]:
        """The names of a database's views or functions, in no order."""
        statement = "SELECT name FROM definitions WHERE database_id = ? AND kind = ?"
        return [name for (name,) in self._sql.read(statement, database_id, kind)]

    def of(self, database_id: str, kind: str, name: str) -> dict[str, Any] | None:
        """The document of a view or a function; None if there is none of that name."""
        rows = self._sql.read(f"SELECT body FROM definitions WHERE {_KEY}", database_id, kind, name)
        document: dict[str, Any] | None = json.loads(rows[0][0]) if rows else None
        return document

    def save(self, database_id: str, kind: str, name: str, document: dict[str, Any]) -> None:
        """Store a view or a function, in place of what has its name."""
        self._sql.write(
            "INSERT INTO definitions (database_id, kind, name, body) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (database_id, kind, name) DO UPDATE SET body = excluded.body",
            *(database_id, kind, name, json.dumps(document)),
        )

    def move(self, kind: str, source: tuple[str, str], target: tuple[str, str]) -> None:
        """Give a view or a function another name. Both are ids of databases with names in them."""
        self._sql.write(
            f"UPDATE definitions SET database_id = ?, name = ? WHERE {_KEY}",
            *(*target, source[0], kind, source[1]),
        )

    def delete(self, database_id: str, kind: str, name: str) -> None:
        """Delete a view or a function."""
        self._sql.write(f"DELETE FROM definitions WHERE {_KEY}", database_id, kind, name)

    def delete_all(self, database_id: str) -> None:
        """Delete all views and functions of a database."""
        self._sql.write("DELETE FROM definitions WHERE database_id = ?", database_id)


# The table of transactions and their commit requests.


class TransactionTable(SqlTable):
    """The stored transactions, finished and unfinished."""

    def unfinished(self) -> list[tuple[TransactionState, dict[str, object]]]:
        """All unfinished transactions, each with its document from when it was opened."""
        rows = self._sql.read(
            "SELECT body, opened FROM transactions WHERE finished = 0 ORDER BY id"
        )
        return [(_transaction(body), json.loads(opened)) for body, opened in rows]

    def finished(self, id: str) -> TransactionState | None:
        """A finished transaction; None when it is unknown, no longer kept, or unfinished."""
        rows = self._sql.read("SELECT body FROM transactions WHERE id = ? AND finished = 1", id)
        return _transaction(rows[0][0]) if rows else None

    def recently_finished(self, count: int) -> list[TransactionState]:
        """The last finished transactions, the newest first."""
        rows = self._sql.read(
            "SELECT body FROM transactions WHERE finished = 1 ORDER BY expires_at_ms DESC LIMIT ?",
            count,
        )
        return [_transaction(body) for (body,) in rows]

    def opened(self, id: str) -> dict[str, object] | None:
        """A transaction's document from when it was opened; None for an unknown transaction."""
        text = self._value("opened", id)
        return None if text is None else json.loads(text)

    def request(self, id: str) -> bytes | None:
        """A transaction's commit request; None for an unknown transaction, or without a request."""
        body: bytes | None = self._value("request", id)
        return body

    def runs(self, id: str) -> int:
        """The number of runs of the transaction's commit that were begun."""
        return int(self._value("runs", id) or 0)

    def _value(self, column: str, id: str) -> Any:
        rows = self._sql.read(f"SELECT {column} FROM transactions WHERE id = ?", id)
        return rows[0][0] if rows else None

    def open(self, transaction: TransactionState, opened: dict[str, object]) -> None:
        """Store a new transaction."""
        self._sql.write(
            "INSERT INTO transactions (id, finished, expires_at_ms, body, opened) "
            "VALUES (?, 0, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET finished = 0, "
            "expires_at_ms = excluded.expires_at_ms, body = excluded.body, "
            "opened = excluded.opened",
            *(transaction.id, transaction.expires_at_ms, _body(transaction), json.dumps(opened)),
        )

    def save(self, transaction: TransactionState, request: bytes | None = None) -> None:
        """Store a transaction's new state, and its commit request if that is given."""
        self._sql.write(
            "UPDATE transactions SET finished = ?, expires_at_ms = ?, body = ?, "
            "request = coalesce(?, request) WHERE id = ?",
            *(
                int(transaction.phase in FINISHED),
                transaction.expires_at_ms,
                _body(transaction),
                request,
                transaction.id,
            ),
        )

    def begin_run(self, id: str) -> None:
        """Store that another run of the transaction's commit begins."""
        # Repeated, it skips a number, which does no harm.
        self._sql.write("UPDATE transactions SET runs = runs + 1 WHERE id = ?", id)

    def forget_finished(self, until_ms: int) -> None:
        """Delete the finished transactions whose retention ended at `until_ms` or before."""
        self._sql.write(
            "DELETE FROM transactions WHERE finished = 1 AND expires_at_ms <= ?", until_ms
        )


def _body(transaction: TransactionState) -> str:
    return dataclass_json(transaction)


def _transaction(text: str) -> TransactionState:
    body: dict[str, object] = json.loads(text)
    receipt = body.pop("receipt")
    origin = body.pop("origin", None)  # older versions did not store it
    if isinstance(body.get("placed"), bool):  # a version that did not store the table's id
        body["placed"] = ""
    if "location" not in body:  # format 4
        body["location"], body["table"] = body.pop("table"), body.pop("name", "")
    return TransactionState(
        **{**body, "phase": Phase(str(body["phase"]))},  # type: ignore[arg-type]
        receipt=CommitReceipt(**receipt) if isinstance(receipt, dict) else None,
        origin=Origin(**origin) if isinstance(origin, dict) else Origin(),
    )
