"""The interface of a log of small inserts, whichever store it lies in.

A log belongs to one owner at a time and holds the records of many tables. It knows each table by
its id, whatever its name and place are; a table that is made anew has another one.
When `append` returns, the records and their labels are durable, together. Records are removed only
after `publish` has said that they are in the table.

If the process dies in any of these calls, the next start finds all of its effect or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from paimon_magics.coordinator.inserts.log.records import Segment

__all__ = ["Appended", "DeadLetter", "Keyed", "Log", "LogTable", "Remembered", "StoredFlush"]


@dataclass(frozen=True, slots=True)
class Keyed:
    """What a log remembers of one insert with a label (`offset` -1) or in a channel, which it
    `begins` as the first one that the log takes."""

    key: str
    offset: int
    lsn: int
    digest: bytes
    begins: bool = False


@dataclass(frozen=True, slots=True)
class Appended:
    """Records of one table that become durable together. `name` is the table's present name. The
    log notes its own running time with the labels."""

    table_id: str
    name: str
    segment: Segment
    keys: tuple[Keyed, ...]


@dataclass(frozen=True, slots=True)
class Remembered:
    """What is known of one key: inserts (lsn, digest) by their offsets, and the channel's last and
    first offset, None for a label. The first one is None, too, for a channel that an older version
    began."""

    inserts: Mapping[int, tuple[int, bytes]]
    last_offset: int | None
    first_offset: int | None = None


@dataclass(frozen=True, slots=True)
class StoredFlush:
    """A batch whose commit may have been asked for: its lsns, the chain of its last record, and the
    transaction's id and document."""

    first: int
    last: int
    chain: int
    transaction_id: str
    transaction: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LogTable:
    """A table as the log knows it. `published` is the last record in the table, `chain` that
    record's chain, `acknowledged` the last lsn given. `closed` is why nothing is taken or loaded,
    "" while the table is open. `legacy` is the location and creation time by which an older version
    knew the table, "" for others: snapshots of that time name them."""

    table_id: str
    name: str
    published: int
    chain: int
    acknowledged: int
    snapshot_id: int | None = None
    closed: str = ""
    flush: StoredFlush | None = None
    legacy: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that can't be loaded, with its reason; `body` is a segment of its own."""

    table_id: str
    lsn: int
    why: str
    at_ms: int
    body: bytes


class Log(Protocol):
    """Keeps records. Safe for several threads, of which one appends.

    `id` is unique, `name` is for people. `damage` describes lost records whose tables are unknown,
    "" for none. Every method raises StoreUnavailableError when the store does not work now (nothing
    has happened, unless it is `unclear`), and StoreLostError when the store's contents are not what
    was left there; nothing else.

    After an unclear error the same call settles it, from any thread and as often as it is made: it
    happens once. A `write_id` is needed for that only if other writes to the same table may come
    between: without one the call is carried out again.
    """

    id: str
    name: str
    damage: str

    def append(self, groups: Sequence[Appended]) -> None:
        """Make records durable, all or none. Raises UnstorableError where the store can't hold
        them, StoreLostError where they don't follow the table's last record."""

    def tables(self) -> list[LogTable]:
        """All tables that have or had records."""

    def read(self, table_id: str, first: int, last: int) -> list[tuple[int, bytes]]:
        """The segments that hold the records from `first` to `last`, by their first lsns."""

    def remembered(self, table_id: str, keys: Sequence[str]) -> dict[str, Remembered]:
        """What is known of these keys; unknown keys are left out."""

    def begin_flush(self, table_id: str, flush: StoredFlush, dead: Sequence[DeadLetter]) -> None:
        """Note the flush that is about to be committed. Of its records exactly the `dead` ones are
        left out."""

    def drop_flush(self, table_id: str, first: int, last: int, write_id: str = "") -> None:
        """Drop the noted flush of these records, which certainly was not committed and never will
        be; so none of them is a dead letter."""

    def publish(
        self,
        table_id: str,
        last: int,
        chain: int,
        snapshot_id: int | None,
        dead: Sequence[DeadLetter] = (),
    ) -> None:
        """Note that all records up to `last` are in the table or dead letters, and remove them."""

    def close_table(self, table_id: str, why: str, write_id: str = "") -> None:
        """Close a table until an administrator has looked at it, or ("") open it."""

    def accept_loss(self, table_id: str, name: str, published: int, write_id: str = "") -> None:
        """Begin a table's log anew after `published`; the records that it had are given up."""

    def rename_table(self, table_id: str, name: str, write_id: str = "") -> None:
        """Note a table's new name; nothing for a table that the log does not know."""

    def drop_table(self, table_id: str, write_id: str = "") -> None:
        """Forget a dropped table, what waits for it, and its labels; its dead letters stay."""

    def dead_letters(self, table_id: str | None = None) -> list[DeadLetter]:
        """The dead letters, of one table or of all, oldest first."""

    def drop_dead_letter(self, table_id: str, lsn: int) -> None:
        """Forget a dead letter."""

    def forget(self, retention_ms: int) -> None:
        """Forget the labels and channels that were last used longer ago than that, in the time for
        which the log was open: neither downtime nor a clock that jumps counts. It is to be called
        each minute, since it also notes that time."""

    def check(self) -> None:
        """Write something, so that an error is raised when that does not work; nothing where the
        log has no store of its own."""

    def close(self) -> None:
        """Close the log."""
