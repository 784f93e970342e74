"""The state of the coordinator's core, and the small changes that its decisions consist of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from paimon_magics.coordinator.core.events import (
    CheckTable,
    Effect,
    LookUpCommit,
    Reply,
    RunCommit,
    Save,
)
from paimon_magics.coordinator.core.values import (
    PENDING,
    Answer,
    Done,
    Limits,
    Occupied,
    Pause,
    Phase,
    Stopped,
    TransactionState,
    Waiter,
)
from paimon_magics.planning.commits.publications import Publication

CHECKING = ""
"""The value in `State.running` for a check of a table's publications and its consequences."""

_V = TypeVar("_V")

WAITER_MS = 5_000
"""How long a silent waiter keeps its place, in milliseconds: many times the pause between two of
its questions, but short for clients behind a waiter that died.
"""


@dataclass(frozen=True, slots=True)
class State:
    """What the core knows.

    `transactions` has the unfinished transactions by id; finished transactions are only in the
    store, because there may be many. `asks` has, by transaction, the questions that wait for its
    commit.

    These are by a table's location: `running` has the transaction whose commit is under way, or
    CHECKING, and `queues` the transactions that wait behind it, in the order of asking. `watched`
    has the publications that an outside writer could overwrite, oldest first, `checked_at_ms` the
    time of their last check, `check_asks` the questions that wait for a check, and `overwritten`
    the ids of the publications to publish again, in this order. `stopped` tables take no commits.
    `lines` has the clients that wait for a table that allows one transaction at a time, in the
    order of asking.

    In a `pause` nothing new begins. `forgot_at_ms` is the time of the last deletion of finished
    transactions, `ticked_at_ms` that of the last tick.
    """

    limits: Limits = field(default_factory=Limits)
    transactions: Mapping[str, TransactionState] = field(default_factory=dict)
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
        """Whether the state from before the start is loaded."""
        return self.ticked_at_ms > 0


Step = tuple[State, tuple[Effect, ...]]
"""The next state, and the effects to carry out in this order."""


def pending_transactions(state: State) -> tuple[TransactionState, ...]:
    """The transactions that may still be committed, the oldest first."""
    pending = (t for t in state.transactions.values() if t.phase in PENDING)
    return tuple(sorted(pending, key=lambda t: (t.begun_at_ms, t.id)))


def pending_commits(state: State) -> tuple[Publication, ...]:
    """The commits outside transactions that are being published, or may have been published."""
    return tuple(p for watched in state.watched.values() for p in watched if not p.certain)


def aborting(
    transaction: TransactionState, reason: str, now_ms: int, grace_ms: int = 0
) -> TransactionState:
    """A transaction that is over without a commit; its files are removed after `grace_ms`."""
    return replace(
        transaction,
        phase=Phase.ABORTING,
        reason=reason,
        expires_at_ms=now_ms + grace_ms,
        ended_at_ms=now_ms,
    )


def next_job(state: State, location: str) -> Step:
    """Start the next work for a table that has nothing under way."""
    state = replace(state, running=without(state.running, location))
    if location in state.check_asks:
        return run_check(state, location)
    asks = state.slot_asks.get(location, ())
    if asks:
        return give_slot(state, location, asks)
    queue = state.queues.get(location, ())
    if not queue:
        return state, ()
    first, *rest = queue
    state = replace(
        state,
        running={**state.running, location: first},
        queues=updated(state.queues, location, tuple(rest)),
    )
    # It may have been published before the coordinator was last stopped.
    if state.transactions[first].phase is Phase.UNCLEAR:
        return state, (LookUpCommit(first),)
    return state, (RunCommit(first),)


def run_or_queue(state: State, transaction: TransactionState) -> Step:
    """Run a transaction's commit, or look it up, once it is its turn on its table."""
    location = transaction.location
    queue = (*state.queues.get(location, ()), transaction.id)
    state = replace(with_transaction(state, transaction), queues={**state.queues, location: queue})
    return (state, ()) if location in state.running else next_job(state, location)


def run_check(state: State, location: str) -> Step:
    """Check a table's publications, on which nothing else is under way."""
    return replace(state, running={**state.running, location: CHECKING}), (CheckTable(location),)


def give_slot(state: State, location: str, asks: tuple[int, ...]) -> Step:
    """Give a table on which nothing is under way to the first statement that asks for it."""
    first, *rest = asks
    running = {**state.running, location: slot_name(first)}
    slot_asks = updated(state.slot_asks, location, tuple(rest))
    return replace(state, running=running, slot_asks=slot_asks), (Reply(first, Done()),)


def slot_name(ask: int) -> str:
    """The value in `State.running` for a statement that has a table's slot."""
    return f"slot {ask}"


def decided(state: State, transaction: TransactionState, answer: Answer, *work: Effect) -> Step:
    """Save what was decided about a commit that was under way, answer the questions that wait for
    it, do the `work` that follows, and continue with the table.
    """
    state, replies = answered(state, transaction.id, answer)
    state, following = next_job(state, transaction.location)
    return state, (Save(transaction), *replies, *work, *following)


def answered(state: State, id: str, answer: Answer) -> Step:
    """Answer the questions that wait for a transaction's commit."""
    replies = tuple(Reply(ask, answer) for ask in state.asks.get(id, ()))
    return replace(state, asks=without(state.asks, id)), replies


def waiting(state: State, id: str, ask: int) -> State:
    """Let one more question wait for a transaction's commit."""
    return replace(state, asks={**state.asks, id: (*state.asks.get(id, ()), ask)})


def with_transaction(state: State, transaction: TransactionState) -> State:
    """Put a transaction into the state, or replace it there."""
    return replace(state, transactions={**state.transactions, transaction.id: transaction})


def without_transaction(state: State, id: str) -> State:
    """Remove a transaction from the state."""
    return replace(state, transactions=without(state.transactions, id))


def updated(mapping: Mapping[str, _V], key: str, value: _V) -> dict[str, _V]:
    """A copy of the mapping with a value, or without the key for an empty value."""
    return {**mapping, key: value} if value else without(mapping, key)


def without(mapping: Mapping[str, _V], key: str) -> dict[str, _V]:
    """A copy of the mapping without a key, which may be absent."""
    return {k: value for k, value in mapping.items() if k != key}


# Which transaction compacts which buckets, so that no two transactions compact the same bucket.
# Claims are advisory: two transactions that compact the same bucket do no harm, since the later
# commit is refused. So claims are not stored, and are lost when the coordinator restarts.


@dataclass(frozen=True, slots=True)
class CompactedBucket:
    """A bucket of a table at a location, or of its `branch`. `partition` is the serialised row of
    the partition's values, as in manifests."""

    location: str
    branch: str | None
    partition: bytes
    bucket: int


Claims = Mapping[CompactedBucket, str]
"""The id of the transaction that compacts each bucket."""


def still_claimed(claims: Claims, open_ids: Collection[str]) -> dict[CompactedBucket, str]:
    """The claims of transactions that are still open: other claims ended with their
    transactions."""
    return {bucket: id for bucket, id in claims.items() if id in open_ids}


def claimed(
    claims: Claims, wanted: Sequence[CompactedBucket], id: str
) -> tuple[dict[CompactedBucket, str], tuple[int, ...]]:
    """Give a transaction the buckets among `wanted` that no other transaction has. Return the new
    claims, and the positions of the buckets that it may compact.
    """
    free = tuple(at for at, bucket in enumerate(wanted) if claims.get(bucket, id) == id)
    return {**claims, **{wanted[at]: id for at in free}}, free


# The line of clients that wait for a table that allows one transaction at a time. They take turns
# in the order in which they came. A waiter keeps its place by asking again; a waiter that has been
# silent for a while loses it. The line is not stored: after a restart the waiters ask again.


def in_turn(state: State, location: str, id: str, now_ms: int) -> tuple[State, Occupied | None]:
    """Return None when it is the turn of `id`, otherwise what comes before it. From now on `id` is
    in the line, and keeps its place by asking again.

    Without an `id` ("") nobody is put in line: the answer is None only while no exclusive
    transaction is open on the table.
    """
    holder = _holder(state, location)
    if not id:
        return state, None if holder is None else Occupied(holder, 0)
    line = [
        w for w in state.lines.get(location, ()) if w.seen_ms > now_ms - WAITER_MS or w.id == id
    ]
    if not any(waiter.id == id for waiter in line):
        line.append(Waiter(id, now_ms))
    line = [replace(w, seen_ms=now_ms) if w.id == id else w for w in line]
    state = replace(state, lines={**state.lines, location: tuple(line)})
    ahead = next(position for position, waiter in enumerate(line) if waiter.id == id)
    if holder is None and not ahead:
        return state, None
    return state, Occupied(holder, ahead)


def waits(state: State, id: str) -> bool:
    """Whether this id is in a line."""
    return any(waiter.id == id for line in state.lines.values() for waiter in line)


def leave(state: State, id: str) -> State:
    """Remove this id from its line."""
    lines = state.lines
    for location, line in lines.items():
        left = tuple(waiter for waiter in line if waiter.id != id)
        if len(left) != len(line):
            return replace(state, lines=updated(lines, location, left))
    return state


def _holder(state: State, location: str) -> TransactionState | None:
    """The exclusive transaction of a table that may still commit; None if there is none."""
    ended = (Phase.ABORTING, Phase.ABORTED)
    return next(
        (
            h
            for h in state.transactions.values()
            if h.exclusive and h.location == location and h.phase not in ended
        ),
        None,
    )
