"""The thread that owns all queues and the log.

It takes whatever has come since it was last free, has the queues decide (`queueing`), appends all
of it to the log at once, and only then answers: so that many inserts share one sync of the disk.

If the process dies: what was answered is in the log, and the next start goes on from there.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue as queues
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from paimon_magics.coordinator.inserts.admission.futures import Answered, deliver, fail
from paimon_magics.coordinator.inserts.admission.items import Asked, Insert, Item, Work
from paimon_magics.coordinator.inserts.admission.table_info import TableInfo
from paimon_magics.coordinator.inserts.engine.batching import Turn
from paimon_magics.coordinator.inserts.engine.table_queues import TableQueue, TableQueues
from paimon_magics.coordinator.inserts.log.interface import Log
from paimon_magics.coordinator.inserts.queue.events import (
    BeginFlush,
    Bury,
    Closed,
    Effect,
    Event,
    FlushFailed,
    Published,
    Reply,
    Ticked,
)
from paimon_magics.coordinator.inserts.queue.step import step
from paimon_magics.coordinator.inserts.queue.values import (
    Accepted,
    Answer,
    Batch,
    Mode,
    Refused,
)
from paimon_magics.coordinator.protocol.clock import Clock
from paimon_magics.coordinator.store.database import StoreLostError, StoreUnavailableError
from paimon_magics.errors import PaimonMagicsError, SetupError
from paimon_magics.faults import reach
from paimon_magics.tables.commits.fencing import DeposedError

__all__ = ["Loader", "QueueThread"]

_GROUP_MAX = 4_096
_RETRY_SECONDS = 0.5
_STOPPED = "The coordinator is stopping."

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loader:
    """Who does what takes time: `load` a batch, in another thread; `bury` a record, at once."""

    load: Callable[[TableQueue, Batch], None]
    bury: Callable[[TableQueue, int, str], None]


class QueueThread:
    """Any thread may `put`, `tell`, `ask` and have `work` done; all else happens in one of its own.

    `may_answer` raises when this coordinator may not acknowledge any more. `on_failure` is called
    once, with what ended the thread. `counts` is what was counted since the start.
    """

    def __init__(
        self,
        tables: TableQueues,
        log: Log,
        loader: Loader,
        may_answer: Callable[[], None],
        on_failure: Callable[[BaseException], None],
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._tables = tables
        self._log = log
        self._loader = loader
        self._may_answer = may_answer
        self._on_failure = on_failure
        self.counts: Counter[str] = Counter()
        self.append_seconds = 0.0
        self.failure: BaseException | None = None
        self.deposed: DeposedError | None = None
        self.stopping = False
        self.ready = threading.Event()
        self._inbox: queues.SimpleQueue[Item | None] = queues.SimpleQueue()
        self._asks: dict[int, Answered] = {}
        self._taken: list[Item] = []
        self._numbers = itertools.count(1)
        self._thread = threading.Thread(target=self._work, name="group-commit", daemon=True)

    def start(self) -> None:
        """Read the log, and begin to work. What arrives meanwhile waits."""
        self._thread.start()

    def put(self, item: Item) -> None:
        """Hand something over."""
        self._inbox.put(item)

    def tell(self, location: str, event: Event) -> None:
        """Give a table's queue an event that nobody waits for."""
        self.put(Asked(location, lambda _: event))

    def ask(
        self, location: str, make: Callable[[int], Event], table_info: TableInfo | None = None
    ) -> Future[Answer]:
        """The answer of a table's queue to the event that `make` gives for a number."""
        future: Future[Answer] = Future()
        if self.failure is not None:
            future.set_exception(self.gone())
        else:
            self.put(Asked(location, make, future, table_info))
        return future

    def work(self, do: Callable[[], object]) -> None:
        """Do something in this thread, and wait for its end."""
        if self.failure is not None:
            raise self.gone()
        done: Future[None] = Future()
        self.put(Work(do, done))
        done.result()

    def depose(self, error: DeposedError) -> None:
        """Answer nothing more: another coordinator owns the warehouse."""
        self.deposed = self.deposed or error
        self._inbox.put(Asked("", lambda _: Ticked(self._clock())))  # wakes the thread

    def end(self) -> None:
        """End when what was put is done."""
        self._inbox.put(None)
        self._thread.join()

    @property
    def problem(self) -> str | None:
        """Why nothing is taken: it has stopped for good. None while it works."""
        return None if self.failure is None else f"Group commit has stopped: {self.failure}"

    def gone(self) -> SetupError:
        """What is told while nothing is taken."""
        if isinstance(self.failure, DeposedError):
            return self.failure
        return SetupError(self.problem or _STOPPED, hint="Ask again when it runs.")

    # ---- the thread ----

    def _work(self) -> None:
        try:
            self._tables.recover(self._clock())
            self.ready.set()
            while True:
                items = self._next()
                if items is None:
                    return
                self._taken = items
                if self.deposed is not None:
                    for item in items:
                        if item.answer is not None:
                            fail([item.answer], self.deposed)
                    raise self.deposed
                self._take(items)
        except BaseException as error:
            # What is in the log is not known: nobody may be answered from here on.
            self.failure = error
            self.ready.set()
            if not isinstance(error, DeposedError):
                _log.critical("Group commit has stopped: %s", error)
            self._fail_all()
            self._on_failure(error)

    def _next(self) -> list[Item] | None:
        """What has come since; None at the end."""
        first = self._inbox.get()
        if first is None:
            return None
        items: list[Item] = [first]
        with contextlib.suppress(queues.Empty):
            while len(items) < _GROUP_MAX:
                item = self._inbox.get_nowait()
                if item is None:
                    self._inbox.put(None)
                    break
                items.append(item)
        return items

    def _take(self, items: Sequence[Item]) -> None:
        """Everything in the order in which it came; inserts that follow each other together."""
        together: list[Insert] = []
        for item in items:
            if isinstance(item, Insert):
                together.append(item)
                continue
            if together:
                self._take_together(together)
                together = []
            if isinstance(item, Work):
                self._take_work(item)
            else:
                self._take_asked(item)
        if together:
            self._take_together(together)

    def _take_together(self, items: Sequence[Insert]) -> None:
        turn = Turn()
        inserts: dict[str, list[Insert]] = {}
        for item in items:
            inserts.setdefault(item.facts.location, []).append(item)
        try:
            for some in inserts.values():
                self._take_inserts(turn, some)
            self._append(turn)
        except StoreUnavailableError as error:  # nothing has happened
            fail([item.answer for item in items], error)
            return
        self._carry_out(turn)

    def _take_inserts(self, turn: Turn, inserts: Sequence[Insert]) -> None:
        """Have one table's queue decide about inserts; nothing is done yet."""
        now_ms = self._clock()
        try:
            table = self._table(inserts[0].facts, now_ms)
        except StoreLostError:
            raise
        except (PaimonMagicsError, OSError) as error:  # the warehouse's store, not the log
            fail([insert.answer for insert in inserts], error)
            return
        turn.take(table, inserts, self._log, self._numbers, now_ms)

    def _append(self, turn: Turn) -> None:
        """Make durable what was decided."""
        if not turn.groups:
            return
        reach("log.sealed")
        started = time.perf_counter()
        while True:
            try:
                self._log.append(turn.groups)
                break
            except StoreUnavailableError as error:
                if not error.unclear:
                    raise
                # The same call again finds out whether it was written.
                _log.error("The log does not answer: %s", error)
                if self.stopping:
                    raise
                time.sleep(_RETRY_SECONDS)
        self.append_seconds += time.perf_counter() - started
        self.counts["groups"] += 1
        reach("log.appended")

    def _carry_out(self, turn: Turn) -> None:
        """What was decided is durable: it is the state now, and everybody is told."""
        self._asks |= {ask: insert.answer for ask, insert in turn.waiting.items()}
        self.counts.update(turn.counts)
        for location, (queue, chain) in turn.states.items():
            table = self._tables.all[location]
            table.queue, table.chain = queue, chain
        self._do(turn.effects)

    def _do(self, effects: Iterable[tuple[TableQueue, Effect]]) -> None:
        replies: list[tuple[Answered, Answer]] = []
        for table, effect in effects:
            match effect:
                case Reply(ask=ask, answer=answer):
                    future = self._asks.pop(ask, None)
                    self._count(answer)
                    if future is not None:
                        replies.append((future, answer))
                case BeginFlush(batch=batch):
                    self._loader.load(table, batch)
                case Bury(lsn=lsn, why=why):
                    self._loader.bury(table, lsn, why)
                case _:
                    raise AssertionError(effect)
        if not replies:
            return
        try:
            self._may_answer()  # a deposed coordinator acknowledges nothing
        except PaimonMagicsError as error:
            fail([future for future, _ in replies], error)
            raise
        deliver(replies)

    def _count(self, answer: Answer) -> None:
        match answer:
            case Accepted(duplicate=True):
                self.counts["duplicates"] += 1
            case Refused(reason=reason):
                self.counts[f"refused_{reason.value}"] += 1
            case _:
                pass

    def _take_asked(self, item: Asked) -> None:
        now_ms = self._clock()
        table = self._tables.all.get(item.location)
        try:
            if table is None and item.facts is not None:
                table = self._table(item.facts, now_ms)
        except StoreLostError:
            raise
        except (PaimonMagicsError, OSError) as error:
            if item.answer is not None:
                fail([item.answer], error)
            return
        if table is None:
            if item.answer is not None:
                fail([item.answer], SetupError("Nothing was ever inserted there."))
            return
        ask = next(self._numbers)
        event = item.make(ask)
        if isinstance(event, Closed):
            self._close_or_open(table, event, item)
            return
        if item.answer is not None:
            self._asks[ask] = item.answer
        queue, effects = step(table.queue, event)
        table.queue = queue
        self._do([(table, effect) for effect in effects])
        if isinstance(event, Published):
            self.counts["flushes"] += 1
        if isinstance(event, FlushFailed) and table.moving is not None:
            with contextlib.suppress(PaimonMagicsError, OSError):  # it has another name by now
                self._tables.settle_move(table)

    def _take_work(self, item: Work) -> None:
        try:
            item.do()
        except StoreLostError:
            raise
        except (PaimonMagicsError, OSError) as error:
            item.answer.set_exception(error)
            return
        item.answer.set_result(None)

    def _close_or_open(self, table: TableQueue, event: Closed, item: Asked) -> None:
        try:
            if event.why:
                self._log.close_table(table.location, event.why)
            else:
                self._tables.open_again(table, event.now_ms, accept_loss=item.accept_loss)
        except PaimonMagicsError as error:
            if item.answer is not None:
                fail([item.answer], error)
            return
        # After an opening the table's state is that of the log: `open_again` has read it.
        queue, effects = step(table.queue, event)
        table.queue = queue
        self._do([(table, effect) for effect in effects])
        if item.answer is not None:
            deliver([(item.answer, Accepted(queue.acknowledged, Mode.ASYNC))])

    def _table(self, facts: TableInfo, now_ms: int) -> TableQueue:
        table, effects = self._tables.of(facts, now_ms)
        self._do([(table, effect) for effect in effects])
        return table

    def _fail_all(self) -> None:
        waiting: list[Answered | Future[None]] = list(self._asks.values())
        waiting += [item.answer for item in self._taken if item.answer is not None]
        self._asks.clear()
        with contextlib.suppress(queues.Empty):
            while True:
                item = self._inbox.get_nowait()
                if item is not None and item.answer is not None:
                    waiting.append(item.answer)
        fail(waiting, self.gone())
