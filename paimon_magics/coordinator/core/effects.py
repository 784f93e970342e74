"""What the coordinator's core wants to be done, as values; the order of effects is theirs."""

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
    """Delete what is stored of finished transactions and of publications that were kept until
    `until_ms` or before."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class SavePublication:
    """Store the publication, durably, before any effect that follows."""

    publication: Publication
    watched: bool


@dataclass(frozen=True, slots=True)
class DropPublication:
    """Delete what is stored of a publication: what it committed is not in the table."""

    id: str


@dataclass(frozen=True, slots=True)
class ForgetPublications:
    """Delete what is stored of the publications of a table and its branches."""

    location: str


@dataclass(frozen=True, slots=True)
class CutPublications:
    """Delete what is stored of a branch's publications with ids above `above`."""

    location: str
    branch: str | None
    above: int


@dataclass(frozen=True, slots=True)
class SaveStopped:
    """Store that the table is stopped, or (None) that it is not."""

    location: str
    stopped: Stopped | None


@dataclass(frozen=True, slots=True)
class SavePause:
    """Store that nothing new begins, or (None) that it does."""

    pause: Pause | None


@dataclass(frozen=True, slots=True)
class CheckTable:
    """Look at the table's watched publications; CheckFinished or CheckFailed comes back."""

    location: str


@dataclass(frozen=True, slots=True)
class Republish:
    """Publish an overwritten commit again, once it is stored that a run of that begins; Republished
    or RepublishUnclear comes back."""

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
