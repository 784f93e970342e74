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

from paimon_magics.coordinator.core.stepping import FORGET_EVERY_MS, State, step
from paimon_magics.coordinator.core.values import (
    AbortAsked,
    Aborted,
    Answer,
    Begun,
    CommitAsked,
    CommitPublished,
    CommitRefused,
    Committed,
    CommitUnclear,
    Effect,
    Event,
    FilesRemoved,
    ForgetFinished,
    Gone,
    HeartbeatAsked,
    Held,
    Limits,
    LookUpCommit,
    Mismatch,
    NotCommitted,
    Opened,
    Phase,
    Refusal,
    RemoveFiles,
    Reply,
    Restored,
    RunCommit,
    Save,
    Ticked,
    Unknown,
)

__all__ = [
    "FORGET_EVERY_MS",
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
    "State",
    "Ticked",
    "Unknown",
    "step",
]
