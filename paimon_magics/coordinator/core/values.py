"""What the coordinator's core speaks of: transactions, and the answers about them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from paimon_magics.planning.commits.requests import CommitReceipt

__all__ = [
    "FINISHED",
    "NOWHERE",
    "Aborted",
    "Answer",
    "Cause",
    "Committed",
    "Done",
    "Gone",
    "Halted",
    "Limits",
    "Mismatch",
    "NotCommitted",
    "Occupied",
    "Opened",
    "Origin",
    "Overwritten",
    "Pause",
    "Phase",
    "Refusal",
    "Stopped",
    "Suspended",
    "TransactionState",
    "Unchecked",
    "Undetermined",
    "Unknown",
    "Waiter",
]


class Phase(StrEnum):
    """Where a transaction is in its life; the values are stored."""

    ACTIVE = "active"
    COMMITTING = "committing"
    UNCLEAR = "unclear"
    COMMITTED = "committed"
    LOST = "lost"
    ABORTING = "aborting"
    ABORTED = "aborted"
    UNDETERMINED = "undetermined"


FINISHED = (Phase.COMMITTED, Phase.LOST, Phase.ABORTED, Phase.UNDETERMINED)
"""The phases in which nothing is done for a transaction any more."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in milliseconds.

    - `lease_ms`: without a heartbeat for so long, a transaction is aborted.
    - `cleanup_grace_ms`: how long the files of an expired transaction stay, for its tasks to end.
    - `receipt_retention_ms`: how long the answer to a finished transaction is kept, and all that is
      needed to publish it again.
    - `watch_every_ms`: how often published snapshots are looked at again where nobody commits.
    - `expire_every_ms`: how long after a commit snapshots expire, together with those of the
      commits in between.
    """

    lease_ms: int = 60_000
    cleanup_grace_ms: int = 600_000
    receipt_retention_ms: int = 86_400_000
    watch_every_ms: int = 60_000
    expire_every_ms: int = 10_000


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a transaction comes from, as its client says it: "" for what that does not know."""

    notebook: str = ""
    host: str = ""
    engine: str = ""

    def told(self, owner: str) -> str:
        """Whose it is, for a message: as much of it as is known."""
        parts = [owner or "somebody"]
        parts += [f"in {self.notebook}"] if self.notebook else []
        parts += [f"on {self.host}"] if self.host else []
        parts += [f"({self.engine})"] if self.engine else []
        return " ".join(parts)


NOWHERE = Origin()
"""Of whom nothing is known."""


@dataclass(frozen=True, slots=True)
class TransactionState:
    """A transaction as the coordinator holds it; the whole of it is stored.

    `digest` tells a repeated commit request from another one. An `exclusive` transaction writes
    dynamic buckets; a table has one such transaction at a time (`lines` has who waits).
    `expires_at_ms` is the end of the lease while ACTIVE, the time of removing files while ABORTING,
    and the end of retention after. `adopted`: the epoch in which it was taken on from another
    coordinator, which opened it and may have been cut off while publishing it; 0 for this one's
    own. `location` is where the table lies, `table` what it was called when the transaction began.
    `ended_at_ms`: when its outcome was decided, 0 before. `files`: how many files it commits, where
    its client says so.
    """

    id: str
    location: str
    phase: Phase
    expires_at_ms: int
    owner: str = ""
    digest: str = ""
    receipt: CommitReceipt | None = None
    reason: str = ""
    exclusive: bool = False
    begun_at_ms: int = 0
    adopted: int = 0
    table: str = ""
    origin: Origin = NOWHERE
    ended_at_ms: int = 0
    files: int | None = None

    @property
    def who(self) -> str:
        """Whose it is, for a message."""
        return self.origin.told(self.owner)


@dataclass(frozen=True, slots=True)
class Waiter:
    """Who waits for a table that takes one transaction at a time; `id` will be the transaction's.
    `seen_ms`: when it last said that it still waits."""

    id: str
    seen_ms: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why a table takes no commits until somebody has looked at it."""

    reason: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Who has let nothing new begin, and since when."""

    by: str
    since_ms: int


# ---------------------------------------------------------------------------------- answers


@dataclass(frozen=True, slots=True)
class Opened:
    """The transaction is open until `expires_at_ms` unless a heartbeat comes before."""

    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction's commit, whoever asked first."""

    receipt: CommitReceipt


class Cause(StrEnum):
    """Why a commit was refused: because of another one, because of another one that came after the
    statement was planned, because the table could not be written, or because of what was asked."""

    CONFLICT = "conflict"
    OUTDATED = "outdated"
    STORAGE = "storage"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The commit was refused and the transaction is over."""

    reason: str
    cause: Cause = Cause.CONFLICT


@dataclass(frozen=True, slots=True)
class Aborted:
    """The transaction is over without a commit."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The transaction was ended before: by its owner, by its lease, or by an administrator."""

    reason: str


@dataclass(frozen=True, slots=True)
class Undetermined:
    """Whether the transaction is in the table is unknown, now or later."""

    reason: str


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The transaction is being committed, or was, with other files than these."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """There is no such transaction, or its answer is no longer kept."""


@dataclass(frozen=True, slots=True)
class NotCommitted:
    """An abort that came too late: the commit is under way or has happened."""

    phase: Phase


@dataclass(frozen=True, slots=True)
class Overwritten:
    """The transaction was committed, and a writer outside replaced its snapshot for good."""

    reason: str


@dataclass(frozen=True, slots=True)
class Occupied:
    """The table takes one such transaction at a time: this one is open, or so many wait for their
    turn before who has asked."""

    holder: TransactionState | None
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class Halted:
    """The table takes no commits until somebody has looked at it and lets it go on."""

    reason: str


@dataclass(frozen=True, slots=True)
class Suspended:
    """Nothing new is begun until somebody resumes the coordinator."""

    pause: Pause


@dataclass(frozen=True, slots=True)
class Unchecked:
    """Whether published snapshots are still there could not be found out now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is in the way, or what was asked for is done and stored."""


Answer = (
    Opened
    | Committed
    | Refusal
    | Aborted
    | Gone
    | Undetermined
    | Mismatch
    | Unknown
    | NotCommitted
    | Overwritten
    | Occupied
    | Halted
    | Suspended
    | Unchecked
    | Done
)
