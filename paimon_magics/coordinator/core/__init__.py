"""A coordinator's decisions about transactions, as a pure state machine: it does no I/O.

`step(state, event)` returns the next state and the effects that the caller must carry out, in their
order. The result of a slow effect comes back as an event. Time arrives inside events.

A transaction's life:

    ACTIVE ── commit asked ──> COMMITTING ── published ──> COMMITTED
      │                          │   └── no clear answer ──> UNCLEAR ── looked up ──> COMMITTED
      │                          └── refused ──┐               └── certainly absent ──> COMMITTING
      └── abort asked, lease expired ──────────┴──> ABORTING ── files removed ──> ABORTED

A COMMITTING transaction becomes ACTIVE again when only some messages of a compaction conflict: its
owner can commit the others. An UNCLEAR one becomes UNDETERMINED when no look-up can tell its
outcome any more. A COMMITTED one becomes LOST when an outside writer overwrote its snapshot and it
can't be published again.

Invariants: a table has at most one commit under way; the files of a committed transaction are never
removed; an answer is given only after what it says was saved; the same question about a transaction
gets the same answer, also after a restart.
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
    SavePause,
    SavePublication,
    SaveStopped,
)
from paimon_magics.coordinator.core.events import (
    AbortAsked,
    Adopted,
    BeginAsked,
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
    PauseAsked,
    Republished,
    RepublishUnclear,
    Restored,
    ResumeAsked,
    SlotAsked,
    SlotEnded,
    TableDropped,
    TableMoved,
    Ticked,
    TurnAsked,
    UnpauseAsked,
)
from paimon_magics.coordinator.core.lines import WAITER_MS
from paimon_magics.coordinator.core.state import (
    State,
    pending_commits,
    pending_transactions,
)
from paimon_magics.coordinator.core.step import step
from paimon_magics.coordinator.core.ticks import FORGET_EVERY_MS, STALL_MS
from paimon_magics.coordinator.core.values import (
    FINISHED,
    NOWHERE,
    PENDING,
    Aborted,
    Answer,
    Cause,
    Committed,
    Done,
    Gone,
    Halted,
    Limits,
    Mismatch,
    NotCommitted,
    Occupied,
    Opened,
    Origin,
    Overwritten,
    Pause,
    Phase,
    Refusal,
    Stopped,
    Suspended,
    TransactionState,
    Unchecked,
    Undetermined,
    Unknown,
    Waiter,
)

__all__ = [
    "FINISHED",
    "FORGET_EVERY_MS",
    "NOWHERE",
    "PENDING",
    "STALL_MS",
    "WAITER_MS",
    "AbortAsked",
    "Aborted",
    "Adopted",
    "Answer",
    "BeginAsked",
    "Cause",
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
    "Limits",
    "LookUpCommit",
    "Mismatch",
    "NotCommitted",
    "NotPublished",
    "Noted",
    "Occupied",
    "Opened",
    "Origin",
    "Overwritten",
    "Pause",
    "PauseAsked",
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
    "SavePause",
    "SavePublication",
    "SaveStopped",
    "SlotAsked",
    "SlotEnded",
    "State",
    "Stopped",
    "Suspended",
    "TableDropped",
    "TableMoved",
    "Ticked",
    "TransactionState",
    "TurnAsked",
    "Unchecked",
    "Undetermined",
    "Unknown",
    "UnpauseAsked",
    "Waiter",
    "pending_commits",
    "pending_transactions",
    "step",
]
