"""The thread that owns a coordinator's state: it asks the core, saves, and only then acts.

Events come in a queue. The core's decision about an event is saved in one piece; after that
questions are answered and slow work is started. While the store can't save, questions fail at once,
the state stays as it is stored, and events from the pool wait; each tick retries. The thread, and
with it the coordinator, ends only when the store is not as this coordinator left it, or another
coordinator has taken over.

If the process dies, nothing was answered or started that was not saved.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field, replace
from functools import partial

from paimon_magics.coordinator.core.events import (
    AbortRequested,
    Adopted,
    BeginRequested,
    CommitPublished,
    CommitRequested,
    CutPublications,
    DropPublication,
    Effect,
    Event,
    ForgetFinished,
    ForgetPublications,
    HeartbeatRequested,
    LookUpCommit,
    Noted,
    NotPublished,
    Reply,
    Republish,
    Republished,
    RunCommit,
    Save,
    SavePause,
    SavePublication,
    SaveStopped,
    TableDropped,
    TableMoved,
    Ticked,
)
from paimon_magics.coordinator.core.state import State
from paimon_magics.coordinator.core.step import step
from paimon_magics.coordinator.core.values import Answer, Phase, TransactionState
from paimon_magics.coordinator.protocol.documents import (
    request_of,
    transaction_document,
    transaction_of,
)
from paimon_magics.coordinator.protocol.errors import StoppedError
from paimon_magics.coordinator.runtime.threads import Runtime, Timer
from paimon_magics.coordinator.store.database import (
    StoreLostError,
    StoreUnavailableError,
    UnstorableError,
)
from paimon_magics.coordinator.store.state_store import StateStore
from paimon_magics.errors import SetupError
from paimon_magics.faults import reach
from paimon_magics.planning.commits.expiry import NO_FLOOR
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.planning.commits.requests import CommitRequest, Transaction
from paimon_magics.tables.commits.fencing import DeposedError

_TICK_MS = 1_000
_AGAIN_MS = 10_000  # before an event that the core could not handle is retried

_POINTS: Mapping[type[Event], str] = {
    BeginRequested: "begin.stored",
    CommitRequested: "commit.stored",
    CommitPublished: "receipt.stored",
    Republished: "republish.stored",
    AbortRequested: "abort.stored",
}
"""The fault points behind events that are saved."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueuedEvent:
    """An event, and the request that is stored with it; `body` is `request` in its stored form. The
    write has the id `write_id`, regardless of the number of tries.
    """

    event: Event
    opened: Transaction | None = None
    request: CommitRequest | None = None
    body: bytes | None = None
    write_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def ask(self) -> int | None:
        """The number of the event's question; None for other events."""
        return getattr(self.event, "ask", None)


class StateThread:
    """Owns the state and the store's changes to it. Every method may be called from any thread.

    `happened` is called with each saved event, after `carry_out` with each of its effects other
    than replies. `may_answer` raises DeposedError when no answer may be given any more, another
    SetupError when none may be given now. It does not access the store.

    `state` is the present state, a value; `stored` looks transactions up. `opened` has the
    unfinished transactions as they were opened, `requests` their commit requests since the start.
    `finished` counts the transactions that finished since the start, by phase. `now_ms` is the time
    by its clock.
    """

    def __init__(
        self,
        runtime: Runtime,
        store: StateStore,
        state: State,
        *,
        happened: Callable[[Event], None],
        carry_out: Callable[[Effect], None],
        may_answer: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        self.runtime = self._runtime = runtime
        self.now_ms = self._now_ms = runtime.clock.now_ms
        self._store = store
        self.state = state
        self._happened = happened
        self._carry_out = carry_out
        self._may_answer = may_answer
        self._failed = failed
        self.stored = StoredTransactions(store, self)
        self.opened: dict[str, Transaction] = {}
        self.requests: dict[str, CommitRequest] = {}
        self.finished: Counter[Phase] = Counter()
        self._pending: dict[int, Future[Answer]] = {}
        self._numbers = itertools.count(1)
        self._failure: BaseException | None = None
        self._trouble: StoreUnavailableError | None = None
        self._unsaved: deque[QueuedEvent] = deque()
        self._tick_waits = False
        self._stopping = False
        self._ticker: Timer | None = None
        self._owner = runtime.owner(
            "coordinator",
            self._take_all,
            crashed=self._crashed,
            fatal=(StoreLostError, DeposedError),
            ended=self._ended,
        )
        self._pool = runtime.pool("again", 1)

    def start(self) -> None:
        """Start, with the events that were put before."""
        self._owner.start()
        self._ticker = self._runtime.every("ticks", _TICK_MS, self._tick)

    def refuse(self) -> None:
        """Refuse new questions; earlier ones are still answered."""
        self._stopping = True

    def stop(self) -> None:
        """Stop after the events that were put before."""
        self._stopping = True
        if self._ticker is not None:  # else it was never started
            self._ticker.stop()
        self._pool.end()
        self._owner.end()

    def depose(self, error: DeposedError | StoreLostError) -> None:
        """Stop answering: another coordinator owns the warehouse, or the store."""
        self._failure = self._failure or error
        self.put(
            QueuedEvent(Ticked(self._now_ms()))
        )  # wakes the thread, which fails all open questions

    @property
    def deposed(self) -> DeposedError | None:
        """The error with which it stopped when another coordinator took the warehouse over."""
        return self._failure if isinstance(self._failure, DeposedError) else None

    @property
    def failure(self) -> BaseException | None:
        """The error with which it stopped for another reason."""
        return None if isinstance(self._failure, DeposedError) else self._failure

    @property
    def problem(self) -> str | None:
        """Why it accepts nothing now: it has stopped for good, or its store does not work."""
        if self._failure is not None:
            return self._stopped().message
        return None if self._trouble is None else self._trouble.message

    @property
    def waits_for_store(self) -> bool:
        """Whether the store accepts no writes at the moment."""
        return self._trouble is not None and self._failure is None

    def ask_soon(self, make: Callable[[int], QueuedEvent]) -> Future[Answer]:
        """Put the event that `make` returns for a question's number; return its answer's future.

        The answer may be a StoreUnavailableError, or another SetupError when the thread has
        stopped. Raises that if it has stopped already.
        """
        if self._failure is not None or self._stopping:
            raise self._stopped()
        ask = next(self._numbers)
        future = self._pending[ask] = Future()
        self.put(make(ask))
        if self._failure is not None:  # it has stopped since, perhaps without seeing this
            self._fail(ask, self._stopped())
        return future

    def ask(self, make: Callable[[int], QueuedEvent]) -> Answer:
        """Like `ask_soon`, but wait for the answer, and raise its error."""
        return self.ask_soon(make).result()

    def ask_event(self, make: Callable[[int], Event]) -> Answer:
        """Like `ask`, for an event with which nothing else is stored."""
        return self.ask(lambda ask: QueuedEvent(make(ask)))

    def put(self, item: QueuedEvent) -> None:
        """Add an event to the queue."""
        self._owner.put(item)

    def _take_all(self, items: Sequence[QueuedEvent]) -> None:
        for item in items:
            self._take(item)

    def _crashed(self, items: Sequence[QueuedEvent], error: Exception) -> None:
        """After an unexpected exception, the state is as before, or is saved. Fail the question;
        retry an event from the pool, so that its table does not stay busy.
        """
        if self._failure is not None:
            return  # all questions are answered
        for item in items:
            if item.ask is not None:
                self._fail(item.ask, _internal(error))
            elif not isinstance(item.event, Ticked):
                self._pool.run("event", partial(self.put, item), after_ms=_AGAIN_MS)

    def _ended(self, error: BaseException) -> None:
        # What is stored is unknown: no question may be answered from here on.
        self._failure = self._failure or error
        for ask in list(self._pending):
            self._fail(ask, self._stopped())
        if self.failure is not None:
            _log.critical("The coordinator has stopped: %s", self.failure)
            self._failed()

    def _take(self, item: QueuedEvent) -> None:
        match item.event:
            case Ticked():
                self._tick_waits = False
                if self._trouble is None or self._store_works_again():
                    self._save_or_wait(item)
            case HeartbeatRequested(id=id) if id in self.state.transactions:
                self._handle(item)  # it stores nothing
            case _ if self._trouble is not None:
                trouble = self._trouble
                self._put_off(item, StoreUnavailableError(trouble.message, hint=trouble.hint))
            case _:
                self._save_or_wait(item)

    def _save_or_wait(self, item: QueuedEvent) -> None:
        try:
            self._handle(item)
        except UnstorableError as error:  # the store works
            self._crashed([item], error)
        except StoreUnavailableError as error:
            if self._trouble is None:
                _log.error("The store does not work: %s", error)
            self._trouble = error
            self._put_off(item, error)

    def _put_off(self, item: QueuedEvent, error: StoreUnavailableError) -> None:
        """Fail the event's question; keep the event if it must not be lost.

        It keeps events from the pool, events that report what happened in the warehouse, and an
        event that may or may not be stored: the state matches the store again when that event has
        been handled once more.
        """
        if item.ask is not None:
            self._fail(item.ask, error)
        if error.unclear or _has_happened(item):
            self._unsaved.append(item)

    def _store_works_again(self) -> bool:
        try:
            self._store.check()
            while self._unsaved:
                self._handle(self._unsaved[0])
                self._unsaved.popleft()
        except StoreUnavailableError as error:
            self._trouble = error
            return False
        self._trouble = None
        return True

    def _stopped(self) -> SetupError:
        if self.deposed is not None:
            return self.deposed
        reason = "." if self._failure is None else f": {self._failure}"
        return StoppedError(
            f"The coordinator has stopped{reason}",
            hint="Fix the cause, then start the coordinator again.",
        )

    def _handle(self, item: QueuedEvent) -> None:
        if isinstance(self._failure, DeposedError | StoreLostError):
            raise self._failure
        state, effects = step(self.state, self._with_finished(item.event))
        with self._store.together(item.write_id):
            for effect in effects:
                if isinstance(effect, Save):
                    self._save(effect.transaction, item)
                else:
                    _store_effect(self._store, effect, self._now_ms())
        before, self.state = self.state, state
        if isinstance(item.event, BeginRequested | Adopted) and item.opened is not None:
            self.opened[item.event.transaction.id] = item.opened
        for effect in effects:
            if not isinstance(effect, Save):
                continue
            if item.request is not None:
                self.requests[effect.transaction.id] = item.request
            if effect.transaction.id in before.transactions.keys() - state.transactions:
                self.finished[effect.transaction.phase] += 1
                self.opened.pop(effect.transaction.id, None)
                self.requests.pop(effect.transaction.id, None)
        # Saved effects are carried out in any case: an exception in one must not prevent others.
        follows = [partial(_reach_after, item.event)]
        follows += [partial(self._follow, effect) for effect in effects]
        follows += [partial(self._happened, item.event)]
        for follow in follows:
            self._runtime.attempt("what follows", follow, fatal=(StoreLostError, DeposedError))

    def _follow(self, effect: Effect) -> None:
        if isinstance(effect, Reply):
            self._reply(effect.ask, effect.answer)
        else:
            self._carry_out(effect)

    def _reply(self, ask: int, answer: Answer) -> None:
        """Answer a question. A deposed coordinator acknowledges nothing, nor does a coordinator
        whose lease has expired and can't be taken again now: the client asks once more.
        """
        try:
            self._may_answer()
        except DeposedError:
            raise
        except SetupError as error:
            self._fail(ask, StoreUnavailableError(error.message, hint=error.hint))
        else:
            future = self._pending.pop(ask, None)
            if future is not None:  # None: it has failed because the store did not work
                future.set_result(answer)

    def _fail(self, ask: int, error: SetupError) -> None:
        future = self._pending.pop(ask, None)
        if future is not None:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(error)

    def _with_finished(self, event: Event) -> Event:
        match event:
            case HeartbeatRequested(id=id) | CommitRequested(id=id) | AbortRequested(id=id):
                if id not in self.state.transactions:
                    return replace(event, finished=self._store.transactions.finished(id))
        return event

    def _save(self, transaction: TransactionState, item: QueuedEvent) -> None:
        if item.opened is not None:
            self._store.transactions.open(transaction, transaction_document(item.opened))
            if item.body is None:
                return
        self._store.transactions.save(transaction, item.body)

    def _tick(self) -> None:
        if not self._tick_waits:
            self._tick_waits = True
            now_ms = self._now_ms()
            self.put(QueuedEvent(Ticked(now_ms, self._noting(now_ms))))

    def _noting(self, now_ms: int) -> frozenset[str]:
        """The expired transactions whose tasks note their attempts."""
        expired = (id for id, t in self.state.transactions.items() if t.expires_at_ms <= now_ms)
        opened = ((id, self.opened.get(id)) for id in expired)
        return frozenset(id for id, t in opened if t is not None and t.attempts_folder is not None)


def _has_happened(item: QueuedEvent) -> bool:
    """Whether an event reports something that has happened already, so that it must be stored
    sooner or later.
    """
    match item.event:
        case Ticked():
            return False
        case Noted(publication=publication):
            return publication.certain
        case NotPublished() | TableDropped() | TableMoved():
            return True
        case _:
            return item.ask is None


def _internal(error: Exception) -> SetupError:
    if isinstance(error, SetupError):
        return error
    return SetupError(
        f"The coordinator failed unexpectedly: {error!r}",
        hint="Nothing else is affected. The coordinator's log has the details for a report.",
    )


def _reach_after(event: Event) -> None:
    point = _POINTS.get(type(event))
    if point is not None:
        reach(point)


# Writes the core's effects to the store.


def _store_effect(store: StateStore, effect: Effect, now_ms: int) -> None:
    """Write an effect to the store, if it changes the store. `Save` is not written here: it needs
    the event."""
    match effect:
        case RunCommit(id=id) | LookUpCommit(id=id):
            store.transactions.begin_run(id)
        case ForgetFinished(until_ms=until_ms):
            store.forget_finished(until_ms)
        case SavePublication(publication=publication, watched=watched):
            store.publications.save(publication, watched)
        case DropPublication(id=id):
            store.publications.drop(id)
        case ForgetPublications(location=location):
            store.publications.drop_all(location)
        case CutPublications(location=location, branch=branch, above=above):
            store.publications.unwatch_above(location, branch, above)
        case Republish(publication=publication):
            store.publications.begin_repetition(publication, now_ms)
        case SaveStopped(location=location, stopped=stopped):
            store.halts.save_stopped(location, stopped)
        case SavePause(pause=pause):
            store.halts.save_pause(pause)


# Looking transactions up: in the state while they are unfinished, in the store after that.


class StoredTransactions:
    """Looks transactions up. For any thread."""

    def __init__(self, store: StateStore, state_thread: StateThread) -> None:
        self._store = store
        self._state_thread = state_thread

    def state(self, id: str) -> TransactionState | None:
        """A transaction, finished or not; None when it is unknown or no longer kept."""
        return self._state_thread.state.transactions.get(id) or self._store.transactions.finished(
            id
        )

    def opened(self, id: str) -> Transaction | None:
        """A transaction as it was opened; None for an unknown transaction."""
        opened = self._state_thread.opened.get(id)
        if opened is not None:
            return opened
        stored = self._store.transactions.opened(id)
        return None if stored is None else transaction_of(stored)

    def is_open(self, commit_user: str) -> bool:
        """Whether a transaction with a commit user is open."""
        opened = list(self._state_thread.opened.values())
        return any(transaction.commit_user == commit_user for transaction in opened)

    def request(self, id: str) -> CommitRequest | None:
        """A transaction's commit request; None for an unknown transaction, or without a request."""
        request = self._state_thread.requests.get(id)
        if request is not None:
            return request
        body, transaction = self._store.transactions.request(id), self.opened(id)
        if body is None or transaction is None:
            return None
        return request_of(transaction, json.loads(body))

    def first_needed(self, location: str, branch: str | None) -> int:
        """The first snapshot of a table's branch that an open transaction or the watch over
        publications may still read; NO_FLOOR if there is none.
        """
        state = self._state_thread.state
        opened = [
            self._state_thread.opened.get(id)
            for id, transaction in state.transactions.items()
            if transaction.location == location
        ]
        needed = [t.base_snapshot_id for t in opened if t and t.table.branch == branch]
        needed += [
            publication.snapshot_id
            for publication in state.watched.get(location, ())
            if publication.table.branch == branch
        ]
        return min(needed, default=NO_FLOOR)

    def unsettled(self, location: str) -> tuple[list[Transaction], list[Publication]]:
        """The transactions of a table that may still commit, or whose files are being removed, and
        its publications that may have to be published again."""
        state = self._state_thread.state
        opened = [
            transaction
            for id, known in state.transactions.items()
            if known.location == location
            and (transaction := self._state_thread.opened.get(id)) is not None
        ]
        return opened, list(state.watched.get(location, ()))
