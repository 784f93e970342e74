"""The log as numbered objects in the warehouse's own store, each created only if it is absent.

See `log.Log` for its guarantees and `object_codec` for the form of the objects. Their
combined state is kept in memory, in the same kind of database that other logs have on a disk. A
checkpoint of it is written now and then, and the objects that it replaces are removed.

A coordinator that opens the log creates its next entry. The previous owner finds that number taken
at its next write, and stops before it acknowledges anything.

If the process dies while it writes an entry, the entry exists completely or not at all. If a
creation gets no clear answer, it is retried before anything else is written. Each entry has the id
of its change, so that a change that is repeated at any later time is not written twice. If an entry
is missing or damaged, it is unknown which tables' records it had: then every table of the log stays
closed until an administrator has checked it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from paimon_magics.coordinator.inserts.log.changes import append_document, letters_document
from paimon_magics.coordinator.inserts.log.idempotency_keys import FIRST_OFFSET, Remembered
from paimon_magics.coordinator.inserts.log.legacy import Move, Renamed, settled_moves
from paimon_magics.coordinator.inserts.log.log import (
    Appended,
    DeadLetter,
    LogTable,
    RunningTime,
    StoredFlush,
    append_id,
    content_id,
)
from paimon_magics.coordinator.inserts.log.object_chain import ObjectChain, ObjectFolder
from paimon_magics.coordinator.protocol.json_text import dataclass_members, storable_text
from paimon_magics.errors import SetupError
from paimon_magics.tables.stores.store import Store

_NOTE_TIME_EVERY_MS = 3_600_000
_NOTE_TIME_AT_CLOSE_MS = 60_000


class ObjectLog:
    """A `Log` in a store. `who` names the new owner in the entry that takes the log over."""

    def __init__(
        self,
        store: Store,
        warehouse: str,
        who: str,
        *,
        warehouse_id: str = "",
        steady: Callable[[], float] | None = None,
        renamed: Renamed | None = None,
    ) -> None:
        folder = ObjectFolder(store, warehouse)
        self.name = folder.name
        self.id = folder.identity(warehouse_id)
        self._chain = ObjectChain(folder, who)
        self.damage = self._chain.damage
        self._write = self._chain.write
        for move in settled_moves(self._chain.database, renamed):
            self._settle(move)
        self._noted_ms = self._chain.inner.running_ms()
        self._time = RunningTime(self._noted_ms, steady)

    def _settle(self, move: Move) -> None:
        """Finish a rename that an older version began, or forget it."""
        document = {"change": "begin_move", "location": move.text, "target": ""}
        if move.done_as is not None:
            document = {"change": "move_table", "location": move.text}
            document |= {"to_location": move.done_as, "name": move.target}
        self._write(document)

    # ---- see `Log` ----

    def append(self, groups: Sequence[Appended]) -> None:
        """See `Log.append`."""
        id = append_id([(g.table_id, g.segment.first, g.segment.chain) for g in groups])
        document = append_document(groups, self._time.now_ms())
        self._write(document, [group.segment.body for group in groups], id)

    def begin_flush(self, table_id: str, flush: StoredFlush, dead: Sequence[DeadLetter]) -> None:
        """See `Log.begin_flush`."""
        id = content_id("begin_flush", table_id, flush, dead)
        self._change("begin_flush", table_id, id, dead, flush=dataclass_members(flush))

    def drop_flush(self, table_id: str, first: int, last: int, write_id: str = "") -> None:
        """See `Log.drop_flush`."""
        self._change("drop_flush", table_id, write_id, first=first, last=last)

    def publish(
        self,
        table_id: str,
        last: int,
        chain: int,
        snapshot_id: int | None,
        dead: Sequence[DeadLetter] = (),
    ) -> None:
        """See `Log.publish`."""
        id = content_id("publish", table_id, last, chain, snapshot_id, dead)
        values = {"last": last, "chain": chain, "snapshot_id": snapshot_id}
        self._change("publish", table_id, id, dead, **values)

    def close_table(self, table_id: str, why: str, write_id: str = "") -> None:
        """See `Log.close_table`."""
        self._change("close_table", table_id, write_id, why=storable_text(why))

    def accept_loss(self, table_id: str, name: str, published: int, write_id: str = "") -> None:
        """See `Log.accept_loss`."""
        self._change("accept_loss", table_id, write_id, name=name, published=published)

    def rename_table(self, table_id: str, name: str, write_id: str = "") -> None:
        """See `Log.rename_table`."""
        self._change("rename_table", table_id, write_id, name=name)

    def drop_table(self, table_id: str, write_id: str = "") -> None:
        """See `Log.drop_table`."""
        self._change("drop_table", table_id, write_id)

    def drop_dead_letter(self, table_id: str, lsn: int) -> None:
        """See `Log.drop_dead_letter`."""
        self._change("drop_dead_letter", table_id, lsn=lsn)

    def _change(
        self,
        change: str,
        table_id: str,
        id: str = "",
        dead: Sequence[DeadLetter] | None = None,
        **values: object,
    ) -> None:
        """Write a change of a table; its dead letters have their bodies as parts."""
        document = {"change": change, "table_id": table_id, **values}
        if dead is not None:
            document["dead"] = letters_document(dead)
        self._write(document, [letter.body for letter in dead or ()], id)

    def forget(self, retention_ms: int) -> None:
        """See `Log.forget`."""
        now_ms = self._time.now_ms()
        until_ms = now_ms - retention_ms
        # An idle log gets few entries.
        rows = self._chain.database.read(
            "SELECT 1 FROM log_keys WHERE at_ms < ? AND off <> ? LIMIT 1",
            *(until_ms, FIRST_OFFSET),
        )
        if rows or now_ms - self._noted_ms > _NOTE_TIME_EVERY_MS:
            self._write_time(until_ms, now_ms)

    def _write_time(self, until_ms: int, now_ms: int) -> None:
        self._write({"change": "forget", "until_ms": until_ms, "now_ms": now_ms})
        self._noted_ms = now_ms

    def tables(self) -> list[LogTable]:
        """See `Log.tables`."""
        return self._chain.inner.tables()

    def read(self, table_id: str, first: int, last: int) -> list[tuple[int, bytes]]:
        """See `Log.read`."""
        return self._chain.inner.read(table_id, first, last)

    def remembered(self, table_id: str, keys: Sequence[str]) -> dict[str, Remembered]:
        """See `Log.remembered`."""
        return self._chain.inner.remembered(table_id, keys)

    def dead_letters(self, table_id: str | None = None) -> list[DeadLetter]:
        """See `Log.dead_letters`."""
        return self._chain.inner.dead_letters(table_id)

    def check(self) -> None:
        """See `Log.check`: it is kept in the warehouse, which the lease is written to."""

    def close(self) -> None:
        """See `Log.close`."""
        now_ms = self._time.now_ms()
        if now_ms - self._noted_ms > _NOTE_TIME_AT_CLOSE_MS:
            with contextlib.suppress(SetupError):  # then labels are kept a little longer
                self._write_time(0, now_ms)
        self._chain.inner.close()
