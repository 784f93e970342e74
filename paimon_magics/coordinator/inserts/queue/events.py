"""What may happen to the small inserts of one table, and what has to be done about it: values."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.coordinator.inserts.queue.values import Answer, Arrival, Batch, Thresholds

__all__ = [
    "Append",
    "Arrived",
    "BeginFlush",
    "Bury",
    "Closed",
    "Effect",
    "Event",
    "FlushAsked",
    "FlushFailed",
    "HoldAsked",
    "HoldEnded",
    "Published",
    "Reply",
    "Ticked",
]

# -------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Arrived:
    """Inserts, in their order."""

    arrivals: tuple[Arrival, ...]
    now_ms: int


@dataclass(frozen=True, slots=True)
class FlushAsked:
    """Somebody wants to see what was acknowledged up to now."""

    ask: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class HoldAsked:
    """A statement that is no insert wants its place; it ends by itself at `until_ms`. One that
    does not `drains` only stops what would be loaded next: its place is behind what is visible. One
    that `refuses` has no inserts taken until it ends."""

    id: str
    ask: int
    now_ms: int
    until_ms: int
    drains: bool = True
    refuses: bool = False


@dataclass(frozen=True, slots=True)
class HoldEnded:
    """The statement has ended."""

    id: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class Published:
    """The batch that was being flushed is in the table, but for its `dead` records (lsn, why)."""

    snapshot_id: int | None
    now_ms: int
    dead: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FlushFailed:
    """The batch is certainly not in the table. `permanent` where its rows are the reason, `refused`
    where the store is, which takes nothing until somebody changes something."""

    why: str
    now_ms: int
    permanent: bool = False
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Closed:
    """Nothing is taken or loaded until somebody has looked (`why`), or ("") it is again."""

    why: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed. `thresholds` are the table's of now, where they were read again."""

    now_ms: int
    thresholds: Thresholds | None = None


Event = Arrived | FlushAsked | HoldAsked | HoldEnded | Published | FlushFailed | Closed | Ticked

# ------------------------------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class Append:
    """Make these inserts durable, with their lsns, before any effect that follows."""

    inserts: tuple[tuple[int, Arrival], ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer who asked."""

    ask: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class BeginFlush:
    """Load the batch; Published or FlushFailed comes back."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Bury:
    """Make a dead letter of one record, durably: it counts as published then."""

    lsn: int
    why: str


Effect = Append | Reply | BeginFlush | Bury
