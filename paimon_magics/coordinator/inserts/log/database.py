"""The log in a database: an SQLite file on a local disk, or PostgreSQL.

See `log.Log` for its guarantees, and `coordinator.store.database.Database` for the reasons
why they hold. One append is one transaction, so that its records, their labels and each table's
last lsn are stored together. By that lsn it is noticed if the database has lost records.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from paimon_magics.coordinator.inserts.log.idempotency_keys import (
    FIRST_OFFSET,
    Remembered,
    forgetting,
    remembered_of,
    remembering,
)
from paimon_magics.coordinator.inserts.log.legacy import Renamed, upgrade
from paimon_magics.coordinator.inserts.log.log import (
    Appended,
    DeadLetter,
    LogTable,
    RunningTime,
    StoredFlush,
    append_id,
    content_id,
)
from paimon_magics.coordinator.protocol.json_text import dataclass_json, storable_text
from paimon_magics.coordinator.store.database import (
    Change,
    Database,
    StoreLostError,
    UnstorableError,
    check_warehouse,
)
from paimon_magics.errors import SetupError

_FORMAT = 2
_KEYS_AT_ONCE = 200
_FORGET_AT_ONCE = 10_000

# For the rows of `log_keys` see `log`; their `at_ms` is the log's running time. `legacy` is the
# identity by which an older version knew a table. `log_moves` has the renames that such a version
# began.
_TABLES = (
    "CREATE TABLE IF NOT EXISTS log_meta (format {integer} NOT NULL, id TEXT NOT NULL, "
    "warehouse_id TEXT NOT NULL DEFAULT '', running_ms {integer} NOT NULL DEFAULT 0){table_end}",
    "CREATE TABLE IF NOT EXISTS log_tables ("
    "table_id TEXT PRIMARY KEY, name TEXT NOT NULL, published {integer} NOT NULL, "
    "chain {integer} NOT NULL, acknowledged {integer} NOT NULL, snapshot_id {integer}, "
    "closed TEXT NOT NULL DEFAULT '', flush TEXT, legacy TEXT NOT NULL DEFAULT ''){table_end}",
    "CREATE TABLE IF NOT EXISTS log_segments ("
    "table_id TEXT NOT NULL, first {integer} NOT NULL, last {integer} NOT NULL, "
    "body {bytes} NOT NULL, PRIMARY KEY (table_id, first)){table_end}",
    "CREATE TABLE IF NOT EXISTS log_keys ("
    "table_id TEXT NOT NULL, key TEXT NOT NULL, off {integer} NOT NULL, lsn {integer} NOT NULL, "
    "answers {bytes} NOT NULL, at_ms {integer} NOT NULL, PRIMARY KEY (table_id, key, off))"
    "{table_end}",
    "CREATE INDEX IF NOT EXISTS log_keys_by_age ON log_keys (at_ms)",
    "CREATE TABLE IF NOT EXISTS log_dead_letters ("
    "table_id TEXT NOT NULL, lsn {integer} NOT NULL, why TEXT NOT NULL, at_ms {integer} NOT NULL, "
    "body {bytes} NOT NULL, PRIMARY KEY (table_id, lsn)){table_end}",
    "CREATE TABLE IF NOT EXISTS log_moves ("
    "location TEXT PRIMARY KEY, target TEXT NOT NULL){table_end}",
)


class DatabaseLog:
    """A `Log` in a database. With `owned` nothing else uses the database, and it is closed with the
    log.

    `warehouse_id` is the id of the warehouse to whose tables the log belongs, "" while it is
    unknown. `steady` is a clock in seconds. For `renamed` see `legacy`. `database` is for readers.
    """

    def __init__(
        self,
        database: Database,
        *,
        owned: bool = True,
        warehouse_id: str = "",
        steady: Callable[[], float] | None = None,
        renamed: Renamed | None = None,
    ) -> None:
        self.database = database
        self._owned = owned
        self.name = database.name
        self.damage = ""  # a database is whole, or raises errors itself
        try:
            dialect = asdict(database.dialect)
            database.write([Change(statement.format(**dialect)) for statement in _TABLES])
            upgrade(database, renamed)
            self.id = self._identity(warehouse_id)
            self._time = RunningTime(self.running_ms(), steady)
        except BaseException:
            if owned:
                database.close()
            raise

    def append(self, groups: Sequence[Appended]) -> None:
        """See `Log.append`."""
        self.append_at(groups, self._time.now_ms())

    def append_at(self, groups: Sequence[Appended], at_ms: int, *, follows: bool = True) -> None:
        """Append, with this running time for the labels. Accepts only records that follow the last
        record, unless that was checked, or some records are known to be lost.
        """
        changes = []
        for group in groups:
            segment = group.segment
            changes += [
                Change(
                    "INSERT INTO log_tables (table_id, name, published, chain, acknowledged) "
                    "VALUES (?, ?, 0, 0, ?) ON CONFLICT (table_id) DO UPDATE SET "
                    # NULL, which is refused, if they must follow and don't.
                    "name = excluded.name, acknowledged = CASE WHEN ? IN "
                    "(log_tables.acknowledged, -1) THEN excluded.acknowledged END",
                    (
                        group.table_id,
                        group.name,
                        segment.last,
                        segment.first - 1 if follows else -1,
                    ),
                ),
                Change(
                    "INSERT INTO log_segments VALUES (?, ?, ?, ?)",
                    (group.table_id, segment.first, segment.last, segment.body),
                ),
                *remembering(group.table_id, group.keys, at_ms),
            ]
        id = append_id([(g.table_id, g.segment.first, g.segment.chain) for g in groups])
        try:
            self.database.write(changes, id)
        except UnstorableError:
            if all(self._has(group) for group in groups):
                return  # it is a repeat
            for group in groups:
                self.check_next(group.table_id, group.segment.first)
            raise

    def _has(self, group: Appended) -> bool:
        rows = self.database.read(
            "SELECT body FROM log_segments WHERE table_id = ? AND first = ?",
            *(group.table_id, group.segment.first),
        )
        return [bytes(body) for (body,) in rows] == [group.segment.body]

    def check_next(self, table_id: str, first: int) -> None:
        """Raise StoreLostError unless a table's records may continue with `first`."""
        for (last,) in self.database.read(
            "SELECT acknowledged FROM log_tables WHERE table_id = ?", table_id
        ):
            if last + 1 != first:
                raise StoreLostError(
                    f"The log {self.name} has records of {table_id} up to {last}, so it can't "
                    f"continue with record {first}.",
                    hint="Restart the coordinator, which then reads the log again.",
                )

    def tables(self) -> list[LogTable]:
        """See `Log.tables`."""
        rows = self.database.read(
            "SELECT table_id, name, published, chain, acknowledged, snapshot_id, closed, flush, "
            "legacy FROM log_tables ORDER BY table_id"
        )
        return [_stored_table(row) for row in rows]

    def read(self, table_id: str, first: int, last: int) -> list[tuple[int, bytes]]:
        """See `Log.read`."""
        rows = self.database.read(
            "SELECT first, body FROM log_segments "
            "WHERE table_id = ? AND last >= ? AND first <= ? ORDER BY first",
            *(table_id, first, last),
        )
        return [(int(begin), bytes(body)) for begin, body in rows]

    def remembered(self, table_id: str, keys: Sequence[str]) -> dict[str, Remembered]:
        """See `Log.remembered`."""
        rows: dict[str, list[tuple[int, int, bytes]]] = defaultdict(list)
        wanted = list(dict.fromkeys(keys))
        for begin in range(0, len(wanted), _KEYS_AT_ONCE):
            some = wanted[begin : begin + _KEYS_AT_ONCE]
            marks = ", ".join("?" * len(some))
            for key, offset, lsn, answers in self.database.read(
                "SELECT key, off, lsn, answers FROM log_keys "
                f"WHERE table_id = ? AND key IN ({marks}) ORDER BY off",
                *(table_id, *some),
            ):
                rows[key].append((int(offset), int(lsn), bytes(answers)))
        return {key: remembered_of(key_rows) for key, key_rows in rows.items()}

    def begin_flush(self, table_id: str, flush: StoredFlush, dead: Sequence[DeadLetter]) -> None:
        """See `Log.begin_flush`."""
        self.database.write(
            [
                Change(
                    "UPDATE log_tables SET flush = ? WHERE table_id = ?",
                    (dataclass_json(flush), table_id),
                ),
                _exhumation(table_id, flush.first, flush.last),
                *_burials(dead),
            ],
            content_id("begin_flush", table_id, flush, dead),
        )

    def drop_flush(self, table_id: str, first: int, last: int, write_id: str = "") -> None:
        """See `Log.drop_flush`."""
        change = Change("UPDATE log_tables SET flush = NULL WHERE table_id = ?", (table_id,))
        self.database.write([change, _exhumation(table_id, first, last)], write_id)

    def publish(
        self,
        table_id: str,
        last: int,
        chain: int,
        snapshot_id: int | None,
        dead: Sequence[DeadLetter] = (),
    ) -> None:
        """See `Log.publish`."""
        self.database.write(
            [
                Change(
                    "UPDATE log_tables SET published = ?, chain = ?, flush = NULL, "
                    "snapshot_id = coalesce(?, snapshot_id) WHERE table_id = ?",
                    (last, chain, snapshot_id, table_id),
                ),
                Change(
                    "DELETE FROM log_segments WHERE table_id = ? AND last <= ?", (table_id, last)
                ),
                # The last row of a channel stays: it distinguishes a repeat from a new insert.
                Change(
                    "DELETE FROM log_keys WHERE table_id = ? AND off >= 0 AND lsn <= ? AND off < "
                    "(SELECT max(others.off) FROM log_keys AS others "
                    "WHERE others.table_id = log_keys.table_id AND others.key = log_keys.key)",
                    (table_id, last),
                ),
                *_burials(dead),
            ],
            content_id("publish", table_id, last, chain, snapshot_id, dead),
        )

    def close_table(self, table_id: str, why: str, write_id: str = "") -> None:
        """See `Log.close_table`."""
        change = Change(
            "UPDATE log_tables SET closed = ? WHERE table_id = ?", (storable_text(why), table_id)
        )
        self.database.write([change], write_id)

    def accept_loss(self, table_id: str, name: str, published: int, write_id: str = "") -> None:
        """See `Log.accept_loss`."""
        self.database.write(
            [
                Change("DELETE FROM log_segments WHERE table_id = ?", (table_id,)),
                Change(
                    "INSERT INTO log_tables (table_id, name, published, chain, acknowledged) "
                    "VALUES (?, ?, ?, 0, ?) ON CONFLICT (table_id) DO UPDATE SET published = "
                    "excluded.published, chain = 0, acknowledged = excluded.acknowledged, "
                    # The snapshot may be among what is lost.
                    "closed = '', flush = NULL, snapshot_id = NULL",
                    (table_id, name, published, published),
                ),
            ],
            write_id,
        )

    def rename_table(self, table_id: str, name: str, write_id: str = "") -> None:
        """See `Log.rename_table`."""
        change = Change("UPDATE log_tables SET name = ? WHERE table_id = ?", (name, table_id))
        self.database.write([change], write_id)

    def drop_table(self, table_id: str, write_id: str = "") -> None:
        """See `Log.drop_table`."""
        self.database.write(
            [
                Change(f"DELETE FROM {table} WHERE table_id = ?", (table_id,))
                for table in ("log_tables", "log_keys", "log_segments")
            ],
            write_id,
        )

    def dead_letters(self, table_id: str | None = None) -> list[DeadLetter]:
        """See `Log.dead_letters`."""
        rows = self.database.read(
            "SELECT table_id, lsn, why, at_ms, body FROM log_dead_letters "
            "WHERE coalesce(?, table_id) = table_id ORDER BY at_ms, table_id, lsn",
            table_id,
        )
        return [
            DeadLetter(place, lsn, why, at_ms, bytes(body)) for place, lsn, why, at_ms, body in rows
        ]

    def drop_dead_letter(self, table_id: str, lsn: int) -> None:
        """See `Log.drop_dead_letter`."""
        self.database.write(
            [Change("DELETE FROM log_dead_letters WHERE table_id = ? AND lsn = ?", (table_id, lsn))]
        )

    def forget(self, retention_ms: int) -> None:
        """See `Log.forget`."""
        now_ms = self._time.now_ms()
        self.forget_until(now_ms - retention_ms, now_ms)

    def forget_until(self, until_ms: int, now_ms: int) -> None:
        """Forget labels and channels that were last used before a running time, and note the
        present running time.
        """
        while True:
            last = self.database.read(
                "SELECT at_ms FROM log_keys WHERE at_ms < ? AND off <> ? "
                "ORDER BY at_ms LIMIT 1 OFFSET ?",
                *(until_ms, FIRST_OFFSET, _FORGET_AT_ONCE),
            )
            before_ms = last[0][0] + 1 if last else until_ms
            self.database.write(
                [
                    *forgetting(before_ms),
                    Change("UPDATE log_meta SET running_ms = ?", (now_ms,)),
                ]
            )
            if not last:
                return

    def running_ms(self) -> int:
        """The noted running time, or the time of the last label."""
        noted = self.database.read("SELECT max(running_ms) FROM log_meta")[0][0]
        last = self.database.read("SELECT max(at_ms) FROM log_keys")[0][0]
        return int(max(noted or 0, last or 0))

    def check(self) -> None:
        """See `Log.check`."""
        self.database.write([Change("UPDATE log_meta SET running_ms = running_ms")])

    def close(self) -> None:
        """See `Log.close`."""
        change = Change("UPDATE log_meta SET running_ms = ?", (self._time.now_ms(),))
        with contextlib.suppress(SetupError):  # then labels are kept for up to a minute longer
            self.database.write([change])
        if self._owned:
            self.database.close()

    def _identity(self, warehouse_id: str) -> str:
        rows = self.database.read("SELECT format, id, warehouse_id FROM log_meta")
        if not rows:
            new = uuid.uuid4().hex
            change = Change(
                "INSERT INTO log_meta (format, id, warehouse_id) VALUES (?, ?, ?)",
                (_FORMAT, new, warehouse_id),
            )
            self.database.write([change])
            return new
        if len(rows) != 1 or rows[0][0] != _FORMAT:
            raise StoreLostError(
                f"The log {self.name} has a different format from this version's.",
                hint="Start the version of paimon-magics that wrote it.",
            )
        _, id, bound_id = rows[0]
        if check_warehouse(f"The log {self.name}", bound_id, warehouse_id):
            self.database.write([Change("UPDATE log_meta SET warehouse_id = ?", (warehouse_id,))])
        return str(id)


def _stored_table(row: Sequence[Any]) -> LogTable:
    table_id, name, published, chain, acknowledged, snapshot_id, closed, text, legacy = row
    flush = None if text is None else StoredFlush(**json.loads(text))
    return LogTable(
        table_id, name, published, chain, acknowledged, snapshot_id, closed, flush, legacy
    )


def _exhumation(table_id: str, first: int, last: int) -> Change:
    """Drop the dead letters of a flush: the next try may load records that this try left out."""
    return Change(
        "DELETE FROM log_dead_letters WHERE table_id = ? AND lsn >= ? AND lsn <= ?",
        (table_id, first, last),
    )


def _burials(dead: Sequence[DeadLetter]) -> list[Change]:
    return [
        Change(
            "INSERT INTO log_dead_letters (table_id, lsn, why, at_ms, body) "
            "VALUES (?, ?, ?, ?, ?) ON CONFLICT (table_id, lsn) DO UPDATE SET "
            "why = excluded.why, at_ms = excluded.at_ms, body = excluded.body",
            (letter.table_id, letter.lsn, storable_text(letter.why), letter.at_ms, letter.body),
        )
        for letter in dead
    ]
