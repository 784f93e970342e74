"""Events and effects as values: what happens to the coordinator's core, and what it requests.

If an event is about a transaction that is not in the state, `finished` has it, provided that the
store has it as finished. `ask` is the number of the event's question.
"""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.coordinator.core.values import (
    Answer,
    Cause,
    Pause,
    Stopped,
    TransactionState,
)
from paimon_magics.planning.commits.publications import Publication, PublicationFinding
from paimon_magics.planning.commits.requests import CommitReceipt
from paimon_magics.statements.statement import TableName


@dataclass(frozen=True, slots=True)
class BeginRequested:
    """A client requests a new `transaction`, with a fresh id. An exclusive transaction is the only
    transaction of its table. `waits`: the client is in the table's line, after TurnRequested with
    the same id. `in_pause`: it loads rows that were acknowledged before, so it may begin in a
    pause.
    """

    transaction: TransactionState
    now_ms: int
    ask: int
    in_pause: bool = False
    waits: bool = False


@dataclass(frozen=True, slots=True)
class TurnRequested:
    """A client that will open the transaction `id` asks whether it is its turn, on a table that
    allows one transaction at a time.
    """

    id: str
    location: str
    now_ms: int
    ask: int


@dataclass(frozen=True, slots=True)
class HeartbeatRequested:
    """The owner renews the transaction's lease."""

    id: str
    now_ms: int
    ask: int
    finished: TransactionState | None = None


@dataclass(frozen=True, slots=True)
class CommitRequested:
    """The owner asks to commit. `digest` is that of the whole request, `files` the number of its
    files, if the client says so."""

    id: str
    digest: str
    ask: int
    finished: TransactionState | None = None
    files: int | None = None


@dataclass(frozen=True, slots=True)
class Adopted:
    """The owner brings a `transaction` that another coordinator opened. With the `digest` of
    CommitRequested, it commits the transaction; with None, it ends it.
    """

    transaction: TransactionState
    digest: str | None
    now_ms: int
    ask: int


@dataclass(frozen=True, slots=True)
class CommitPublished:
    """The commit is in the table, by this attempt or an earlier one.

    `findings` are those of the check before it; none of them blocks it. `publication` is None if no
    snapshot was made or nobody can overwrite it.
    """

    id: str
    receipt: CommitReceipt
    now_ms: int
    publication: Publication | None = None
    findings: tuple[PublicationFinding, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """The commit is certainly not in the table and never will be.

    `conflicting` are the positions of a compaction's messages that conflict with other commits:
    the transaction stays open, so that its owner can commit the others.
    """

    id: str
    reason: str
    now_ms: int
    cause: Cause = Cause.CONFLICT
    conflicting: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitUnclear:
    """Whether the commit succeeded is unknown, or a look-up has failed: it must be looked up."""

    id: str


@dataclass(frozen=True, slots=True)
class CommitUndetermined:
    """Whether the commit succeeded is unknown, and no look-up can determine it."""

    id: str
    reason: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class AbortRequested:
    """The owner or an administrator ends the transaction."""

    id: str
    reason: str
    now_ms: int
    ask: int
    finished: TransactionState | None = None


@dataclass(frozen=True, slots=True)
class FilesRemoved:
    """The files that the transaction wrote are removed."""

    id: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class CheckRequested:
    """A client is about to change the table outside transactions: are its publications there?"""

    location: str
    ask: int


@dataclass(frozen=True, slots=True)
class CheckFinished:
    """A table's publications were checked.

    `finished` has the finished transactions whose publications were published again or lost.
    `before` is the commit that was put off for this check and not tried yet, "" for none.
    """

    location: str
    findings: tuple[PublicationFinding, ...]
    now_ms: int
    finished: tuple[TransactionState, ...] = ()
    before: str = ""


@dataclass(frozen=True, slots=True)
class CheckFailed:
    """A table's publications could not be checked now."""

    location: str
    reason: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class Republished:
    """An overwritten commit is in the table again, or can't be, as the finding says."""

    location: str
    finding: PublicationFinding
    now_ms: int
    finished: TransactionState | None = None


@dataclass(frozen=True, slots=True)
class RepublishUnclear:
    """Whether an overwritten commit was published again is unknown."""

    location: str


@dataclass(frozen=True, slots=True)
class Noted:
    """A publication was made outside transactions, or is about to be."""

    publication: Publication
    now_ms: int
    ask: int


@dataclass(frozen=True, slots=True)
class NotPublished:
    """A publication that was announced outside transactions was not made."""

    publication: Publication
    ask: int


@dataclass(frozen=True, slots=True)
class ChainCut:
    """The snapshots above an id are about to be removed from a table's branch, on purpose."""

    location: str
    branch: str | None
    above: int
    ask: int


@dataclass(frozen=True, slots=True)
class SlotRequested:
    """A statement requests that no commit of a table is under way: it is about to change what the
    table's name means. Answered with Done when no commit is under way.
    """

    location: str
    ask: int


@dataclass(frozen=True, slots=True)
class SlotEnded:
    """The statement with that question has ended, or no longer waits."""

    location: str
    slot: int


@dataclass(frozen=True, slots=True)
class TableDropped:
    """A table was dropped."""

    location: str
    ask: int


@dataclass(frozen=True, slots=True)
class TableMoved:
    """A table got another name and location, or its branch `branch` another name."""

    location: str
    to_location: str
    to: TableName
    ask: int
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    """An administrator lets a stopped table take commits again, as it is."""

    location: str
    ask: int


@dataclass(frozen=True, slots=True)
class PauseRequested:
    """An administrator requests that nothing new begins; open work continues."""

    by: str
    now_ms: int
    ask: int


@dataclass(frozen=True, slots=True)
class UnpauseRequested:
    """An administrator lets new things begin again."""

    ask: int


@dataclass(frozen=True, slots=True)
class Restored:
    """The stored state: unfinished transactions, watched publications, stopped tables and the
    pause. It is the first event after a start."""

    transactions: tuple[TransactionState, ...]
    now_ms: int
    watched: tuple[Publication, ...] = ()
    stopped: tuple[tuple[str, Stopped], ...] = ()
    pause: Pause | None = None


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed; comes about once a second. The tasks of the transactions `noting` note their
    attempts, and so find out by themselves that their transaction has ended."""

    now_ms: int
    noting: frozenset[str] = frozenset()


Event = (
    BeginRequested
    | HeartbeatRequested
    | CommitRequested
    | Adopted
    | CommitPublished
    | CommitRefused
    | CommitUnclear
    | CommitUndetermined
    | AbortRequested
    | FilesRemoved
    | CheckRequested
    | CheckFinished
    | CheckFailed
    | Republished
    | RepublishUnclear
    | Noted
    | NotPublished
    | ChainCut
    | SlotRequested
    | SlotEnded
    | TableDropped
    | TableMoved
    | ResumeRequested
    | TurnRequested
    | PauseRequested
    | UnpauseRequested
    | Restored
    | Ticked
)


# Effects: what the coordinator's core wants done, as values, to be carried out in their order.


@dataclass(frozen=True, slots=True)
class Save:
    """Store the transaction, durably, before any effect that follows."""

    transaction: TransactionState


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the question with that number."""

    ask: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class RunCommit:
    """Publish the commit. CommitPublished, CommitRefused or CommitUnclear comes back, or
    CheckFinished when overwritten publications must be dealt with first."""

    id: str


@dataclass(frozen=True, slots=True)
class LookUpCommit:
    """Look for the commit in the table's snapshots, and run it when it is certainly not there. The
    events of RunCommit come back, or CommitUndetermined."""

    id: str


@dataclass(frozen=True, slots=True)
class RemoveFiles:
    """Remove the files that the transaction wrote. FilesRemoved comes back; CommitPublished when
    the table turns out to have the commit; Ticked when the removal must be tried again."""

    id: str


@dataclass(frozen=True, slots=True)
class ForgetFinished:
    """Delete the finished transactions and unwatched publications whose retention ended at
    `until_ms` or before."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class SavePublication:
    """Store the publication, durably, before any effect that follows."""

    publication: Publication
    watched: bool


@dataclass(frozen=True, slots=True)
class DropPublication:
    """Delete a publication from the store: its commit is not in the table."""

    id: str


@dataclass(frozen=True, slots=True)
class ForgetPublications:
    """Delete the publications of a table and its branches from the store."""

    location: str


@dataclass(frozen=True, slots=True)
class CutPublications:
    """Stop watching a branch's publications with snapshot ids above `above`, in the store. They are
    kept, so that their commits are recognized when they are sent again."""

    location: str
    branch: str | None
    above: int


@dataclass(frozen=True, slots=True)
class SaveStopped:
    """Store that the table is stopped, or with None that it is not."""

    location: str
    stopped: Stopped | None


@dataclass(frozen=True, slots=True)
class SavePause:
    """Store the pause, or with None that there is none."""

    pause: Pause | None


@dataclass(frozen=True, slots=True)
class CheckTable:
    """Check the table's watched publications. CheckFinished or CheckFailed comes back."""

    location: str


@dataclass(frozen=True, slots=True)
class Republish:
    """Store that a run begins, then publish an overwritten commit again. Republished or
    RepublishUnclear comes back."""

    publication: Publication


Effect = (
    Save
    | Reply
    | RunCommit
    | LookUpCommit
    | RemoveFiles
    | ForgetFinished
    | SavePublication
    | DropPublication
    | ForgetPublications
    | CutPublications
    | SaveStopped
    | SavePause
    | CheckTable
    | Republish
)
