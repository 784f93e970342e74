"""Effects: what the coordinator's core wants done, as values, to be carried out in their order."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.coordinator.core.values import Answer, Pause, Stopped, TransactionState
from paimon_magics.planning.commits.publications import Publication

__all__ = [
    "CheckTable",
    "CutPublications",
    "DropPublication",
    "Effect",
    "ForgetFinished",
    "ForgetPublications",
    "LookUpCommit",
    "RemoveFiles",
    "Reply",
    "Republish",
    "RunCommit",
    "Save",
    "SavePause",
    "SavePublication",
    "SaveStopped",
]


@dataclass(frozen=True, slots=True)
class Save:
    """Store the transaction, durably, before any effect that follows."""

    held: TransactionState


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
    """Delete a branch's publications with snapshot ids above `above` from the store."""

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
