"""The events of one table's queue, and the effects that follow from them, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from paimon_magics.coordinator.inserts.queue.values import Answer, Arrival, Batch, Thresholds

# -------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Arrived:
    """Inserts, in their order."""

    arrivals: tuple[Arrival, ...]
    now_ms: int


@dataclass(frozen=True, slots=True)
class FlushRequested:
    """A request to make everything acknowledged until now visible."""

    ask: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class HoldRequested:
    """A statement other than a small insert asks for its place, which lasts until HoldEnded. A hold
    that `drains` waits until everything acknowledged is loaded; other holds wait only for the batch
    being loaded, and stop the next batch. While a hold `refuses`, inserts are refused until it
    ends. A hold that `passes` does not wait for rows whose loading failed several times.
    """

    id: str
    ask: int
    now_ms: int
    drains: bool = True
    refuses: bool = False
    passes: bool = False


@dataclass(frozen=True, slots=True)
class HoldEnded:
    """The statement has ended, or has waited too long."""

    id: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class Published:
    """The batch that was being flushed is in the table, except its `dead` records (lsn, why)."""

    snapshot_id: int | None
    now_ms: int
    dead: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FlushFailed:
    """The batch is certainly not in the table. `permanent` if its rows are the reason, `refused` if
    the store denies access, which lasts until somebody changes something, `large` if loading it
    took too long.
    """

    why: str
    now_ms: int
    permanent: bool = False
    refused: bool = False
    large: bool = False


@dataclass(frozen=True, slots=True)
class FlushUnclear:
    """Whether the batch is in the table, or noted as a dead letter, is not known yet."""

    why: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The table is closed, for the reason `why`: no insert is accepted or loaded. With "" it is
    open again.
    """

    why: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed. `thresholds` are the table's present thresholds, if they were read again."""

    now_ms: int
    thresholds: Thresholds | None = None


Event = (
    Arrived
    | FlushRequested
    | HoldRequested
    | HoldEnded
    | Published
    | FlushFailed
    | FlushUnclear
    | Closed
    | Ticked
)

# ------------------------------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class Append:
    """Make these inserts durable, with their lsns, before any effect that follows."""

    inserts: tuple[tuple[int, Arrival], ...]


class Reply(NamedTuple):
    """Answer the caller with the ask number `ask`."""

    ask: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class BeginFlush:
    """Load the batch; Published, FlushFailed or FlushUnclear comes back."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class SettleFlush:
    """Determine the outcome of the batch; the same events come back."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Bury:
    """Make the only record of a batch a dead letter, durably; Published or FlushUnclear comes
    back."""

    lsn: int
    why: str


Effect = Append | Reply | BeginFlush | SettleFlush | Bury
