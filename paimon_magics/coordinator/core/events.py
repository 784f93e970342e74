"""What happens to the coordinator's core, as values.

An event about a transaction that the state does not hold brings along what is stored of it, if that
is finished: `finished`.
"""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.coordinator.core.values import (
    NOWHERE,
    Cause,
    Origin,
    Pause,
    Stopped,
    TransactionState,
)
from paimon_magics.planning.commits.publications import Publication, PublicationFinding
from paimon_magics.planning.commits.requests import CommitReceipt
from paimon_magics.statements.statement import TableName

__all__ = [
    "AbortAsked",
    "Adopted",
    "BeginAsked",
    "ChainCut",
    "CheckAsked",
    "CheckFailed",
    "CheckFinished",
    "CommitAsked",
    "CommitPublished",
    "CommitRefused",
    "CommitUnclear",
    "CommitUndetermined",
    "Event",
    "FilesRemoved",
    "HeartbeatAsked",
    "NotPublished",
    "Noted",
    "PauseAsked",
    "RepublishUnclear",
    "Republished",
    "Restored",
    "ResumeAsked",
    "TableDropped",
    "TableMoved",
    "Ticked",
    "TurnAsked",
    "UnpauseAsked",
]


@dataclass(frozen=True, slots=True)
class BeginAsked:
    """Somebody asks for a new transaction; `id` is fresh. `exclusive` where the table takes one at
    a time; who `waits` was told by TurnAsked that it is their turn. `in_pause`: it belongs to what
    was acknowledged before, and may begin in a pause."""

    id: str
    location: str
    owner: str
    now_ms: int
    ask: int
    exclusive: bool = False
    origin: Origin = NOWHERE
    table: str = ""
    in_pause: bool = False
    waits: bool = False


@dataclass(frozen=True, slots=True)
class TurnAsked:
    """Who is to open the transaction `id` asks whether it is their turn on a table that takes one
    at a time."""

    id: str
    location: str
    now_ms: int
    ask: int


@dataclass(frozen=True, slots=True)
class HeartbeatAsked:
    """The owner says that it is alive."""

    id: str
    now_ms: int
    ask: int
    finished: TransactionState | None = None


@dataclass(frozen=True, slots=True)
class CommitAsked:
    """The owner hands over its files; `digest` is of everything that is to be committed, `files`
    the number of its files, where that is told."""

    id: str
    digest: str
    ask: int
    finished: TransactionState | None = None
    files: int | None = None


@dataclass(frozen=True, slots=True)
class Adopted:
    """The owner brings a transaction that a coordinator before this one has opened: to commit it,
    with the digest as in CommitAsked, or (None) to end it. `epoch` is that of this coordinator."""

    id: str
    location: str
    owner: str
    digest: str | None
    epoch: int
    now_ms: int
    ask: int
    exclusive: bool = False
    origin: Origin = NOWHERE
    table: str = ""
    files: int | None = None


@dataclass(frozen=True, slots=True)
class CommitPublished:
    """The commit is in the table, by this attempt or an earlier one.

    `findings` are of the publications that were looked at before; none of them is in the way.
    `publication` is None where nothing was published or nobody can write over it.
    """

    id: str
    receipt: CommitReceipt
    now_ms: int
    publication: Publication | None = None
    findings: tuple[PublicationFinding, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """The commit is certainly not in the table and never will be."""

    id: str
    reason: str
    now_ms: int
    cause: Cause = Cause.CONFLICT


@dataclass(frozen=True, slots=True)
class CommitUnclear:
    """Neither success nor failure is known, or a look-up did not succeed either."""

    id: str


@dataclass(frozen=True, slots=True)
class CommitUndetermined:
    """Neither success nor failure is known, and no look-up will tell."""

    id: str
    reason: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class AbortAsked:
    """The owner or an administrator ends the transaction."""

    id: str
    reason: str
    now_ms: int
    ask: int
    finished: TransactionState | None = None


@dataclass(frozen=True, slots=True)
class FilesRemoved:
    """Nothing that the transaction wrote is left."""

    id: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class CheckAsked:
    """Somebody outside transactions is about to change the table: are its publications there?"""

    location: str
    ask: int


@dataclass(frozen=True, slots=True)
class CheckFinished:
    """A table's publications were looked at.

    `finished` are the transactions, which are finished, whose publications were not left as they
    were. `before` is the commit that this was done for, which has not been tried then.
    """

    location: str
    findings: tuple[PublicationFinding, ...]
    now_ms: int
    finished: tuple[TransactionState, ...] = ()
    before: str = ""


@dataclass(frozen=True, slots=True)
class CheckFailed:
    """A table's publications could not be looked at, for now."""

    location: str
    reason: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class Republished:
    """An overwritten commit is in the table again, or can't be: the finding tells."""

    location: str
    finding: PublicationFinding
    now_ms: int
    finished: TransactionState | None = None


@dataclass(frozen=True, slots=True)
class RepublishUnclear:
    """Whether an overwritten commit was published again is not known."""

    location: str


@dataclass(frozen=True, slots=True)
class Noted:
    """Something was published, or is going to be, outside transactions."""

    publication: Publication
    now_ms: int
    ask: int


@dataclass(frozen=True, slots=True)
class NotPublished:
    """What was going to be published outside transactions was not."""

    publication: Publication
    ask: int


@dataclass(frozen=True, slots=True)
class ChainCut:
    """Somebody removed the snapshots above an id from a table's branch, on purpose."""

    location: str
    branch: str | None
    above: int
    ask: int


@dataclass(frozen=True, slots=True)
class TableDropped:
    """A table is no more."""

    location: str
    ask: int


@dataclass(frozen=True, slots=True)
class TableMoved:
    """A table has another name and place, or one of its branches (`branch`) another name."""

    location: str
    to_location: str
    to: TableName
    ask: int
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class ResumeAsked:
    """An administrator has looked at a stopped table, and lets it go on as it is."""

    location: str
    ask: int


@dataclass(frozen=True, slots=True)
class PauseAsked:
    """An administrator wants nothing new to begin; what has begun goes on."""

    by: str
    now_ms: int
    ask: int


@dataclass(frozen=True, slots=True)
class UnpauseAsked:
    """An administrator lets new things begin again."""

    ask: int


@dataclass(frozen=True, slots=True)
class Restored:
    """What was not finished when the coordinator last stopped, which publications were watched,
    which tables stopped, and whether it was paused; the first event of its life."""

    held: tuple[TransactionState, ...]
    now_ms: int
    watched: tuple[Publication, ...] = ()
    stopped: tuple[tuple[str, Stopped], ...] = ()
    pause: Pause | None = None


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed; comes at least once a second."""

    now_ms: int


Event = (
    BeginAsked
    | HeartbeatAsked
    | CommitAsked
    | Adopted
    | CommitPublished
    | CommitRefused
    | CommitUnclear
    | CommitUndetermined
    | AbortAsked
    | FilesRemoved
    | CheckAsked
    | CheckFinished
    | CheckFailed
    | Republished
    | RepublishUnclear
    | Noted
    | NotPublished
    | ChainCut
    | TableDropped
    | TableMoved
    | ResumeAsked
    | TurnAsked
    | PauseAsked
    | UnpauseAsked
    | Restored
    | Ticked
)
