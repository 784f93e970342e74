"""The interface of a log of small inserts, in any store.

A log belongs to one owner at a time and holds the records of many tables. It identifies each table
by its id, regardless of name and location; a re-created table has another id. When `append`
returns, the records and their labels are durable, together. Records are removed only after
`publish` reports that they are in the table.

If the process dies in any of these calls, the next start finds all of its effect or nothing.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from paimon_magics.coordinator.inserts.log.idempotency_keys import Keyed, Remembered
from paimon_magics.coordinator.inserts.log.records import Segment
from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.service.health import Fact, Noted
from paimon_magics.statements.statement import TableName

_LOOK_MS = 1_000.0


@dataclass(frozen=True, slots=True)
class Appended:
    """Records of one table that become durable together. `name` is the table's present name. The
    log notes its own running time with the labels."""

    table_id: str
    name: str
    segment: Segment
    keys: tuple[Keyed, ...]


@dataclass(frozen=True, slots=True)
class StoredFlush:
    """A batch whose commit may have been requested: its lsns, the chain of its last record, and the
    transaction's id and document.
    """

    first: int
    last: int
    chain: int
    transaction_id: str
    transaction: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LogTable:
    """A table as the log knows it. `published` is the last record in the table, `chain` that
    record's chain, `acknowledged` the last lsn given. `closed` is why no insert is accepted or
    loaded, "" while the table is open. `legacy` is the location and creation time by which an older
    version identified the table, "" for others: snapshots of that time name them.
    """

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
    """Keeps records. Safe for several threads, but only one thread appends.

    `id` is unique, `name` is for people. `damage` describes lost records whose tables are unknown,
    "" for none. Every method raises StoreUnavailableError when the store does not work now (nothing
    has happened, unless it is `unclear`), and StoreLostError when the store's contents are not what
    this log left there. It raises no other errors.

    After an unclear error, repeating the same call settles it, from any thread and any number of
    times: it happens once. This needs a `write_id` only if other writes to the same table may come
    between; without it, the call is carried out again.
    """

    id: str
    name: str
    damage: str

    def append(self, groups: Sequence[Appended]) -> None:
        """Make records durable, all or none. Raises UnstorableError if the store can't hold them,
        StoreLostError if they don't follow the table's last record.
        """

    def tables(self) -> list[LogTable]:
        """All tables that have or had records."""

    def read(self, table_id: str, first: int, last: int) -> list[tuple[int, bytes]]:
        """The segments that hold the records from `first` to `last`, by their first lsns."""

    def remembered(self, table_id: str, keys: Sequence[str]) -> dict[str, Remembered]:
        """What the log remembers of these keys; unknown keys are left out."""

    def begin_flush(self, table_id: str, flush: StoredFlush, dead: Sequence[DeadLetter]) -> None:
        """Note the flush that is about to be committed. Exactly the `dead` records are left out."""

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
        """Restart a table's log after `published`; its previous records are discarded."""

    def rename_table(self, table_id: str, name: str, write_id: str = "") -> None:
        """Note a table's new name. Do nothing for an unknown table."""

    def drop_table(self, table_id: str, write_id: str = "") -> None:
        """Forget a dropped table, its waiting rows and its labels; its dead letters stay."""

    def dead_letters(self, table_id: str | None = None) -> list[DeadLetter]:
        """The dead letters, of one table or of all, oldest first."""

    def drop_dead_letter(self, table_id: str, lsn: int) -> None:
        """Forget a dead letter."""

    def forget(self, retention_ms: int) -> None:
        """Forget the labels and channels that were last used longer ago than that. Only time in
        which the log was open counts: neither downtime nor clock jumps do. Call it each minute,
        since it also notes that time.
        """

    def check(self) -> None:
        """Write something, so that an error is raised if writing fails. Do nothing if the log has
        no store of its own.
        """

    def close(self) -> None:
        """Close the log."""


# Tables' names as a log keeps them.


def stored_name(name: TableName) -> str:
    """A table's name as the log keeps it."""
    return json.dumps([name.database, name.table])


def table_name(stored: str) -> TableName:
    """The table's name, from the log's form."""
    database, table = json.loads(stored)
    return TableName(table, database)


# The space left on the disk that holds a log, noted once a second: no request waits for a disk.


class DiskReserve:
    """Space on the disk of `folder`, of which `reserve_bytes` are reserved for loading waiting
    rows. `holds_log` says whether inserts or commits are stored there. For any thread.
    """

    def __init__(
        self, runtime: Runtime, folder: Path, reserve_bytes: int, *, holds_log: bool = True
    ) -> None:
        self._folder = folder
        self._reserve_bytes = reserve_bytes
        self._holds_log = holds_log

        def free_bytes() -> int:
            return shutil.disk_usage(folder).free

        self._free = Noted(runtime, "disk", free_bytes, _LOOK_MS, free_bytes())

    def stop(self) -> None:
        """Stop checking the disk."""
        self._free.stop()

    @property
    def problem(self) -> str:
        """Why nothing may be written, "" if more may be written."""
        if not self._holds_log:
            return ""
        problem = self._free.problem
        if problem:
            return f"The disk of {self._folder} does not work: {problem}."
        free = self._free.value
        if free <= self._reserve_bytes:
            return f"The disk of {self._folder} is almost full: {free:,} bytes are free."
        return ""

    def fact(self) -> Fact:
        """The fact for the coordinator's health."""
        return Fact("disk_free_bytes", self._free.value, self.problem, blocks=True)


# The ids of a log's writes whose content is unique: a repeat has the same one; the ids by which
# snapshots name records. Pure.


def append_id(groups: Iterable[tuple[str, int, int]]) -> str:
    """The id of an append: of each group the table, the first lsn and the last chain."""
    return content_id("append", *groups)


def queue_id(log_id: str, table_id: str) -> str:
    """The id of a table's records in a log, as snapshots name it."""
    return f"{log_id}-{hashlib.sha256(table_id.encode()).hexdigest()[:8]}"


def content_id(*content: object) -> str:
    """The id of a write with this content."""
    return hashlib.blake2b(repr(content).encode(), digest_size=16).hexdigest()


# A log's own time: the milliseconds for which it was open, regardless of the machine's clock.


class RunningTime:
    """Goes on from `begin_ms` by a steady clock in seconds, time.monotonic if none is given."""

    def __init__(self, begin_ms: int, steady: Callable[[], float] | None = None) -> None:
        self._steady = steady or time.monotonic
        self._begin_ms = begin_ms
        self._begin = self._steady()

    def now_ms(self) -> int:
        """The time now."""
        return self._begin_ms + int((self._steady() - self._begin) * 1000)
