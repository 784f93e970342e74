"""The log in a database: an SQLite file on a local disk, or PostgreSQL.

See `interface.Log` for its guarantees, and `coordinator.store.database.Database` for the reasons
why they hold. One append is one transaction, so that its records, their labels and each table's
last lsn are stored together. By that lsn it is noticed if the database has lost records.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from paimon_magics.coordinator.inserts.log.ids import append_id, content_id
from paimon_magics.coordinator.inserts.log.interface import (
    Appended,
    DeadLetter,
    Keyed,
    LogTable,
    Remembered,
    StoredFlush,
)
from paimon_magics.coordinator.store.database import (
    Change,
    Database,
    StoreLostError,
    UnstorableError,
)

__all__ = ["DatabaseLog"]

_FORMAT = 1
_KEYS_AT_ONCE = 200

# A row of `log_keys` has the answers to a run of a channel's inserts that ends at the offset `off`,
# each an lsn and a digest; or, with `off` -1, the answer to a label's one insert. `lsn` is the last
# of them.
_TABLES = (
    "CREATE TABLE IF NOT EXISTS log_meta (format {integer} NOT NULL, id TEXT NOT NULL){table_end}",
    "CREATE TABLE IF NOT EXISTS log_tables ("
    "location TEXT PRIMARY KEY, name TEXT NOT NULL, published {integer} NOT NULL, "
    "chain {integer} NOT NULL, acknowledged {integer} NOT NULL, snapshot_id {integer}, "
    "closed TEXT NOT NULL DEFAULT '', flush TEXT){table_end}",
    "CREATE TABLE IF NOT EXISTS log_segments ("
    "location TEXT NOT NULL, first {integer} NOT NULL, last {integer} NOT NULL, "
    "body {bytes} NOT NULL, PRIMARY KEY (location, first)){table_end}",
    "CREATE TABLE IF NOT EXISTS log_keys ("
    "location TEXT NOT NULL, key TEXT NOT NULL, off {integer} NOT NULL, lsn {integer} NOT NULL, "
    "answers {bytes} NOT NULL, at_ms {integer} NOT NULL, PRIMARY KEY (location, key, off))"
    "{table_end}",
    "CREATE INDEX IF NOT EXISTS log_keys_by_age ON log_keys (at_ms)",
    "CREATE TABLE IF NOT EXISTS log_dead_letters ("
    "location TEXT NOT NULL, lsn {integer} NOT NULL, why TEXT NOT NULL, at_ms {integer} NOT NULL, "
    "body {bytes} NOT NULL, PRIMARY KEY (location, lsn)){table_end}",
    "CREATE TABLE IF NOT EXISTS log_moves ("
    "location TEXT PRIMARY KEY, target TEXT NOT NULL){table_end}",
)
_BY_LOCATION = ("log_tables", "log_segments", "log_keys", "log_dead_letters")
_LSN = struct.Struct(">QB")


class DatabaseLog:
    """A `Log` in a database. With `owned` nothing else uses the database, and it is closed with the
    log."""

    def __init__(self, database: Database, *, owned: bool = True) -> None:
        self._database = database
        self._owned = owned
        self.name = database.name
        self.damage = ""  # a database is whole, or raises errors itself
        dialect = asdict(database.dialect)
        database.write([Change(statement.format(**dialect)) for statement in _TABLES])
        self.id = self._identity()

    def append(self, groups: Sequence[Appended]) -> None:
        """See `Log.append`."""
        changes = []
        for group in groups:
            segment = group.segment
            changes += [
                Change(
                    "INSERT INTO log_tables (location, name, published, chain, acknowledged) "
                    "VALUES (?, ?, 0, 0, ?) ON CONFLICT (location) DO UPDATE SET "
                    "name = excluded.name, acknowledged = excluded.acknowledged",
                    (group.location, group.name, segment.last),
                ),
                Change(
                    "INSERT INTO log_segments VALUES (?, ?, ?, ?)",
                    (group.location, segment.first, segment.last, segment.body),
                ),
                *(
                    Change(
                        "INSERT INTO log_keys VALUES (?, ?, ?, ?, ?, ?)",
                        (group.location, key, offset, lsn, answers, group.at_ms),
                    )
                    for key, offset, lsn, answers in _key_rows(group.keys)
                ),
            ]
        id = append_id([(g.location, g.segment.first, g.segment.chain) for g in groups])
        try:
            self._database.write(changes, id)
        except UnstorableError:
            for group in groups:
                self.check_next(group.location, group.segment.first)
            raise

    def check_next(self, location: str, first: int) -> None:
        """Raise StoreLostError unless a table's records may go on with `first`."""
        for (last,) in self._database.read(
            "SELECT acknowledged FROM log_tables WHERE location = ?", location
        ):
            if last + 1 != first:
                raise StoreLostError(
                    f"The log {self.name} has records of {location} up to {last}, and is to go on "
                    f"with {first}.",
                    hint="Start the coordinator again: it reads what the log has.",
                )

    def tables(self) -> list[LogTable]:
        """See `Log.tables`."""
        rows = self._database.read(
            "SELECT location, name, published, chain, acknowledged, snapshot_id, closed, flush, "
            "(SELECT target FROM log_moves WHERE log_moves.location = log_tables.location) "
            "FROM log_tables ORDER BY location"
        )
        return [_stored_table(row) for row in rows]

    def read(self, location: str, first: int, last: int) -> list[tuple[int, bytes]]:
        """See `Log.read`."""
        rows = self._database.read(
            "SELECT first, body FROM log_segments "
            "WHERE location = ? AND last >= ? AND first <= ? ORDER BY first",
            *(location, first, last),
        )
        return [(int(begin), bytes(body)) for begin, body in rows]

    def remembered(self, location: str, keys: Sequence[str]) -> dict[str, Remembered]:
        """See `Log.remembered`."""
        rows: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
        wanted = list(dict.fromkeys(keys))
        for begin in range(0, len(wanted), _KEYS_AT_ONCE):
            some = wanted[begin : begin + _KEYS_AT_ONCE]
            marks = ", ".join("?" * len(some))
            for key, offset, answers in self._database.read(
                f"SELECT key, off, answers FROM log_keys WHERE location = ? AND key IN ({marks}) "
                "ORDER BY off",
                *(location, *some),
            ):
                rows[key].append((int(offset), bytes(answers)))
        return {key: _remembered(found) for key, found in rows.items()}

    def begin_flush(self, location: str, flush: StoredFlush, dead: Sequence[DeadLetter]) -> None:
        """See `Log.begin_flush`."""
        self._database.write(
            [
                Change(
                    "UPDATE log_tables SET flush = ? WHERE location = ?",
                    (json.dumps(asdict(flush)), location),
                ),
                _exhumation(location, flush.first, flush.last),
                *_burials(dead),
            ],
            content_id("begin_flush", location, flush, dead),
        )

    def drop_flush(self, location: str, first: int, last: int, write_id: str = "") -> None:
        """See `Log.drop_flush`."""
        change = Change("UPDATE log_tables SET flush = NULL WHERE location = ?", (location,))
        self._database.write([change, _exhumation(location, first, last)], write_id)

    def publish(
        self,
        location: str,
        last: int,
        chain: int,
        snapshot_id: int | None,
        dead: Sequence[DeadLetter] = (),
    ) -> None:
        """See `Log.publish`."""
        self._database.write(
            [
                Change(
                    "UPDATE log_tables SET published = ?, chain = ?, flush = NULL, "
                    "snapshot_id = coalesce(?, snapshot_id) WHERE location = ?",
                    (last, chain, snapshot_id, location),
                ),
                Change(
                    "DELETE FROM log_segments WHERE location = ? AND last <= ?", (location, last)
                ),
                # The last row of a channel stays: by it a repeat is told from a new insert.
                Change(
                    "DELETE FROM log_keys WHERE location = ? AND off >= 0 AND lsn <= ? AND off < "
                    "(SELECT max(others.off) FROM log_keys AS others "
                    "WHERE others.location = log_keys.location AND others.key = log_keys.key)",
                    (location, last),
                ),
                *_burials(dead),
            ],
            content_id("publish", location, last, chain, snapshot_id, dead),
        )

    def close_table(self, location: str, why: str, write_id: str = "") -> None:
        """See `Log.close_table`."""
        change = Change("UPDATE log_tables SET closed = ? WHERE location = ?", (why, location))
        self._database.write([change], write_id)

    def accept_loss(self, location: str, name: str, published: int, write_id: str = "") -> None:
        """See `Log.accept_loss`."""
        self._database.write(
            [
                Change("DELETE FROM log_segments WHERE location = ?", (location,)),
                Change(
                    "INSERT INTO log_tables (location, name, published, chain, acknowledged) "
                    "VALUES (?, ?, ?, 0, ?) ON CONFLICT (location) DO UPDATE SET published = "
                    "excluded.published, chain = 0, acknowledged = excluded.acknowledged, "
                    "closed = '', flush = NULL",
                    (location, name, published, published),
                ),
            ],
            write_id,
        )

    def begin_move(self, location: str, target: str) -> None:
        """See `Log.begin_move`."""
        changes = [Change("DELETE FROM log_moves WHERE location = ?", (location,))]
        if target:
            changes.append(Change("INSERT INTO log_moves VALUES (?, ?)", (location, target)))
        self._database.write(changes)

    def move_table(self, location: str, to_location: str, name: str) -> None:
        """See `Log.move_table`."""
        self._database.write(
            [
                Change("UPDATE log_tables SET name = ? WHERE location = ?", (name, location)),
                *(
                    Change(
                        f"UPDATE {table} SET location = ? WHERE location = ?",
                        (to_location, location),
                    )
                    for table in _BY_LOCATION
                ),
                Change("DELETE FROM log_moves WHERE location = ?", (location,)),
            ]
        )

    def drop_table(self, location: str, write_id: str = "") -> None:
        """See `Log.drop_table`."""
        self._database.write(
            [
                Change(f"DELETE FROM {table} WHERE location = ?", (location,))
                for table in ("log_tables", "log_keys", "log_segments", "log_moves")
            ],
            write_id,
        )

    def dead_letters(self, location: str | None = None) -> list[DeadLetter]:
        """See `Log.dead_letters`."""
        rows = self._database.read(
            "SELECT location, lsn, why, at_ms, body FROM log_dead_letters "
            "WHERE coalesce(?, location) = location ORDER BY at_ms, location, lsn",
            location,
        )
        return [
            DeadLetter(place, lsn, why, at_ms, bytes(body)) for place, lsn, why, at_ms, body in rows
        ]

    def drop_dead_letter(self, location: str, lsn: int) -> None:
        """See `Log.drop_dead_letter`."""
        self._database.write(
            [Change("DELETE FROM log_dead_letters WHERE location = ? AND lsn = ?", (location, lsn))]
        )

    def forget(self, before_ms: int) -> None:
        """See `Log.forget`."""
        self._database.write([Change("DELETE FROM log_keys WHERE at_ms < ?", (before_ms,))])

    def close(self) -> None:
        """See `Log.close`."""
        if self._owned:
            self._database.close()

    def _identity(self) -> str:
        rows = self._database.read("SELECT format, id FROM log_meta")
        if not rows:
            new = uuid.uuid4().hex
            self._database.write([Change("INSERT INTO log_meta VALUES (?, ?)", (_FORMAT, new))])
            return new
        if len(rows) != 1 or rows[0][0] != _FORMAT:
            raise StoreLostError(
                f"The log {self.name} has another format than this version's.",
                hint="Start the version of paimon-magics that wrote it.",
            )
        return str(rows[0][1])


def _stored_table(row: Sequence[Any]) -> LogTable:
    location, name, published, chain, acknowledged, snapshot_id, closed, text, moving = row
    flush = None if text is None else StoredFlush(**json.loads(text))
    return LogTable(
        location, name, published, chain, acknowledged, snapshot_id, closed, flush, moving or ""
    )


def _key_rows(keys: Sequence[Keyed]) -> list[tuple[str, int, int, bytes]]:
    """Rows of `log_keys`: one for each label, and one for each run of offsets of a channel."""
    rows: list[tuple[str, int, int, bytes]] = []
    runs: dict[str, list[Keyed]] = {}
    for one in keys:
        run = runs.get(one.key)
        if run is not None and one.offset >= 0 and run[-1].offset + 1 == one.offset:
            run.append(one)
            continue
        if run is not None:
            rows.append(_key_row(run))
        runs[one.key] = [one]
    return [*rows, *(_key_row(run) for run in runs.values())]


def _key_row(run: Sequence[Keyed]) -> tuple[str, int, int, bytes]:
    answers = b"".join(_LSN.pack(one.lsn, len(one.digest)) + one.digest for one in run)
    return run[-1].key, run[-1].offset, run[-1].lsn, answers


def _remembered(rows: Sequence[tuple[int, bytes]]) -> Remembered:
    inserts: dict[int, tuple[int, bytes]] = {}
    for last, answers in rows:
        found = []
        at = 0
        while at < len(answers):
            lsn, length = _LSN.unpack_from(answers, at)
            at += _LSN.size
            found.append((lsn, answers[at : at + length]))
            at += length
        inserts.update(enumerate(found, last - len(found) + 1))
    last_offset = rows[-1][0]
    return Remembered(inserts, last_offset if last_offset >= 0 else None)


def _exhumation(location: str, first: int, last: int) -> Change:
    """Drop the dead letters of a flush: records that one try left out may be loaded by the next."""
    return Change(
        "DELETE FROM log_dead_letters WHERE location = ? AND lsn >= ? AND lsn <= ?",
        (location, first, last),
    )


def _burials(dead: Sequence[DeadLetter]) -> list[Change]:
    return [
        Change(
            "INSERT INTO log_dead_letters (location, lsn, why, at_ms, body) "
            "VALUES (?, ?, ?, ?, ?) ON CONFLICT (location, lsn) DO UPDATE SET "
            "why = excluded.why, at_ms = excluded.at_ms, body = excluded.body",
            (one.location, one.lsn, one.why, one.at_ms, one.body),
        )
        for one in dead
    ]
