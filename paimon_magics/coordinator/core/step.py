"""`step(state, event)`: the next state, and the effects to carry out."""

from __future__ import annotations

from dataclasses import replace

from paimon_magics.coordinator.core import publications as watching
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
    Effect,
    Event,
    FilesRemoved,
    HeartbeatAsked,
    LookUpCommit,
    Noted,
    NotPublished,
    PauseAsked,
    RemoveFiles,
    Reply,
    Republished,
    RepublishUnclear,
    Restored,
    ResumeAsked,
    RunCommit,
    Save,
    SavePause,
    SlotAsked,
    SlotEnded,
    TableDropped,
    TableMoved,
    Ticked,
    TurnAsked,
    UnpauseAsked,
)
from paimon_magics.coordinator.core.state import (
    State,
    aborting,
    answered,
    give_slot,
    in_turn,
    leave,
    next_job,
    slot_name,
    waiting,
    waits,
    with_held,
    without,
    without_held,
)
from paimon_magics.coordinator.core.ticks import ticked
from paimon_magics.coordinator.core.values import (
    Aborted,
    Answer,
    Committed,
    Done,
    Gone,
    Halted,
    Mismatch,
    NotCommitted,
    Opened,
    Overwritten,
    Pause,
    Phase,
    Refusal,
    Suspended,
    TransactionState,
    Undetermined,
    Unknown,
)

_BY_OWNER = "its owner ended it"


def step(state: State, event: Event) -> tuple[State, tuple[Effect, ...]]:
    """Return the next state, and the effects to carry out in this order."""
    match event:
        case TurnAsked():
            return _ask_turn(state, event)
        case BeginAsked():
            return _begin(state, event)
        case HeartbeatAsked():
            return _heartbeat(state, event)
        case CommitAsked():
            return _ask_commit(state, event)
        case Adopted():
            return _adopt(state, event)
        case CommitPublished():
            return _published(state, event)
        case CommitRefused():
            return _refused(state, event)
        case CommitUnclear(id=id):
            return _unclear(state, id)
        case CommitUndetermined():
            return _undetermined(state, event)
        case AbortAsked():
            return _ask_abort(state, event)
        case FilesRemoved():
            return _files_removed(state, event)
        case CheckAsked():
            return watching.ask_check(state, event)
        case CheckFinished():
            return watching.check_finished(state, event)
        case CheckFailed():
            return watching.check_failed(state, event)
        case Republished():
            return watching.republished(state, event)
        case RepublishUnclear():
            return watching.republish_unclear(state, event)
        case Noted():
            return watching.note(state, event)
        case NotPublished():
            return watching.not_published(state, event)
        case ChainCut():
            return watching.cut_chain(state, event)
        case SlotAsked() | SlotEnded():
            return slot_step(state, event)
        case TableDropped():
            return watching.drop_table(state, event)
        case TableMoved():
            return watching.move_table(state, event)
        case ResumeAsked():
            return watching.resume(state, event)
        case PauseAsked():
            return _pause(state, event)
        case UnpauseAsked(ask=ask):
            return replace(state, pause=None), (SavePause(None), Reply(ask, Done()))
        case Restored():
            return restored(state, event)
        case Ticked(now_ms=now_ms):
            return ticked(state, now_ms)


def _begin(state: State, event: BeginAsked) -> tuple[State, tuple[Effect, ...]]:
    if event.id in state.held:
        return state, (Reply(event.ask, _answer_about(state.held[event.id])),)
    if state.pause is not None and not event.in_pause:
        return state, (Reply(event.ask, Suspended(state.pause)),)
    stopped = state.stopped.get(event.location)
    if stopped is not None:
        return state, (Reply(event.ask, Halted(stopped.reason)),)
    if event.exclusive:
        waiter = event.id if event.waits else ""
        state, occupied = in_turn(state, event.location, waiter, event.now_ms)
        if occupied is not None:
            return state, (Reply(event.ask, occupied),)
        state = leave(state, event.id)
    opened = TransactionState(
        id=event.id,
        location=event.location,
        phase=Phase.ACTIVE,
        owner=event.owner,
        expires_at_ms=event.now_ms + state.limits.lease_ms,
        exclusive=event.exclusive,
        begun_at_ms=event.now_ms,
        origin=event.origin,
        table=event.table,
        placed=event.placed,
    )
    return with_held(state, opened), (Save(opened), Reply(event.ask, Opened(opened.expires_at_ms)))


def _ask_turn(state: State, event: TurnAsked) -> tuple[State, tuple[Effect, ...]]:
    """Answer Done when it is the client's turn: the base snapshot may be read after that."""
    state, occupied = in_turn(state, event.location, event.id, event.now_ms)
    return state, (Reply(event.ask, Done() if occupied is None else occupied),)


def _pause(state: State, event: PauseAsked) -> tuple[State, tuple[Effect, ...]]:
    """Let nothing new begin; what has begun may be committed. A repeated pause keeps the first."""
    if state.pause is not None:
        return state, (Reply(event.ask, Suspended(state.pause)),)
    pause = Pause(event.by, event.now_ms)
    return replace(state, pause=pause), (SavePause(pause), Reply(event.ask, Suspended(pause)))


def _heartbeat(state: State, event: HeartbeatAsked) -> tuple[State, tuple[Effect, ...]]:
    held = state.held.get(event.id, event.finished)
    if held is None:
        return state, (Reply(event.ask, Unknown()),)
    if held.phase is not Phase.ACTIVE:
        return state, (Reply(event.ask, _answer_about(held)),)
    # Not saved: after a restart every open transaction gets a full lease anyway.
    renewed = replace(held, expires_at_ms=event.now_ms + state.limits.lease_ms)
    return with_held(state, renewed), (Reply(event.ask, Opened(renewed.expires_at_ms)),)


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
            return waiting(state, event.id, event.ask), ()
        case _:
            return state, (Reply(event.ask, _answer_about(held)),)
    stopped = state.stopped.get(held.location)
    if stopped is not None:
        return state, (Reply(event.ask, Halted(stopped.reason)),)
    committing = replace(held, phase=Phase.COMMITTING, digest=event.digest, files=event.files)
    state = waiting(with_held(state, committing), event.id, event.ask)
    if held.location in state.running:
        queue = (*state.queues.get(held.location, ()), event.id)
        return replace(state, queues={**state.queues, held.location: queue}), (Save(committing),)
    state = replace(state, running={**state.running, held.location: event.id})
    return state, (Save(committing), RunCommit(event.id))


def _adopt(state: State, event: Adopted) -> tuple[State, tuple[Effect, ...]]:
    """Take a transaction over. The coordinator that opened it may have published it, or may still
    do so: the commit is looked up before it is run."""
    id, location, now_ms, ask = event.id, event.location, event.now_ms, event.ask
    if event.digest is None:
        if id in state.held:
            return _ask_abort(state, AbortAsked(id, _BY_OWNER, now_ms, ask))
        ended = TransactionState(
            id,
            location,
            Phase.ABORTING,
            now_ms,
            event.owner,
            reason=_BY_OWNER,
            begun_at_ms=now_ms,
            adopted=event.epoch,
            origin=event.origin,
            table=event.table,
            ended_at_ms=now_ms,
        )
        state = with_held(state, ended)
        return state, (Save(ended), Reply(ask, Aborted()), RemoveFiles(id))
    if id in state.held:
        return _ask_commit(state, CommitAsked(id, event.digest, ask, files=event.files))
    stopped = state.stopped.get(location)
    if stopped is not None:
        return state, (Reply(ask, Halted(stopped.reason)),)
    unclear = TransactionState(
        id,
        location,
        Phase.UNCLEAR,
        now_ms,
        event.owner,
        event.digest,
        exclusive=event.exclusive,
        begun_at_ms=now_ms,
        adopted=event.epoch,
        origin=event.origin,
        table=event.table,
        files=event.files,
    )
    state = waiting(with_held(state, unclear), id, ask)
    if location in state.running:
        queue = (*state.queues.get(location, ()), id)
        return replace(state, queues={**state.queues, location: queue}), (Save(unclear),)
    state = replace(state, running={**state.running, location: id})
    return state, (Save(unclear), LookUpCommit(id))


def _published(state: State, event: CommitPublished) -> tuple[State, tuple[Effect, ...]]:
    held = state.held[event.id]
    committed = replace(
        held,
        phase=Phase.COMMITTED,
        receipt=event.receipt,
        expires_at_ms=event.now_ms + state.limits.receipt_retention_ms,
        ended_at_ms=event.now_ms,
    )
    state, watched = watching.published(
        state, held.location, event.publication, event.findings, event.now_ms
    )
    state, replies = answered(without_held(state, event.id), event.id, Committed(event.receipt))
    if state.running.get(held.location) != event.id:
        # The removal of its files found it in the table: another coordinator published it.
        return state, (Save(committed), *watched, *replies)
    state, following = next_job(state, held.location)
    return state, (Save(committed), *watched, *replies, *following)


def _refused(state: State, event: CommitRefused) -> tuple[State, tuple[Effect, ...]]:
    held = state.held[event.id]
    refusal = Refusal(event.reason, event.cause, event.conflicting)
    if event.conflicting:
        expires_at_ms = event.now_ms + state.limits.lease_ms
        reopened = replace(held, phase=Phase.ACTIVE, digest="", expires_at_ms=expires_at_ms)
        state, replies = answered(with_held(state, reopened), event.id, refusal)
        state, following = next_job(state, held.location)
        return state, (Save(reopened), *replies, *following)
    ended = aborting(held, event.reason, event.now_ms)
    state, replies = answered(with_held(state, ended), event.id, refusal)
    state, following = next_job(state, held.location)
    return state, (Save(ended), *replies, RemoveFiles(event.id), *following)


def _unclear(state: State, id: str) -> tuple[State, tuple[Effect, ...]]:
    # The table stays busy: nothing may be published before the outcome is known.
    unclear = replace(state.held[id], phase=Phase.UNCLEAR)
    return with_held(state, unclear), (Save(unclear), LookUpCommit(id))


def _undetermined(state: State, event: CommitUndetermined) -> tuple[State, tuple[Effect, ...]]:
    held = replace(
        state.held[event.id],
        phase=Phase.UNDETERMINED,
        reason=event.reason,
        expires_at_ms=event.now_ms + state.limits.receipt_retention_ms,
        ended_at_ms=event.now_ms,
    )
    answer = Undetermined(event.reason)
    state, replies = answered(without_held(state, event.id), event.id, answer)
    state, following = next_job(state, held.location)
    return state, (Save(held), *replies, *following)


def _ask_abort(state: State, event: AbortAsked) -> tuple[State, tuple[Effect, ...]]:
    held = state.held.get(event.id, event.finished)
    if held is None:
        answer = Aborted() if waits(state, event.id) else Unknown()
        return leave(state, event.id), (Reply(event.ask, answer),)
    match held.phase:
        case Phase.ACTIVE:
            ended = aborting(held, event.reason, event.now_ms)
            state = with_held(state, ended)
            return state, (Save(ended), Reply(event.ask, Aborted()), RemoveFiles(event.id))
        case Phase.ABORTING | Phase.ABORTED:
            return state, (Reply(event.ask, Aborted()),)
        case Phase.UNDETERMINED:
            return state, (Reply(event.ask, Undetermined(held.reason)),)
        case phase:
            return state, (Reply(event.ask, NotCommitted(phase)),)


def _files_removed(state: State, event: FilesRemoved) -> tuple[State, tuple[Effect, ...]]:
    held = state.held.get(event.id)
    if held is None or held.phase is not Phase.ABORTING:
        return state, ()  # a second removal, which began before the first had ended
    aborted = replace(
        held,
        phase=Phase.ABORTED,
        expires_at_ms=event.now_ms + state.limits.receipt_retention_ms,
    )
    return without_held(state, event.id), (Save(aborted),)


def _answer_about(held: TransactionState) -> Answer:
    match held.phase:
        case Phase.ACTIVE:
            return Opened(held.expires_at_ms)
        case Phase.COMMITTED:
            assert held.receipt is not None
            return Committed(held.receipt)
        case Phase.COMMITTING | Phase.UNCLEAR:
            return NotCommitted(held.phase)
        case Phase.LOST:
            return Overwritten(held.reason)
        case Phase.ABORTING | Phase.ABORTED:
            return Gone(held.reason)
        case Phase.UNDETERMINED:
            return Undetermined(held.reason)


# The slots of tables: a statement that drops or renames a table has it for itself.
#
# It gets the table once no commit is under way there, nor unclear; commits wait until it has ended.


def slot_step(state: State, event: SlotAsked | SlotEnded) -> tuple[State, tuple[Effect, ...]]:
    """Return the next state and the effects of a statement that asks for a table, or has ended."""
    match event:
        case SlotAsked():
            return _ask_slot(state, event)
        case SlotEnded():
            return _end_slot(state, event)


def _ask_slot(state: State, event: SlotAsked) -> tuple[State, tuple[Effect, ...]]:
    asks = (*state.slot_asks.get(event.location, ()), event.ask)
    if event.location not in state.running:
        return give_slot(state, event.location, asks)
    return replace(state, slot_asks={**state.slot_asks, event.location: asks}), ()


def _end_slot(state: State, event: SlotEnded) -> tuple[State, tuple[Effect, ...]]:
    """Go on with what waits for the table; or with others, where the statement waited itself."""
    location = event.location
    if state.running.get(location) == slot_name(event.slot):
        return next_job(state, location)
    asks = tuple(ask for ask in state.slot_asks.get(location, ()) if ask != event.slot)
    others = without(state.slot_asks, location)
    return replace(state, slot_asks={**others, location: asks} if asks else others), ()


# The state of a coordinator that starts again, made from the store.


def restored(state: State, event: Restored) -> tuple[State, tuple[Effect, ...]]:
    """Continue what was under way: look commits up, and give open transactions a full lease."""
    effects: list[Effect] = []
    state = replace(
        state, stopped=dict(event.stopped), pause=event.pause, ticked_at_ms=event.now_ms
    )
    for p in event.watched:
        watched = (*state.watched.get(p.location, ()), p)
        state = replace(state, watched={**state.watched, p.location: watched})
    for held in event.held:
        match held.phase:
            case Phase.ACTIVE:
                # Its owner could not renew it while the coordinator was down.
                lease = replace(held, expires_at_ms=event.now_ms + state.limits.lease_ms)
                state = with_held(state, lease)
            case Phase.COMMITTING | Phase.UNCLEAR:
                unclear = replace(held, phase=Phase.UNCLEAR)
                state = with_held(state, unclear)
                if held.location in state.running:
                    queue = (*state.queues.get(held.location, ()), held.id)
                    state = replace(state, queues={**state.queues, held.location: queue})
                else:
                    state = replace(state, running={**state.running, held.location: held.id})
                    effects.append(LookUpCommit(held.id))
            case Phase.ABORTING:
                # Its time is by the clock of before, which may have been ahead.
                due_ms = event.now_ms + state.limits.cleanup_grace_ms
                due = replace(held, expires_at_ms=min(held.expires_at_ms, due_ms))
                state = with_held(state, due)
            case Phase.COMMITTED | Phase.LOST | Phase.ABORTED | Phase.UNDETERMINED:
                raise ValueError(f"transaction {held.id} is finished: nothing is to be restored")
    return state, tuple(effects)
