"""What a log of small inserts must do, whichever store it lies in: one interface.

A log belongs to one owner at a time and holds the records of many tables. The `location` by which
it knows each is an identity: a table that is made anew at the same place has another. When `append`
returns, the records and what is remembered of their labels are durable, together. Records go only
after `publish` has said that they are in the table.

If the process dies in any of these, all of that call is found at the next start or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from paimon_magics.coordinator.inserts.log.records import Segment

__all__ = ["Appended", "DeadLetter", "Keyed", "Log", "LogTable", "Remembered", "StoredFlush"]


@dataclass(frozen=True, slots=True)
class Keyed:
    """What is to be remembered of one insert with a label (`offset` -1) or in a channel."""

    key: str
    offset: int
    lsn: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Appended:
    """Records of one table that become durable together. `name` is what the table is called now."""

    location: str
    name: str
    segment: Segment
    keys: tuple[Keyed, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class Remembered:
    """What is known of one key: the inserts by their offsets, and the channel's last offset."""

    inserts: Mapping[int, tuple[int, bytes]]
    last_offset: int | None


@dataclass(frozen=True, slots=True)
class StoredFlush:
    """The batch whose commit may have been asked for: its last lsn and the chain there, and the
    transaction, by its id and as a document."""

    first: int
    last: int
    chain: int
    transaction_id: str
    transaction: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LogTable:
    """A table as the log knows it. `chain` is that of the record `published`, `acknowledged` the
    last lsn that was given, `closed` why nothing is taken or loaded ("": it is). `moving` is the
    name that somebody is giving it, or has given it ("": nobody)."""

    location: str
    name: str
    published: int
    chain: int
    acknowledged: int
    snapshot_id: int | None = None
    closed: str = ""
    flush: StoredFlush | None = None
    moving: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that can't be loaded, as a segment of its own, and why."""

    location: str
    lsn: int
    why: str
    at_ms: int
    body: bytes


class Log(Protocol):
    """Keeps records. Safe for several threads, of which one appends.

    `id` tells it from all others, `name` says to a person which one it is, `damage` what it misses
    of which it is not known whose records it was ("" for nothing). Every method raises
    StoreUnavailableError when the store does not work now (nothing has happened), StoreLostError
    when it is not what was left there.
    """

    id: str
    name: str
    damage: str

    def append(self, groups: Sequence[Appended]) -> None:
        """Make records durable, all or none."""

    def tables(self) -> list[LogTable]:
        """All tables that have records, or had."""

    def read(self, location: str, first: int, last: int) -> list[tuple[int, bytes]]:
        """The segments that hold the records from `first` to `last`, by their first lsns."""

    def remembered(self, location: str, keys: Sequence[str]) -> dict[str, Remembered]:
        """What is known of these keys; those of which nothing is are left out."""

    def begin_flush(self, location: str, flush: StoredFlush, dead: Sequence[DeadLetter]) -> None:
        """Note what is going to be committed, and which of its records, and no others, are left
        out."""

    def drop_flush(self, location: str, first: int, last: int) -> None:
        """The noted flush of these records was certainly not committed, and never will be: none of
        them is a dead letter."""

    def publish(
        self,
        location: str,
        last: int,
        chain: int,
        snapshot_id: int | None,
        dead: Sequence[DeadLetter] = (),
    ) -> None:
        """Everything up to `last` is in the table, or a dead letter: the records may go."""

    def close_table(self, location: str, why: str) -> None:
        """Note that somebody has to look at the table, or ("") has."""

    def accept_loss(self, location: str, name: str, published: int) -> None:
        """Begin a table's log anew after `published`; what was there of records is given up."""

    def begin_move(self, location: str, target: str) -> None:
        """Note the name that a table is being given, or ("") that it keeps its own."""

    def move_table(self, location: str, to_location: str, name: str) -> None:
        """A table has another identity and name: all that is known of it, dead letters included,
        is known by these from now on. Done again it changes nothing."""

    def drop_table(self, location: str) -> None:
        """Forget a table of which nothing waits, and its labels; its dead letters stay."""

    def dead_letters(self, location: str | None = None) -> list[DeadLetter]:
        """The dead letters, of one table or of all, oldest first."""

    def drop_dead_letter(self, location: str, lsn: int) -> None:
        """Forget a dead letter."""

    def forget(self, before_ms: int) -> None:
        """Forget the labels and channels that were last used before a time."""

    def close(self) -> None:
        """Give the log up."""
