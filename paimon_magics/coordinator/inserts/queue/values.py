"""The values of one table's small inserts: modes, answers, arrivals, batches, the queue.

See `step` for what happens to them. Objects that are made for each insert are named tuples, which
take a quarter of a frozen dataclass's time to make.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Mode(StrEnum):
    """When an insert is acknowledged: when it is durable, when it is visible, or when it is
    visible in a commit of its own."""

    ASYNC = "async_mode"
    SYNC = "sync_mode"
    OFF = "off_mode"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When the open batch is loaded, and how much may wait. From a backlog of `soft_bytes` on,
    inserts wait until they are visible; beyond `hard_bytes` they are refused.
    """

    rows: int = 1_000_000
    data_bytes: int = 64 * 2**20
    interval_ms: int = 10_000
    soft_bytes: int = 512 * 2**20
    hard_bytes: int = 2**30


class Reason(StrEnum):
    """Why an insert was not accepted, or will never be visible."""

    FULL = "full"  # the backlog: come back later
    LARGE = "large"  # the insert alone exceeds the queue's limit
    BUSY = "busy"  # a statement drops or renames the table: come back later
    CLOSED = "closed"  # an administrator has to look at the table first
    MISMATCH = "mismatch"  # the label stands for another insert
    RANGE = "range"  # an offset of the channel was left out
    BEFORE = "before"  # the channel begins with a later offset
    DEAD = "dead"  # it was durable, and can't be loaded: it is a dead letter
    STORE = "store"  # the store denies access: the insert is durable, but not visible
    LATE = "late"  # its turn did not come in time
    NEW = "new"  # it was sent as a repeat only, and repeats no accepted insert


class Accepted(NamedTuple):
    """The insert is durable, or visible if `mode` says so, in `snapshot_id` if that is known.
    `fallback` is why the mode differs from the requested mode, `trouble` why the last load failed.
    The `lsn` is 0 for a repeated insert whose first answer is no longer kept.
    """

    lsn: int
    mode: Mode
    duplicate: bool = False
    fallback: str = ""
    snapshot_id: int | None = None
    trouble: str = ""


class Flushed(NamedTuple):
    """Everything up to `lsn` is visible."""

    lsn: int
    snapshot_id: int | None = None


@dataclass(frozen=True, slots=True)
class Granted:
    """Everything up to `lsn` is visible, and nothing more becomes visible until the hold ends."""

    lsn: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The insert was not accepted; or, with `Reason.DEAD` or `Reason.STORE`, not loaded."""

    reason: Reason
    message: str
    retry_after_ms: int = 0


Answer = Accepted | Flushed | Granted | Refused


@dataclass(frozen=True, slots=True)
class Known:
    """What the log remembers of an insert with a label, or with a channel and offset."""

    lsn: int
    digest: bytes


class Arrival(NamedTuple):
    """One insert that the validator accepted. `ask` is the number by which it is answered.

    `key` and `offset` are as in `log.records.Record`. `known` is what the log remembers of them.
    `last_offset` is the channel's last offset, None for an unknown channel. `first_offset` is its
    first offset, None also for channels that an older version began. With `is_repeat_only` the
    insert is only answered if an earlier insert had its name: its rows were not checked.
    """

    ask: int
    rows: int
    size_bytes: int
    mode: Mode = Mode.ASYNC
    key: str = ""
    offset: int = -1
    digest: bytes = b""
    known: Known | None = None
    last_offset: int | None = None
    first_offset: int | None = None
    is_repeat_only: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """Records that are loaded together, `first` to `last`; the oldest arrived at `since_ms`."""

    first: int
    last: int
    rows: int
    size_bytes: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Hold:
    """A statement's place: after `lsn`, before all later records. A hold without `drains` is
    granted before a batch that failed; a hold that `passes` is granted before a batch that failed
    several times.
    """

    id: str
    ask: int
    lsn: int
    granted: bool = False
    drains: bool = True
    refuses: bool = False
    passes: bool = False


@dataclass(frozen=True, slots=True)
class Waiter:
    """A caller that gets the answer when everything up to `lsn` is visible."""

    ask: int
    lsn: int
    answer: Accepted | Flushed


@dataclass(frozen=True, slots=True)
class Queue:
    """A table's unpublished inserts; `published` is the last published lsn. `unsettled` while the
    outcome of the batch `flushing` is unknown and nothing is determining it.
    """

    thresholds: Thresholds = field(default_factory=Thresholds)
    next_lsn: int = 1
    published: int = 0
    sealed: tuple[Batch, ...] = ()
    open: Batch | None = None
    flushing: Batch | None = None
    unsettled: bool = False
    failures: int = 0
    retry_at_ms: int = 0
    last_error: str = ""
    holds: tuple[Hold, ...] = ()
    waiting: tuple[tuple[Waiter, ...], ...] = ()
    closed: str = ""
    snapshot_id: int | None = None

    @property
    def acknowledged(self) -> int:
        """The last lsn that was given."""
        return self.next_lsn - 1

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The batches that are not published, in order."""
        begun = (self.flushing,) if self.flushing is not None else ()
        ended = (self.open,) if self.open is not None else ()
        return (*begun, *self.sealed, *ended)


def backlog(queue: Queue) -> tuple[int, int]:
    """Rows and bytes that are not published."""
    batches = queue.batches
    return sum(b.rows for b in batches), sum(b.size_bytes for b in batches)


def is_full(rows: int, size_bytes: int, thresholds: Thresholds) -> bool:
    """Whether a batch of that size is loaded without waiting for more."""
    return rows >= thresholds.rows or size_bytes >= thresholds.data_bytes
