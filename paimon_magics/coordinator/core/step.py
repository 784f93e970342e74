"""`step(state, event)`: the next state, and the effects to carry out."""

from __future__ import annotations

from dataclasses import replace

from paimon_magics.coordinator.core import publications as watching
from paimon_magics.coordinator.core.events import (
    AbortRequested,
    Adopted,
    BeginRequested,
    ChainCut,
    CheckFailed,
    CheckFinished,
    CheckRequested,
    CommitPublished,
    CommitRefused,
    CommitRequested,
    CommitUnclear,
    CommitUndetermined,
    Effect,
    Event,
    FilesRemoved,
    ForgetFinished,
    HeartbeatRequested,
    LookUpCommit,
    Noted,
    NotPublished,
    PauseRequested,
    RemoveFiles,
    Reply,
    Republished,
    RepublishUnclear,
    Restored,
    ResumeRequested,
    Save,
    SavePause,
    SlotEnded,
    SlotRequested,
    TableDropped,
    TableMoved,
    Ticked,
    TurnRequested,
    UnpauseRequested,
)
from paimon_magics.coordinator.core.state import (
    State,
    Step,
    aborting,
    answered,
    decided,
    give_slot,
    in_turn,
    leave,
    next_job,
    run_or_queue,
    slot_name,
    updated,
    waiting,
    waits,
    with_transaction,
    without_transaction,
)
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

STALL_MS = 5_000
"""More milliseconds than this between two ticks mean that the process stood still or the clock was
set."""

FORGET_EVERY_MS = 60_000
"""How often finished transactions are deleted after their retention, in milliseconds."""


def step(state: State, event: Event) -> Step:
    """Return the next state, and the effects to carry out in this order."""
    match event:
        case TurnRequested():
            return _ask_turn(state, event)
        case BeginRequested():
            return _begin(state, event)
        case HeartbeatRequested():
            return _heartbeat(state, event)
        case CommitRequested():
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
        case AbortRequested():
            return _ask_abort(state, event)
        case FilesRemoved():
            return _files_removed(state, event)
        case CheckRequested():
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
        case SlotRequested():
            return _ask_slot(state, event)
        case SlotEnded():
            return _end_slot(state, event)
        case TableDropped():
            return watching.drop_table(state, event)
        case TableMoved():
            return watching.move_table(state, event)
        case ResumeRequested():
            return watching.resume(state, event)
        case PauseRequested():
            return _pause(state, event)
        case UnpauseRequested(ask=ask):
            return replace(state, pause=None), (SavePause(None), Reply(ask, Done()))
        case Restored():
            return _restored(state, event)
        case Ticked(now_ms=now_ms, noting=noting):
            return _ticked(state, now_ms, noting)


def _begin(state: State, event: BeginRequested) -> Step:
    transaction, ask = event.transaction, event.ask
    if transaction.id in state.transactions:
        return state, (Reply(ask, _answer_about(state.transactions[transaction.id])),)
    if state.pause is not None and not event.in_pause:
        return state, (Reply(ask, Suspended(state.pause)),)
    stopped = state.stopped.get(transaction.location)
    if stopped is not None:
        return state, (Reply(ask, Halted(stopped.reason)),)
    if transaction.exclusive:
        waiter = transaction.id if event.waits else ""
        state, occupied = in_turn(state, transaction.location, waiter, event.now_ms)
        if occupied is not None:
            return state, (Reply(ask, occupied),)
        state = leave(state, transaction.id)
    expires_at_ms = event.now_ms + state.limits.lease_ms
    opened = replace(transaction, expires_at_ms=expires_at_ms, begun_at_ms=event.now_ms)
    return with_transaction(state, opened), (Save(opened), Reply(ask, Opened(expires_at_ms)))


def _ask_turn(state: State, event: TurnRequested) -> Step:
    """Answer Done when it is the client's turn: the base snapshot may be read after that."""
    state, occupied = in_turn(state, event.location, event.id, event.now_ms)
    return state, (Reply(event.ask, Done() if occupied is None else occupied),)


def _pause(state: State, event: PauseRequested) -> Step:
    """Let nothing new begin; open transactions may be committed. A repeated pause keeps the
    first."""
    if state.pause is not None:
        return state, (Reply(event.ask, Suspended(state.pause)),)
    pause = Pause(event.by, event.now_ms)
    return replace(state, pause=pause), (SavePause(pause), Reply(event.ask, Suspended(pause)))


def _heartbeat(state: State, event: HeartbeatRequested) -> Step:
    transaction = state.transactions.get(event.id, event.finished)
    if transaction is None:
        return state, (Reply(event.ask, Unknown()),)
    if transaction.phase is not Phase.ACTIVE:
        return state, (Reply(event.ask, _answer_about(transaction)),)
    # Not saved: after a restart every open transaction gets a full lease anyway.
    renewed = replace(transaction, expires_at_ms=event.now_ms + state.limits.lease_ms)
    return with_transaction(state, renewed), (Reply(event.ask, Opened(renewed.expires_at_ms)),)


def _ask_commit(state: State, event: CommitRequested) -> Step:
    transaction = state.transactions.get(event.id, event.finished)
    if transaction is None:
        return state, (Reply(event.ask, Unknown()),)
    if transaction.digest and transaction.digest != event.digest:
        return state, (Reply(event.ask, Mismatch()),)
    match transaction.phase:
        case Phase.ACTIVE:
            pass
        case Phase.COMMITTING | Phase.UNCLEAR:
            return waiting(state, event.id, event.ask), ()
        case Phase.COMMITTED | Phase.LOST | Phase.ABORTING | Phase.ABORTED | Phase.UNDETERMINED:
            return state, (Reply(event.ask, _answer_about(transaction)),)
    stopped = state.stopped.get(transaction.location)
    if stopped is not None:
        return state, (Reply(event.ask, Halted(stopped.reason)),)
    committing = replace(
        transaction, phase=Phase.COMMITTING, digest=event.digest, files=event.files
    )
    state, effects = run_or_queue(waiting(state, event.id, event.ask), committing)
    return state, (Save(committing), *effects)


def _adopt(state: State, event: Adopted) -> Step:
    """Take a transaction over. The coordinator that opened it may have published it, or may still
    do so: the commit is looked up before it is run."""
    now_ms, ask = event.now_ms, event.ask
    transaction = replace(event.transaction, begun_at_ms=now_ms)
    id = transaction.id
    if event.digest is None:
        if id in state.transactions:
            return _ask_abort(state, AbortRequested(id, _BY_OWNER, now_ms, ask))
        ended = aborting(transaction, _BY_OWNER, now_ms)
        effects = (Save(ended), Reply(ask, Aborted()), RemoveFiles(id))
        return with_transaction(state, ended), effects
    if id in state.transactions:
        return _ask_commit(state, CommitRequested(id, event.digest, ask, files=transaction.files))
    stopped = state.stopped.get(transaction.location)
    if stopped is not None:
        return state, (Reply(ask, Halted(stopped.reason)),)
    unclear = replace(transaction, phase=Phase.UNCLEAR, expires_at_ms=now_ms, digest=event.digest)
    state, following = run_or_queue(waiting(state, id, ask), unclear)
    return state, (Save(unclear), *following)


def _published(state: State, event: CommitPublished) -> Step:
    transaction = state.transactions[event.id]
    committed = replace(
        transaction,
        phase=Phase.COMMITTED,
        receipt=event.receipt,
        expires_at_ms=event.now_ms + state.limits.receipt_retention_ms,
        ended_at_ms=event.now_ms,
    )
    state, watched = watching.published(
        state, transaction.location, event.publication, event.findings, event.now_ms
    )
    state = without_transaction(state, event.id)
    state, replies = answered(state, event.id, Committed(event.receipt))
    if state.running.get(transaction.location) != event.id:
        # The removal of its files found it in the table: another coordinator published it.
        return state, (Save(committed), *watched, *replies)
    state, following = next_job(state, transaction.location)
    return state, (Save(committed), *watched, *replies, *following)


def _refused(state: State, event: CommitRefused) -> Step:
    transaction = state.transactions[event.id]
    refusal = Refusal(event.reason, event.cause, event.conflicting)
    if event.conflicting:
        expires_at_ms = event.now_ms + state.limits.lease_ms
        reopened = replace(transaction, phase=Phase.ACTIVE, digest="", expires_at_ms=expires_at_ms)
        return decided(with_transaction(state, reopened), reopened, refusal)
    ended = aborting(transaction, event.reason, event.now_ms)
    return decided(with_transaction(state, ended), ended, refusal, RemoveFiles(event.id))


def _unclear(state: State, id: str) -> Step:
    # The table stays busy: nothing may be published before the outcome is known.
    unclear = replace(state.transactions[id], phase=Phase.UNCLEAR)
    return with_transaction(state, unclear), (Save(unclear), LookUpCommit(id))


def _undetermined(state: State, event: CommitUndetermined) -> Step:
    transaction = replace(
        state.transactions[event.id],
        phase=Phase.UNDETERMINED,
        reason=event.reason,
        expires_at_ms=event.now_ms + state.limits.receipt_retention_ms,
        ended_at_ms=event.now_ms,
    )
    state = without_transaction(state, event.id)
    return decided(state, transaction, Undetermined(event.reason))


def _ask_abort(state: State, event: AbortRequested) -> Step:
    transaction = state.transactions.get(event.id, event.finished)
    if transaction is None:
        answer = Aborted() if waits(state, event.id) else Unknown()
        return leave(state, event.id), (Reply(event.ask, answer),)
    match transaction.phase:
        case Phase.ACTIVE:
            ended = aborting(transaction, event.reason, event.now_ms)
            state = with_transaction(state, ended)
            return state, (Save(ended), Reply(event.ask, Aborted()), RemoveFiles(event.id))
        case Phase.ABORTING | Phase.ABORTED:
            return state, (Reply(event.ask, Aborted()),)
        case Phase.UNDETERMINED:
            return state, (Reply(event.ask, Undetermined(transaction.reason)),)
        case phase:
            return state, (Reply(event.ask, NotCommitted(phase)),)


def _files_removed(state: State, event: FilesRemoved) -> Step:
    transaction = state.transactions.get(event.id)
    if transaction is None or transaction.phase is not Phase.ABORTING:
        return state, ()  # a second removal, which began before the first had ended
    aborted = replace(
        transaction,
        phase=Phase.ABORTED,
        expires_at_ms=event.now_ms + state.limits.receipt_retention_ms,
    )
    return without_transaction(state, event.id), (Save(aborted),)


def _answer_about(transaction: TransactionState) -> Answer:
    match transaction.phase:
        case Phase.ACTIVE:
            return Opened(transaction.expires_at_ms)
        case Phase.COMMITTED:
            assert transaction.receipt is not None
            return Committed(transaction.receipt)
        case Phase.COMMITTING | Phase.UNCLEAR:
            return NotCommitted(transaction.phase)
        case Phase.LOST:
            return Overwritten(transaction.reason)
        case Phase.ABORTING | Phase.ABORTED:
            return Gone(transaction.reason)
        case Phase.UNDETERMINED:
            return Undetermined(transaction.reason)


# The slots of tables: a statement that drops or renames a table has exclusive use of it. It gets
# the table when no commit is under way or unclear there; commits wait until it has ended.


def _ask_slot(state: State, event: SlotRequested) -> Step:
    asks = (*state.slot_asks.get(event.location, ()), event.ask)
    if event.location not in state.running:
        return give_slot(state, event.location, asks)
    return replace(state, slot_asks={**state.slot_asks, event.location: asks}), ()


def _end_slot(state: State, event: SlotEnded) -> Step:
    """Continue with the work that waits for the table. If the statement itself waited, only remove
    it from the waiters.
    """
    location = event.location
    if state.running.get(location) == slot_name(event.slot):
        return next_job(state, location)
    asks = tuple(ask for ask in state.slot_asks.get(location, ()) if ask != event.slot)
    return replace(state, slot_asks=updated(state.slot_asks, location, asks)), ()


# The state of a coordinator that starts again, made from the store.


def _restored(state: State, event: Restored) -> Step:
    """Continue what was under way: look commits up, and give open transactions a full lease."""
    effects: list[Effect] = []
    state = replace(
        state, stopped=dict(event.stopped), pause=event.pause, ticked_at_ms=event.now_ms
    )
    for p in event.watched:
        watched = (*state.watched.get(p.location, ()), p)
        state = replace(state, watched={**state.watched, p.location: watched})
    for transaction in event.transactions:
        match transaction.phase:
            case Phase.ACTIVE:
                # Its owner could not renew it while the coordinator was down.
                lease = replace(transaction, expires_at_ms=event.now_ms + state.limits.lease_ms)
                state = with_transaction(state, lease)
            case Phase.COMMITTING | Phase.UNCLEAR:
                unclear = replace(transaction, phase=Phase.UNCLEAR)
                state, following = run_or_queue(state, unclear)
                effects += following
            case Phase.ABORTING:
                # Its time is by the previous clock, which may have been ahead.
                due_ms = event.now_ms + state.limits.cleanup_grace_ms
                due = replace(transaction, expires_at_ms=min(transaction.expires_at_ms, due_ms))
                state = with_transaction(state, due)
            case Phase.COMMITTED | Phase.LOST | Phase.ABORTED | Phase.UNDETERMINED:
                raise ValueError(f"transaction {transaction.id} is finished: nothing to restore")
    return state, tuple(effects)


# Effects of time: leases expire, removals are retried, receipts are forgotten.


def _ticked(state: State, now_ms: int, noting: frozenset[str]) -> Step:
    """Return the state at `now_ms`, and what must be done then. The files of transactions whose
    tasks are `noting` their attempts wait for nothing."""
    effects: list[Effect] = []
    state = _without_stall(state, now_ms)
    for transaction in tuple(state.transactions.values()):
        if transaction.expires_at_ms > now_ms:
            continue
        match transaction.phase:
            case Phase.ACTIVE:
                grace_ms = 0 if transaction.id in noting else state.limits.cleanup_grace_ms
                expired = aborting(transaction, "its lease expired", now_ms, grace_ms)
                state = with_transaction(state, expired)
                effects.append(Save(expired))
            case Phase.ABORTING:
                # Once in a grace period, until it succeeds.
                later = replace(transaction, expires_at_ms=now_ms + state.limits.cleanup_grace_ms)
                state = with_transaction(state, later)
                effects.append(RemoveFiles(transaction.id))
    state, checks = watching.due_checks(state, now_ms)
    effects += checks
    if now_ms - state.forgot_at_ms >= FORGET_EVERY_MS:
        state = replace(state, forgot_at_ms=now_ms)
        effects.append(ForgetFinished(now_ms))
    return state, tuple(effects)


def _without_stall(state: State, now_ms: int) -> State:
    """Extend the leases by the time for which the coordinator stood still, when nobody could renew
    them, or by which the clock was set."""
    passed_ms = now_ms - state.ticked_at_ms if state.ticked_at_ms else 0
    state = replace(state, ticked_at_ms=now_ms)
    if abs(passed_ms) < STALL_MS:
        return state
    for transaction in tuple(state.transactions.values()):
        if transaction.phase is Phase.ACTIVE:
            later = replace(transaction, expires_at_ms=transaction.expires_at_ms + passed_ms)
            state = with_transaction(state, later)
    return state
