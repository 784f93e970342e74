"""What the coordinator's core speaks of: transactions, answers, events and effects, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from paimon_magics.planning.commits import CommitReceipt

__all__ = [
    "AbortAsked",
    "Aborted",
    "Answer",
    "Begun",
    "CommitAsked",
    "CommitPublished",
    "CommitRefused",
    "CommitUnclear",
    "Committed",
    "Effect",
    "Event",
    "FilesRemoved",
    "ForgetFinished",
    "Gone",
    "HeartbeatAsked",
    "Held",
    "Limits",
    "LookUpCommit",
    "Mismatch",
    "NotCommitted",
    "Opened",
    "Phase",
    "Refusal",
    "RemoveFiles",
    "Reply",
    "Restored",
    "RunCommit",
    "Save",
    "Ticked",
    "Unknown",
]


class Phase(StrEnum):
    """Where a transaction is in its life; the values are stored."""

    ACTIVE = "active"
    COMMITTING = "committing"
    UNCLEAR = "unclear"
    COMMITTED = "committed"
    ABORTING = "aborting"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in milliseconds.

    - `lease_ms`: without a heartbeat for so long, a transaction is aborted.
    - `cleanup_grace_ms`: how long the files of an expired transaction stay, for its tasks to end.
    - `receipt_retention_ms`: how long the answer to a finished transaction is kept.
    """

    lease_ms: int = 60_000
    cleanup_grace_ms: int = 600_000
    receipt_retention_ms: int = 86_400_000


@dataclass(frozen=True, slots=True)
class Held:
    """A transaction as the coordinator holds it; the whole of it is stored.

    `digest` tells a repeated commit request from another one. `expires_at_ms` is the end of the
    lease while ACTIVE, the time of removing files while ABORTING, and the end of retention after.
    """

    id: str
    table: str
    phase: Phase
    expires_at_ms: int
    owner: str = ""
    digest: str = ""
    receipt: CommitReceipt | None = None
    reason: str = ""


# ---------------------------------------------------------------------------------- answers


@dataclass(frozen=True, slots=True)
class Opened:
    """The transaction is open until `expires_at_ms` unless a heartbeat comes before."""

    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction's commit, whoever asked first."""

    receipt: CommitReceipt


@dataclass(frozen=True, slots=True)
class Refusal:
    """The commit was refused and the transaction is over."""

    reason: str


@dataclass(frozen=True, slots=True)
class Aborted:
    """The transaction is over without a commit."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The transaction was ended before: by its owner, by its lease, or by an administrator."""

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


Answer = Opened | Committed | Refusal | Aborted | Gone | Mismatch | Unknown | NotCommitted


# ----------------------------------------------------------------------------------- events
# An event about a transaction that the state does not hold brings along what is stored of it, if
# that is finished: `finished`.


@dataclass(frozen=True, slots=True)
class Begun:
    """Somebody asks for a new transaction; `id` is fresh."""

    id: str
    table: str
    owner: str
    now_ms: int
    ask: int


@dataclass(frozen=True, slots=True)
class HeartbeatAsked:
    """The owner says that it is alive."""

    id: str
    now_ms: int
    ask: int
    finished: Held | None = None


@dataclass(frozen=True, slots=True)
class CommitAsked:
    """The owner hands over its files; `digest` is of everything that is to be committed."""

    id: str
    digest: str
    ask: int
    finished: Held | None = None


@dataclass(frozen=True, slots=True)
class CommitPublished:
    """The commit is in the table, by this attempt or an earlier one."""

    id: str
    receipt: CommitReceipt
    now_ms: int


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """The commit is certainly not in the table and never will be."""

    id: str
    reason: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class CommitUnclear:
    """Neither success nor failure is known, or a look-up did not succeed either."""

    id: str


@dataclass(frozen=True, slots=True)
class AbortAsked:
    """The owner or an administrator ends the transaction."""

    id: str
    reason: str
    now_ms: int
    ask: int
    finished: Held | None = None


@dataclass(frozen=True, slots=True)
class FilesRemoved:
    """Nothing that the transaction wrote is left."""

    id: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class Restored:
    """What was not finished when the coordinator last stopped; the first event of its life."""

    held: tuple[Held, ...]
    now_ms: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed; comes at least once a second."""

    now_ms: int


Event = (
    Begun
    | HeartbeatAsked
    | CommitAsked
    | CommitPublished
    | CommitRefused
    | CommitUnclear
    | AbortAsked
    | FilesRemoved
    | Restored
    | Ticked
)


# ---------------------------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class Save:
    """Store the transaction, durably, before any effect that follows."""

    held: Held


@dataclass(frozen=True, slots=True)
class Reply:
    """Give the answer to whoever asked with that number."""

    ask: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class RunCommit:
    """Publish; CommitPublished, CommitRefused or CommitUnclear comes back."""

    id: str


@dataclass(frozen=True, slots=True)
class LookUpCommit:
    """Look for the commit in the table's snapshots, and run it when it is certainly not there;
    the same events as for RunCommit come back."""

    id: str


@dataclass(frozen=True, slots=True)
class RemoveFiles:
    """Remove the files that the transaction wrote; FilesRemoved comes back."""

    id: str


@dataclass(frozen=True, slots=True)
class ForgetFinished:
    """Delete what is stored of finished transactions that were kept until `until_ms` or before."""

    until_ms: int


Effect = Save | Reply | RunCommit | LookUpCommit | RemoveFiles | ForgetFinished
