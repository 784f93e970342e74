"""The state of the coordinator's core, and the small changes that its decisions consist of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from paimon_magics.coordinator.core.effects import (
    CheckTable,
    Effect,
    LookUpCommit,
    Reply,
    RunCommit,
)
from paimon_magics.coordinator.core.values import (
    PENDING,
    Answer,
    Done,
    Limits,
    Pause,
    Phase,
    Stopped,
    TransactionState,
    Waiter,
)
from paimon_magics.planning.commits.publications import Publication

__all__ = [
    "CHECKING",
    "State",
    "aborting",
    "answered",
    "give_slot",
    "next_job",
    "pending_commits",
    "pending_transactions",
    "slot_name",
    "waiting",
    "with_held",
    "without",
    "without_held",
]

CHECKING = ""
"""Stands in `State.running` for a check of a table's publications and what follows from it."""

_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class State:
    """What the core knows.

    `held` has the unfinished transactions by id; finished ones are in the store alone, because
    there may be many. `asks` has, by transaction, the questions that wait for its commit.

    These are by a table's location: `running` has the transaction whose commit is under way, or
    CHECKING, and `queues` the transactions that wait behind it, in the order of asking. `watched`
    has the publications that an outside writer could overwrite, oldest first, `checked_at_ms` the
    time of their last check, `check_asks` the questions that wait for a check, and `overwritten`
    the ids of the publications to publish again, in this order. `stopped` tables take no commits.
    `lines` has the clients that wait for a table that takes one transaction at a time, in the order
    of asking.

    In a `pause` nothing new begins. `forgot_at_ms` is the time of the last deletion of finished
    transactions, `ticked_at_ms` that of the last tick.
    """

    limits: Limits = field(default_factory=Limits)
    held: Mapping[str, TransactionState] = field(default_factory=dict)
    running: Mapping[str, str] = field(default_factory=dict)
    queues: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    asks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    watched: Mapping[str, tuple[Publication, ...]] = field(default_factory=dict)
    checked_at_ms: Mapping[str, int] = field(default_factory=dict)
    check_asks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    slot_asks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    overwritten: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stopped: Mapping[str, Stopped] = field(default_factory=dict)
    pause: Pause | None = None
    lines: Mapping[str, tuple[Waiter, ...]] = field(default_factory=dict)
    forgot_at_ms: int = 0
    ticked_at_ms: int = 0

    @property
    def is_restored(self) -> bool:
        """Whether it has what was stored before the start."""
        return self.ticked_at_ms > 0


def pending_transactions(state: State) -> tuple[TransactionState, ...]:
    """The transactions that may still be committed, the oldest first."""
    held = (one for one in state.held.values() if one.phase in PENDING)
    return tuple(sorted(held, key=lambda one: (one.begun_at_ms, one.id)))


def pending_commits(state: State) -> tuple[Publication, ...]:
    """The commits outside transactions that are being published, or may have been."""
    return tuple(p for watched in state.watched.values() for p in watched if not p.certain)


def aborting(
    held: TransactionState, reason: str, now_ms: int, grace_ms: int = 0
) -> TransactionState:
    """A transaction that is over without a commit; its files are removed after `grace_ms`."""
    return replace(
        held,
        phase=Phase.ABORTING,
        reason=reason,
        expires_at_ms=now_ms + grace_ms,
        ended_at_ms=now_ms,
    )


def next_job(state: State, location: str) -> tuple[State, tuple[Effect, ...]]:
    """Start the next work for a table that has nothing under way any more."""
    running = without(state.running, location)
    if location in state.check_asks:
        return replace(state, running={**running, location: CHECKING}), (CheckTable(location),)
    asks = state.slot_asks.get(location, ())
    if asks:
        return give_slot(replace(state, running=running), location, asks)
    queue = state.queues.get(location, ())
    queues = without(state.queues, location)
    if not queue:
        return replace(state, running=running, queues=queues), ()
    first, *rest = queue
    if rest:
        queues[location] = tuple(rest)
    state = replace(state, running={**running, location: first}, queues=queues)
    # It may have been published before the coordinator was last stopped.
    if state.held[first].phase is Phase.UNCLEAR:
        return state, (LookUpCommit(first),)
    return state, (RunCommit(first),)


def give_slot(
    state: State, location: str, asks: tuple[int, ...]
) -> tuple[State, tuple[Effect, ...]]:
    """Let the first of the statements that ask have a table on which nothing is under way."""
    first, *rest = asks
    slot_asks = without(state.slot_asks, location)
    if rest:
        slot_asks[location] = tuple(rest)
    running = {**state.running, location: slot_name(first)}
    return replace(state, running=running, slot_asks=slot_asks), (Reply(first, Done()),)


def slot_name(ask: int) -> str:
    """What stands in `State.running` for a statement that has a table's slot."""
    return f"slot {ask}"


def answered(state: State, id: str, answer: Answer) -> tuple[State, tuple[Effect, ...]]:
    """Answer the questions that wait for a transaction's commit."""
    replies = tuple(Reply(ask, answer) for ask in state.asks.get(id, ()))
    return replace(state, asks=without(state.asks, id)), replies


def waiting(state: State, id: str, ask: int) -> State:
    """Let one more question wait for a transaction's commit."""
    return replace(state, asks={**state.asks, id: (*state.asks.get(id, ()), ask)})


def with_held(state: State, held: TransactionState) -> State:
    """Put a transaction into the state, or replace it there."""
    return replace(state, held={**state.held, held.id: held})


def without_held(state: State, id: str) -> State:
    """Remove a transaction from the state."""
    return replace(state, held=without(state.held, id))


def without(mapping: Mapping[str, _V], key: str) -> dict[str, _V]:
    """A copy of the mapping without a key, which may be absent."""
    return {k: value for k, value in mapping.items() if k != key}
