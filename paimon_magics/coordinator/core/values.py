"""The values of the coordinator's core: transactions, and the answers about them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from paimon_magics.planning.commits.requests import CommitReceipt


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


PENDING = (Phase.ACTIVE, Phase.COMMITTING, Phase.UNCLEAR)
"""The phases of transactions that may still be committed."""

FINISHED = (Phase.COMMITTED, Phase.LOST, Phase.ABORTED, Phase.UNDETERMINED)
"""The phases of a transaction that is over, with nothing left to do for it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in milliseconds.

    - `lease_ms`: a transaction without a heartbeat for this time is aborted.
    - `cleanup_grace_ms`: how long the files of an expired transaction stay whose tasks don't note
      their attempts, so that they can end; and the time between trials to remove files.
    - `receipt_retention_ms`: how long the answer about a finished transaction is kept, with all
      that is needed to publish it again.
    - `watch_every_ms`: how often a table's publications are checked while nobody commits.
    - `expire_every_ms`: how long after a commit the table's snapshots expire; commits in between
      share one run.
    """

    lease_ms: int = 60_000
    cleanup_grace_ms: int = 600_000
    receipt_retention_ms: int = 86_400_000
    watch_every_ms: int = 60_000
    expire_every_ms: int = 10_000


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a transaction comes from, according to its client: "" for unknown parts."""

    notebook: str = ""
    host: str = ""
    engine: str = ""

    def describe(self, owner: str) -> str:
        """The owner and the known parts of the origin, for a message."""
        parts = [owner or "somebody"]
        parts += [f"in {self.notebook}"] if self.notebook else []
        parts += [f"on {self.host}"] if self.host else []
        parts += [f"({self.engine})"] if self.engine else []
        return " ".join(parts)


NOWHERE = Origin()
"""An unknown origin."""


@dataclass(frozen=True, slots=True)
class TransactionState:
    """A transaction as the coordinator knows it; all of it is stored.

    `digest` distinguishes a repeated commit request from a different request. An `exclusive`
    transaction writes dynamic buckets; a table has one exclusive transaction at a time, and others
    wait (see `state`). `expires_at_ms` is the end of the lease while ACTIVE, the time to remove
    files while ABORTING, and the end of retention once finished. `adopted` is the epoch in which
    this coordinator took it over from another coordinator, which opened it and may have been
    interrupted while publishing it. It is 0 for the coordinator's own transactions. `location` is
    the table's location, `table` its name when the transaction began. `ended_at_ms` is when its
    outcome was decided, 0 before. `files` is the number of files that it commits, if its client
    says so. `placed` is the id of the table among whose small inserts it has a place, "" for none.
    Inserts that are acknowledged after its beginning are loaded after its end.
    """

    id: str
    location: str
    phase: Phase = Phase.ACTIVE
    expires_at_ms: int = 0
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
    placed: str = ""

    @property
    def who(self) -> str:
        """The owner and the origin, for a message."""
        return self.origin.describe(self.owner)


@dataclass(frozen=True, slots=True)
class Waiter:
    """A client in line for a table that allows one transaction at a time. `id` will be the
    transaction's id; `seen_ms` is when the client last asked for its turn.
    """

    id: str
    seen_ms: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why and since when a table takes no commits, until an administrator resumes it."""

    reason: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause, in which nothing new begins: who requested it, and since when."""

    by: str
    since_ms: int


# ---------------------------------------------------------------------------------- answers


@dataclass(frozen=True, slots=True)
class Opened:
    """The transaction is open until `expires_at_ms` unless a heartbeat comes before."""

    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class Committed:
    """The receipt of the transaction's commit, for the first request and repeated ones."""

    receipt: CommitReceipt


class Cause(StrEnum):
    """Why a commit was refused: the commit or some buckets of a compaction conflict with another
    commit, the statement was planned on an outdated snapshot, the table could not be written, or
    the request was wrong.
    """

    CONFLICT = "conflict"
    COMPACTION = "compaction"
    OUTDATED = "outdated"
    STORAGE = "storage"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The commit was refused. The transaction is over, unless messages of a compaction are
    `conflicting`: then it can commit the other messages.
    """

    reason: str
    cause: Cause = Cause.CONFLICT
    conflicting: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Aborted:
    """The transaction is over without a commit."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The transaction ended before, by its owner, its lease or an administrator."""

    reason: str


@dataclass(frozen=True, slots=True)
class Undetermined:
    """Whether the transaction is in the table is unknown, and will stay unknown."""

    reason: str


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The transaction is being committed, or was committed, with a different request."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """There is no such transaction, or its answer is no longer kept."""


@dataclass(frozen=True, slots=True)
class NotCommitted:
    """The abort came too late: the commit is under way or has happened."""

    phase: Phase


@dataclass(frozen=True, slots=True)
class Overwritten:
    """The transaction was committed, but an outside writer replaced its snapshot for good."""

    reason: str


@dataclass(frozen=True, slots=True)
class Occupied:
    """The table allows one such transaction at a time: `holder` is open, or `ahead` clients are in
    line before this client.
    """

    holder: TransactionState | None
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class Halted:
    """The table takes no commits until an administrator resumes it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Suspended:
    """Nothing new begins until an administrator resumes the coordinator."""

    pause: Pause


@dataclass(frozen=True, slots=True)
class Unchecked:
    """It can't be determined now whether the published snapshots still exist."""

    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing blocks the request, or it is done and stored."""


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


def reason_of(answer: Answer) -> str:
    """Why a request got another answer than it asked for, for the message of an error."""
    match answer:
        case Refusal() | Gone() | Undetermined() | Overwritten() | Halted() | Unchecked():
            return answer.reason
        case Mismatch():
            return "an earlier request to commit the transaction named other files"
        case Unknown():
            return "there is no such transaction, or it ended long ago"
        case NotCommitted():
            return "its commit is under way or has happened"
        case Occupied():
            return "another transaction is open on the table"
        case Suspended():
            return "the coordinator is paused"
        case Opened() | Committed() | Aborted() | Done():
            return f"the coordinator answered `{type(answer).__name__.lower()}`"
