"""The log as objects in the warehouse's own store: numbered, each created only if it is absent.

See `interface.Log` for its guarantees and `object_codec` for the form of the objects. Their
combined state is kept in memory, in the same kind of database that other logs have on a disk. A
checkpoint of it is written now and then, and the objects that it replaces are removed.

A coordinator that opens the log creates its next entry. The owner before finds that number taken
when it writes next, and stops before it acknowledges anything.

If the process dies while it writes an entry, the entry is there or not. If a creation gets no clear
answer, it is tried again before anything else is written. Each entry has the id of its change, so
that a change that is asked for again, at any later time, is not written twice. When an entry is
missing or damaged, nobody knows whose records it had: then every table of the log stays closed
until an administrator has looked at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from paimon_magics.coordinator.inserts.log.changes import (
    append_document,
    letters_document,
)
from paimon_magics.coordinator.inserts.log.ids import append_id, content_id
from paimon_magics.coordinator.inserts.log.interface import (
    Appended,
    DeadLetter,
    LogTable,
    Remembered,
    StoredFlush,
)
from paimon_magics.coordinator.inserts.log.object_chain import ObjectChain
from paimon_magics.coordinator.inserts.log.object_folder import ObjectFolder
from paimon_magics.tables.stores.store import Store

__all__ = ["ObjectLog"]


class ObjectLog:
    """A `Log` in a store. `who` names the new owner in the entry that takes the log over."""

    def __init__(self, store: Store, warehouse: str, who: str) -> None:
        folder = ObjectFolder(store, warehouse)
        self.name = folder.name
        self.id = folder.identity()
        self._chain = ObjectChain(folder, who)
        self.damage = self._chain.damage
        self._write = self._chain.write

    # ---- see `Log` ----

    def append(self, groups: Sequence[Appended]) -> None:
        """See `Log.append`."""
        id = append_id([(g.location, g.segment.first, g.segment.chain) for g in groups])
        self._write(append_document(groups), [group.segment.body for group in groups], id)

    def begin_flush(self, location: str, flush: StoredFlush, dead: Sequence[DeadLetter]) -> None:
        """See `Log.begin_flush`."""
        self._write(
            {
                "change": "begin_flush",
                "location": location,
                "flush": asdict(flush),
                "dead": letters_document(dead),
            },
            [one.body for one in dead],
            content_id("begin_flush", location, flush, dead),
        )

    def drop_flush(self, location: str, first: int, last: int, write_id: str = "") -> None:
        """See `Log.drop_flush`."""
        document = {"change": "drop_flush", "location": location, "first": first, "last": last}
        self._write(document, id=write_id)

    def publish(
        self,
        location: str,
        last: int,
        chain: int,
        snapshot_id: int | None,
        dead: Sequence[DeadLetter] = (),
    ) -> None:
        """See `Log.publish`."""
        self._write(
            {
                "change": "publish",
                "location": location,
                "last": last,
                "chain": chain,
                "snapshot_id": snapshot_id,
                "dead": letters_document(dead),
            },
            [one.body for one in dead],
            content_id("publish", location, last, chain, snapshot_id, dead),
        )

    def close_table(self, location: str, why: str, write_id: str = "") -> None:
        """See `Log.close_table`."""
        self._write({"change": "close_table", "location": location, "why": why}, id=write_id)

    def accept_loss(self, location: str, name: str, published: int, write_id: str = "") -> None:
        """See `Log.accept_loss`."""
        self._write(
            {
                "change": "accept_loss",
                "location": location,
                "name": name,
                "published": published,
            },
            id=write_id,
        )

    def begin_move(self, location: str, target: str) -> None:
        """See `Log.begin_move`."""
        self._write({"change": "begin_move", "location": location, "target": target})

    def move_table(self, location: str, to_location: str, name: str) -> None:
        """See `Log.move_table`."""
        self._write(
            {
                "change": "move_table",
                "location": location,
                "to_location": to_location,
                "name": name,
            }
        )

    def drop_table(self, location: str, write_id: str = "") -> None:
        """See `Log.drop_table`."""
        self._write({"change": "drop_table", "location": location}, id=write_id)

    def drop_dead_letter(self, location: str, lsn: int) -> None:
        """See `Log.drop_dead_letter`."""
        self._write({"change": "drop_dead_letter", "location": location, "lsn": lsn})

    def forget(self, before_ms: int) -> None:
        """See `Log.forget`."""
        found = self._chain.database.read(
            "SELECT 1 FROM log_keys WHERE at_ms < ? LIMIT 1", before_ms
        )
        if found:
            self._write({"change": "forget", "before_ms": before_ms})

    def tables(self) -> list[LogTable]:
        """See `Log.tables`."""
        return self._chain.inner.tables()

    def read(self, location: str, first: int, last: int) -> list[tuple[int, bytes]]:
        """See `Log.read`."""
        return self._chain.inner.read(location, first, last)

    def remembered(self, location: str, keys: Sequence[str]) -> dict[str, Remembered]:
        """See `Log.remembered`."""
        return self._chain.inner.remembered(location, keys)

    def dead_letters(self, location: str | None = None) -> list[DeadLetter]:
        """See `Log.dead_letters`."""
        return self._chain.inner.dead_letters(location)

    def close(self) -> None:
        """See `Log.close`."""
        self._chain.inner.close()
