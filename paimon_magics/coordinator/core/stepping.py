"""`step(state, event)`: the next state, and what must be done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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

__all__ = ["FORGET_EVERY_MS", "State", "step"]

FORGET_EVERY_MS = 60_000
"""How often finished transactions are looked through for those that need not be kept longer."""


@dataclass(frozen=True, slots=True)
class State:
    """All transactions that are not finished; those are kept in the store alone, however many.

    `running` has the transaction whose commit is under way for each busy table, `queues` those
    that wait behind it in the order of asking, `asks` who waits for a transaction's commit.
    """

    limits: Limits = field(default_factory=Limits)
    held: Mapping[str, Held] = field(default_factory=dict)
    running: Mapping[str, str] = field(default_factory=dict)
    queues: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    asks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    forgot_at_ms: int = 0


def step(state: State, event: Event) -> tuple[State, tuple[Effect, ...]]:
    """The next state, and what must be done, in this order."""
    match event:
        case Begun():
            return _begin(state, event)
        case HeartbeatAsked():
            return _heartbeat(state, event)
        case CommitAsked():
            return _ask_commit(state, event)
        case CommitPublished():
            return _published(state, event)
        case CommitRefused():
            return _refused(state, event)
        case CommitUnclear(id=id):
            return _unclear(state, id)
        case AbortAsked():
            return _ask_abort(state, event)
        case FilesRemoved():
            return _files_removed(state, event)
        case Restored():
            return _restored(state, event)
        case Ticked(now_ms=now_ms):
            return _ticked(state, now_ms)


def _begin(state: State, event: Begun) -> tuple[State, tuple[Effect, ...]]:
    if event.id in state.held:
        return state, (Reply(event.ask, _answer_about(state.held[event.id])),)
    opened = Held(
        id=event.id,
        table=event.table,
        phase=Phase.ACTIVE,
        owner=event.owner,
        expires_at_ms=event.now_ms + state.limits.lease_ms,
    )
    return _with(state, opened), (Save(opened), Reply(event.ask, Opened(opened.expires_at_ms)))


def _heartbeat(state: State, event: HeartbeatAsked) -> tuple[State, tuple[Effect, ...]]:
    held = state.held.get(event.id, event.finished)
    if held is None:
        return state, (Reply(event.ask, Unknown()),)
    if held.phase is not Phase.ACTIVE:
        return state, (Reply(event.ask, _answer_about(held)),)
    # Not saved: after a restart every open transaction gets a whole lease anyway.
    renewed = replace(held, expires_at_ms=event.now_ms + state.limits.lease_ms)
    return _with(state, renewed), (Reply(event.ask, Opened(renewed.expires_at_ms)),)


def _ask_commit(state: State, event: CommitAsked) -> tuple[State, tuple[Effect, ...]]:
    held = state.held.get(event.id, event.finished)
    if held is None:
        return state, (Reply(event.ask, Unknown()),)
    if held.digest and held.digest != event.digest:
        return state, (Reply(event.ask, Mismatch()),)
    match held.phase:
        case Phase.ACTIVE:
            pass
        case Phase.COMMITTING | Phase.UNCLEAR:
            return _waiting(state, event.id, event.ask), ()
        case _:
            return state, (Reply(event.ask, _answer_about(held)),)
    committing = replace(held, phase=Phase.COMMITTING, digest=event.digest)
    state = _waiting(_with(state, committing), event.id, event.ask)
    if held.table in state.running:
        queue = (*state.queues.get(held.table, ()), event.id)
        return replace(state, queues={**state.queues, held.table: queue}), (Save(committing),)
    state = replace(state, running={**state.running, held.table: event.id})
    return state, (Save(committing), RunCommit(event.id))


def _published(state: State, event: CommitPublished) -> tuple[State, tuple[Effect, ...]]:
    held = state.held[event.id]
    committed = replace(
        held,
        phase=Phase.COMMITTED,
        receipt=event.receipt,
        expires_at_ms=event.now_ms + state.limits.receipt_retention_ms,
    )
    state, replies = _answered(_without(state, event.id), event.id, Committed(event.receipt))
    state, following = _next(state, held.table)
    return state, (Save(committed), *replies, *following)


def _refused(state: State, event: CommitRefused) -> tuple[State, tuple[Effect, ...]]:
    held = state.held[event.id]
    aborting = replace(held, phase=Phase.ABORTING, reason=event.reason, expires_at_ms=event.now_ms)
    state, replies = _answered(_with(state, aborting), event.id, Refusal(event.reason))
    state, following = _next(state, held.table)
    return state, (Save(aborting), *replies, RemoveFiles(event.id), *following)


def _unclear(state: State, id: str) -> tuple[State, tuple[Effect, ...]]:
    # The table stays busy: nothing may be published before the outcome is known.
    unclear = replace(state.held[id], phase=Phase.UNCLEAR)
    return _with(state, unclear), (Save(unclear), LookUpCommit(id))


def _ask_abort(state: State, event: AbortAsked) -> tuple[State, tuple[Effect, ...]]:
    held = state.held.get(event.id, event.finished)
    if held is None:
        return state, (Reply(event.ask, Unknown()),)
    match held.phase:
        case Phase.ACTIVE:
            aborting = replace(
                held, phase=Phase.ABORTING, reason=event.reason, expires_at_ms=event.now_ms
            )
            state = _with(state, aborting)
            return state, (Save(aborting), Reply(event.ask, Aborted()), RemoveFiles(event.id))
        case Phase.ABORTING | Phase.ABORTED:
            return state, (Reply(event.ask, Aborted()),)
        case phase:
            return state, (Reply(event.ask, NotCommitted(phase)),)


def _files_removed(state: State, event: FilesRemoved) -> tuple[State, tuple[Effect, ...]]:
    held = state.held.get(event.id)
    if held is None or held.phase is not Phase.ABORTING:
        return state, ()  # removed twice: the second removal began before the first had ended
    aborted = replace(
        held,
        phase=Phase.ABORTED,
        expires_at_ms=event.now_ms + state.limits.receipt_retention_ms,
    )
    return _without(state, event.id), (Save(aborted),)


def _restored(state: State, event: Restored) -> tuple[State, tuple[Effect, ...]]:
    effects: list[Effect] = []
    for held in event.held:
        match held.phase:
            case Phase.ACTIVE:
                # Its owner could not renew it while nobody was there to ask.
                lease = replace(held, expires_at_ms=event.now_ms + state.limits.lease_ms)
                state = _with(state, lease)
            case Phase.COMMITTING | Phase.UNCLEAR:
                unclear = replace(held, phase=Phase.UNCLEAR)
                state = _with(state, unclear)
                if held.table in state.running:
                    queue = (*state.queues.get(held.table, ()), held.id)
                    state = replace(state, queues={**state.queues, held.table: queue})
                else:
                    state = replace(state, running={**state.running, held.table: held.id})
                    effects.append(LookUpCommit(held.id))
            case Phase.ABORTING:
                state = _with(state, held)
            case Phase.COMMITTED | Phase.ABORTED:
                raise ValueError(f"transaction {held.id} is finished: nothing is to be restored")
    return state, tuple(effects)


def _ticked(state: State, now_ms: int) -> tuple[State, tuple[Effect, ...]]:
    effects: list[Effect] = []
    for held in tuple(state.held.values()):
        if held.expires_at_ms > now_ms:
            continue
        match held.phase:
            case Phase.ACTIVE:
                expired = replace(
                    held,
                    phase=Phase.ABORTING,
                    reason="its lease expired",
                    expires_at_ms=now_ms + state.limits.cleanup_grace_ms,
                )
                state = _with(state, expired)
                effects.append(Save(expired))
            case Phase.ABORTING:
                # Again and again until it succeeds, once in a grace period.
                later = replace(held, expires_at_ms=now_ms + state.limits.cleanup_grace_ms)
                state = _with(state, later)
                effects.append(RemoveFiles(held.id))
            case _:
                pass
    if now_ms - state.forgot_at_ms >= FORGET_EVERY_MS:
        state = replace(state, forgot_at_ms=now_ms)
        effects.append(ForgetFinished(now_ms))
    return state, tuple(effects)


def _next(state: State, table: str) -> tuple[State, tuple[Effect, ...]]:
    """Start the next commit of a table whose commit has ended."""
    queue = state.queues.get(table, ())
    queues = {key: value for key, value in state.queues.items() if key != table}
    running = {key: value for key, value in state.running.items() if key != table}
    if not queue:
        return replace(state, running=running, queues=queues), ()
    first, *rest = queue
    if rest:
        queues[table] = tuple(rest)
    state = replace(state, running={**running, table: first}, queues=queues)
    # One that was waiting when the coordinator stopped may have been published before that.
    if state.held[first].phase is Phase.UNCLEAR:
        return state, (LookUpCommit(first),)
    return state, (RunCommit(first),)


def _answered(state: State, id: str, answer: Answer) -> tuple[State, tuple[Effect, ...]]:
    asks = {key: value for key, value in state.asks.items() if key != id}
    replies = tuple(Reply(ask, answer) for ask in state.asks.get(id, ()))
    return replace(state, asks=asks), replies


def _answer_about(held: Held) -> Answer:
    match held.phase:
        case Phase.ACTIVE:
            return Opened(held.expires_at_ms)
        case Phase.COMMITTED:
            assert held.receipt is not None
            return Committed(held.receipt)
        case Phase.COMMITTING | Phase.UNCLEAR:
            return NotCommitted(held.phase)
        case Phase.ABORTING | Phase.ABORTED:
            return Gone(held.reason)


def _waiting(state: State, id: str, ask: int) -> State:
    return replace(state, asks={**state.asks, id: (*state.asks.get(id, ()), ask)})


def _with(state: State, held: Held) -> State:
    return replace(state, held={**state.held, held.id: held})


def _without(state: State, id: str) -> State:
    return replace(state, held={key: value for key, value in state.held.items() if key != id})
