"""The thread that owns a coordinator's state: it asks the core, saves, and only then acts.

Events come in a queue. The core's decision about an event is saved in one piece; after that
questions are answered and slow work is started. While the store can't save, questions fail at once,
the state stays as it is stored, and events from the pool wait; each tick tries again. The thread,
and with it the coordinator, ends only when the store is not as it was left.

If the process dies, nothing was answered or started that was not saved.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from paimon_magics.coordinator.core import (
    AbortAsked,
    Adopted,
    Answer,
    BeginAsked,
    CommitAsked,
    CommitPublished,
    Effect,
    Event,
    HeartbeatAsked,
    Phase,
    Reply,
    Republished,
    Save,
    State,
    Ticked,
    TransactionState,
    step,
)
from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.protocol.documents import transaction_document
from paimon_magics.coordinator.protocol.errors import StoppedError
from paimon_magics.coordinator.service.pending_answers import PendingAnswers
from paimon_magics.coordinator.service.stored_effects import store_effect
from paimon_magics.coordinator.store.database import StoreUnavailableError
from paimon_magics.coordinator.store.state_store import StateStore
from paimon_magics.errors import SetupError
from paimon_magics.faults import reach
from paimon_magics.planning.commits.requests import CommitRequest, Transaction
from paimon_magics.tables.commits.fencing import DeposedError

__all__ = ["Asked", "StateThread"]

_TICK_SECONDS = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Asked:
    """An event, and what is stored with it; `body` is `request` in its stored form."""

    event: Event
    opened: Transaction | None = None
    request: CommitRequest | None = None
    body: bytes | None = None


class StateThread:
    """Owns the state and the store's changes to it. Every method may be called from any thread.

    `happened` is called with each event that was saved, then `carry_out` with each of its effects
    other than replies. `may_answer` raises DeposedError when no answer may be given any more,
    another SetupError when none may be given now.

    `state` is the present state, a value. `opened` has the unfinished transactions as they were
    opened, `requests` their commit requests since the start. `finished` counts the transactions
    that finished since the start, by phase.
    """

    def __init__(
        self,
        store: StateStore,
        state: State,
        *,
        happened: Callable[[Event], None],
        carry_out: Callable[[Effect], None],
        may_answer: Callable[[], None],
    ) -> None:
        self._store = store
        self.state = state
        self._happened = happened
        self._carry_out = carry_out
        self._may_answer = may_answer
        self.opened: dict[str, Transaction] = {}
        self.requests: dict[str, CommitRequest] = {}
        self.finished: Counter[Phase] = Counter()
        self._events: queue.Queue[Asked | None] = queue.Queue()
        self._pending = PendingAnswers()
        self._failure: BaseException | None = None
        self._trouble: StoreUnavailableError | None = None
        self._unsaved: deque[Asked] = deque()
        self._tick_waits = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="coordinator", daemon=True)
        self._ticker = threading.Thread(target=self._tick, name="ticker", daemon=True)

    def start(self) -> None:
        """Start, with the events that were put before."""
        self._thread.start()
        self._ticker.start()

    def refuse(self) -> None:
        """Refuse new questions; earlier ones are still answered."""
        self._stopping = True

    def stop(self) -> None:
        """Stop after the events that were put before."""
        self._stopping = True
        self._events.put(None)
        self._thread.join()

    def depose(self, error: DeposedError) -> None:
        """Answer nothing any more: another coordinator owns the warehouse."""
        self._failure = self._failure or error
        self.put(Asked(Ticked(now_ms())))  # wakes the thread, which fails all open questions

    @property
    def deposed(self) -> DeposedError | None:
        """The error with which it stopped when another coordinator took the warehouse over."""
        return self._failure if isinstance(self._failure, DeposedError) else None

    @property
    def problem(self) -> str | None:
        """Why it takes nothing now: it has stopped for good, or its store does not work."""
        if self._failure is not None:
            return self._stopped().message
        return None if self._trouble is None else self._trouble.message

    @property
    def waits_for_store(self) -> bool:
        """Whether the store takes no writes at the moment."""
        return self._trouble is not None and self._failure is None

    def ask(self, make: Callable[[int], Asked]) -> Answer:
        """Put the event that `make` returns for a question's number; return its answer.

        Raises StoreUnavailableError, or another SetupError when the thread has stopped.
        """
        if self._failure is not None or self._stopping:
            raise self._stopped()
        ask, future = self._pending.ask()
        self.put(make(ask))
        if self._failure is not None:  # it has stopped since, perhaps without seeing this
            self._pending.fail(ask, self._stopped())
        return future.result()

    def ask_event(self, make: Callable[[int], Event]) -> Answer:
        """Like `ask`, for an event with which nothing else is stored."""
        return self.ask(lambda ask: Asked(make(ask)))

    def put(self, asked: Asked) -> None:
        """Add an event to the queue."""
        self._events.put(asked)

    def _work(self) -> None:
        try:
            while True:
                asked = self._events.get()
                if asked is None:
                    return
                self._take(asked)
        except BaseException as error:
            # What is stored is unknown: no question may be answered from here on.
            self._failure = error
            _log.critical("The coordinator has stopped: %s", error)
            self._pending.fail_all(self._stopped())

    def _take(self, asked: Asked) -> None:
        match asked.event:
            case Ticked():
                self._tick_waits.clear()
                if self._trouble is None or self._store_works_again():
                    self._save_or_wait(asked)
            case HeartbeatAsked(id=id) if id in self.state.held:
                self._handle(asked)  # it stores nothing
            case _ if self._trouble is not None:
                trouble = self._trouble
                self._put_off(asked, StoreUnavailableError(trouble.message, hint=trouble.hint))
            case _:
                self._save_or_wait(asked)

    def _save_or_wait(self, asked: Asked) -> None:
        try:
            self._handle(asked)
        except StoreUnavailableError as error:
            if self._trouble is None:
                _log.error("The store does not work: %s", error)
            self._trouble = error
            self._put_off(asked, error)

    def _put_off(self, asked: Asked, error: StoreUnavailableError) -> None:
        """Fail the event's question; keep the event if it must not be lost.

        Kept are events from the pool, and an event that may or may not be stored: the state matches
        the store again when that event has been handled once more.
        """
        ask = getattr(asked.event, "ask", None)
        if ask is not None:
            self._pending.fail(ask, error)
        if error.unclear or (ask is None and not isinstance(asked.event, Ticked)):
            self._unsaved.append(asked)

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
            f"The coordinator has stopped{reason}", hint="Repair the cause and start it again."
        )

    def _handle(self, asked: Asked) -> None:
        if self.deposed is not None:
            raise self.deposed
        state, effects = step(self.state, self._with_finished(asked.event))
        with self._store.together():
            for effect in effects:
                match effect:
                    case Save(held=held):
                        self._save(held, asked)
                    case _:
                        store_effect(self._store, effect)
        before, self.state = self.state, state
        if isinstance(asked.event, BeginAsked | Adopted) and asked.opened is not None:
            self.opened[asked.event.id] = asked.opened
        for effect in effects:
            if not isinstance(effect, Save):
                continue
            if asked.request is not None:
                self.requests[effect.held.id] = asked.request
            if effect.held.id in before.held.keys() - state.held:
                self.finished[effect.held.phase] += 1
                self.opened.pop(effect.held.id, None)
                self.requests.pop(effect.held.id, None)
        self._happened(asked.event)
        _reach_after(asked.event)
        for effect in effects:
            match effect:
                case Reply(ask=ask, answer=answer):
                    self._reply(ask, answer)
                case _:
                    self._carry_out(effect)

    def _reply(self, ask: int, answer: Answer) -> None:
        """Answer a question. A deposed coordinator acknowledges nothing, nor does one whose lease
        has run out and can't be taken again now: who asked asks once more."""
        try:
            self._may_answer()
        except DeposedError:
            raise
        except SetupError as error:
            self._pending.fail(ask, StoreUnavailableError(error.message, hint=error.hint))
        else:
            self._pending.answer(ask, answer)

    def _with_finished(self, event: Event) -> Event:
        match event:
            case HeartbeatAsked(id=id) | CommitAsked(id=id) | AbortAsked(id=id):
                if id not in self.state.held:
                    return replace(event, finished=self._store.transactions.finished(id))
        return event

    def _save(self, held: TransactionState, asked: Asked) -> None:
        if asked.opened is not None:
            self._store.transactions.open(held, transaction_document(asked.opened))
            if asked.body is None:
                return
        self._store.transactions.save(held, asked.body)

    def _tick(self) -> None:
        while self._failure is None and not self._stopping:
            time.sleep(_TICK_SECONDS)
            if not self._tick_waits.is_set():
                self._tick_waits.set()
                self.put(Asked(Ticked(now_ms())))


def _reach_after(event: Event) -> None:
    match event:
        case BeginAsked():
            reach("begin.stored")
        case CommitAsked():
            reach("commit.stored")
        case CommitPublished():
            reach("receipt.stored")
        case Republished():
            reach("republish.stored")
        case AbortAsked():
            reach("abort.stored")
        case _:
            pass
