"""What a coordinator decides about transactions, without doing anything: a pure state machine.

`step(state, event)` gives the next state and the effects that a shell must carry out, in their
order; an effect that takes time comes back as an event. Time arrives inside events.

A transaction's life:

    ACTIVE ── commit asked ──> COMMITTING ── published ──> COMMITTED
      │                          │   └── no clear answer ──> UNCLEAR ── looked up ──> COMMITTED
      │                          └── refused ──┐               └── certainly absent ──> COMMITTING
      └── abort asked, lease expired ──────────┴──> ABORTING ── files removed ──> ABORTED

Invariants: per table at most one commit is under way; a committed transaction never leaves that
state, and its files are never removed; an answer is given only after what it says was saved; the
same question about a transaction gets the same answer, also after a restart.
"""

from __future__ import annotations

from paimon_magics.coordinator.core.effects import (
    CheckTable,
    CutPublications,
    DropPublication,
    Effect,
    ForgetFinished,
    ForgetPublications,
    LookUpCommit,
    RemoveFiles,
    Reply,
    Republish,
    RunCommit,
    Save,
    SavePublication,
    SaveStopped,
)
from paimon_magics.coordinator.core.events import (
    AbortAsked,
    Adopted,
    Begun,
    ChainCut,
    CheckAsked,
    CheckFailed,
    CheckFinished,
    CommitAsked,
    CommitPublished,
    CommitRefused,
    CommitUnclear,
    CommitUndetermined,
    Event,
    FilesRemoved,
    HeartbeatAsked,
    Noted,
    NotPublished,
    Republished,
    RepublishUnclear,
    Restored,
    ResumeAsked,
    TableDropped,
    TableMoved,
    Ticked,
)
from paimon_magics.coordinator.core.state import (
    State,
)
from paimon_magics.coordinator.core.stepping import (
    FORGET_EVERY_MS,
    STALL_MS,
    step,
)
from paimon_magics.coordinator.core.values import (
    FINISHED,
    Aborted,
    Answer,
    Committed,
    Done,
    Gone,
    Halted,
    Held,
    Limits,
    Mismatch,
    NotCommitted,
    Occupied,
    Opened,
    Overwritten,
    Phase,
    Refusal,
    Stopped,
    Unchecked,
    Undetermined,
    Unknown,
)

__all__ = [
    "FINISHED",
    "FORGET_EVERY_MS",
    "STALL_MS",
    "AbortAsked",
    "Aborted",
    "Adopted",
    "Answer",
    "Begun",
    "ChainCut",
    "CheckAsked",
    "CheckFailed",
    "CheckFinished",
    "CheckTable",
    "CommitAsked",
    "CommitPublished",
    "CommitRefused",
    "CommitUnclear",
    "CommitUndetermined",
    "Committed",
    "CutPublications",
    "Done",
    "DropPublication",
    "Effect",
    "Event",
    "FilesRemoved",
    "ForgetFinished",
    "ForgetPublications",
    "Gone",
    "Halted",
    "HeartbeatAsked",
    "Held",
    "Limits",
    "LookUpCommit",
    "Mismatch",
    "NotCommitted",
    "NotPublished",
    "Noted",
    "Occupied",
    "Opened",
    "Overwritten",
    "Phase",
    "Refusal",
    "RemoveFiles",
    "Reply",
    "Republish",
    "RepublishUnclear",
    "Republished",
    "Restored",
    "ResumeAsked",
    "RunCommit",
    "Save",
    "SavePublication",
    "SaveStopped",
    "State",
    "Stopped",
    "TableDropped",
    "TableMoved",
    "Ticked",
    "Unchecked",
    "Undetermined",
    "Unknown",
    "step",
]
