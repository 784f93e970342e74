"""The owner of all queues: it lets them decide, appends their records to the log, and answers.

It takes all items that arrived since its last turn; inserts that came together share one append
(`appending`). All other slow work is done elsewhere, and comes back as an item.

If the process dies: every answered insert is in the log, and the next start goes on from there.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from paimon_magics.coordinator.inserts.admission.items import (
    Answered,
    Done,
    Insert,
    Item,
    TableRequest,
    fail,
    fail_items,
)
from paimon_magics.coordinator.inserts.admission.validator import TableInfo
from paimon_magics.coordinator.inserts.engine.appending import FATAL, Appending
from paimon_magics.coordinator.inserts.engine.replies import Replies, TableQueue, dropped, shown
from paimon_magics.coordinator.inserts.log.log import Log
from paimon_magics.coordinator.inserts.queue.events import (
    BeginFlush,
    Bury,
    Closed,
    Effect,
    Event,
    HoldEnded,
    Published,
    Reply,
    SettleFlush,
    Ticked,
)
from paimon_magics.coordinator.inserts.queue.step import step
from paimon_magics.coordinator.inserts.queue.values import Answer, Queue
from paimon_magics.coordinator.protocol.errors import about
from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.store.database import StoreUnavailableError
from paimon_magics.errors import SetupError
from paimon_magics.tables.commits.fencing import DeposedError

if TYPE_CHECKING:  # each knows the other
    from paimon_magics.coordinator.inserts.engine.loading import LoadPool

_GROUP_MAX = 4_096
_TICK_MS = 50
_AGAIN_MS = 500
_GONE_MAX = 10_000

_log = logging.getLogger(__name__)


class QueueOwner:
    """Any thread may call its methods, unless a method says otherwise.

    `tables` has the queues by their tables' ids. `recover` reads them from the log, in the owner's
    thread. `may_answer` raises when this coordinator may not acknowledge now; it asks no store.
    `ended` is called once, with the error that ended the owner. `replies` has the counters since
    the start, `appending` the state of the log.
    """

    def __init__(
        self,
        runtime: Runtime,
        log: Log,
        recover: Callable[[], dict[str, TableQueue]],
        may_answer: Callable[[], None],
        ended: Callable[[BaseException], None],
    ) -> None:
        self.runtime = runtime
        self._now_ms = runtime.clock.now_ms
        self._recover = recover
        self._on_end = ended
        self.work: LoadPool
        self.tables: dict[str, TableQueue] = {}
        self.failure: BaseException | None = None
        self.deposed: DeposedError | None = None
        self.ready = threading.Event()  # set when the log has been read, or can't be
        self.replies = Replies(may_answer)
        self.appending = Appending(
            runtime, log, self.replies, self._table, self._park, self._do, self._take
        )
        self._gone: dict[str, None] = {}
        self._tick_waits = False
        self._is_ending = False
        self._owner = runtime.owner(
            "group commit",
            self._take,
            crashed=self._crashed,
            fatal=FATAL,
            ended=self._ended,
            items_max=_GROUP_MAX,
        )
        self.put: Callable[[Item], None] = self._owner.put

    def start(self, work: LoadPool) -> None:
        """Read the log and begin to take items; earlier items wait."""
        self.work = work
        self._owner.start(self._begin)
        self._ticker = self.runtime.every("ticks of queues", _TICK_MS, self._tick)

    def tell(self, table: TableQueue, event: Event) -> None:
        """Give a table's queue an event that nobody waits for."""
        self.put(Done(lambda: self.happen(table, event)))

    def ask(
        self, table_id: str, make: Callable[[int], Event], table_info: TableInfo | None = None
    ) -> Future[Answer]:
        """Give a table's queue the event that `make` returns for an ask number. Return the future
        of its answer.
        """
        future: Future[Answer] = Future()
        self.put(TableRequest(table_id, make, future, table_info))
        if self.failure is not None:  # it has ended, perhaps without seeing this
            with contextlib.suppress(InvalidStateError):
                future.set_exception(self.gone())
        return future

    def depose(self, error: DeposedError) -> None:
        """Stop answering: another coordinator owns the warehouse."""
        self.deposed = self.deposed or error
        self.put(Done(lambda: None, at_once=True))  # wakes the owner

    def lose(self, error: Exception) -> None:
        """End: the log's contents are not what this coordinator left there."""

        def end() -> None:
            raise error

        self.put(Done(end, at_once=True))

    def end(self) -> None:
        """End when all items before are done."""
        self._is_ending = True
        self._ticker.stop()
        self._owner.end()
        self._fail_all(self.gone())

    @property
    def problem(self) -> str | None:
        """Why group commit has stopped for good; None while it works."""
        return None if self.failure is None else f"Group commit has stopped: {self.failure}"

    def gone(self) -> SetupError:
        """The error for callers after the owner has stopped, about items that it never took."""
        if isinstance(self.failure, DeposedError):
            return self.failure
        return SetupError(
            self.problem or "The coordinator is stopping.",
            hint="Send the request again when the coordinator is running again.",
        )

    # ---- outcomes of slow work, in the owner's thread ----

    def happen(self, table: TableQueue, event: Event) -> None:
        """Let a table's queue decide about an event, and carry its effects out."""
        if isinstance(event, Closed) and event.why:
            with about(table.name):
                _log.error("`%s` accepts no inserts: %s", table.name, event.why)
        table.queue, effects = step(table.queue, event)
        if isinstance(event, Closed):
            self.work.note_closed(table)
        if isinstance(event, Published):
            self.replies.counts["flushes"] += 1
        self._do([(table, effect) for effect in effects])

    def opened(self, table: TableQueue, missing: str) -> None:
        """Take the items that waited for a table to open. `missing` says why records are missing;
        it closes the table, unless the table was opened since that check.
        """
        if not missing:
            table.is_open = True
        elif not table.is_open:
            self.happen(table, Closed(missing, self._now_ms()))
        self._take(table.take_parked())

    def not_opened(self, table: TableQueue, error: Exception) -> None:
        """Fail the items that waited for a table to open; the next insert or hold tries to open it
        again.
        """
        fail_items(table.take_parked(), shown(error))

    def reopened(self, table: TableQueue, queue: Queue, chain: int) -> None:
        """Adopt the queue of a closed table that was read again, or of a dropped one whose folder
        an administrator has put back."""
        self._gone.pop(table.id, None)
        table = self.tables.setdefault(table.id, table)
        # The statements' holds outlast the queue that they were in.
        table.queue, table.chain = replace(queue, holds=table.queue.holds), chain
        self.happen(table, Closed("", self._now_ms()))

    def dropped(self, table_id: str) -> None:
        """Forget a dropped table and its waiting items. Later inserts are refused, also from
        callers that don't know of the drop.
        """
        self._gone[table_id] = None
        if len(self._gone) > _GONE_MAX:
            del self._gone[next(iter(self._gone))]
        table = self.tables.pop(table_id, None)
        if table is not None:
            fail_items(table.take_parked(), dropped(table.name))
            table.queue, effects = step(table.queue, Closed("It was dropped", self._now_ms()))
            self._do([(table, effect) for effect in effects])

    # ---- the owner's thread ----

    def _begin(self) -> None:
        """Read the log; while it does not answer, arrived items wait."""
        while not self.ready.is_set():
            try:
                self.tables = self._recover()
            except StoreUnavailableError as error:
                if self.deposed is not None or self._is_ending:
                    raise
                _log.error("The log can't be read yet: %s", error)
                time.sleep(_AGAIN_MS / 1000)
            else:
                self.ready.set()

    def _take(self, items: Sequence[Item]) -> None:
        """Process items in their order; they may also be a table's parked items."""
        try:
            self._take_each(items)
        except FATAL as error:
            self.failure = self.deposed or error
            fail_items(items, self.gone())
            raise

    def _take_each(self, items: Sequence[Item]) -> None:
        """Process items; consecutive inserts are taken together."""
        together: list[Insert] = []
        for item in items:
            if self.deposed is not None:
                raise self.deposed
            if isinstance(item, Insert):
                together.append(item)
                continue
            if together:
                self.appending.take(together)
                together = []
            if self.appending.is_unclear and not (isinstance(item, Done) and item.at_once):
                self.appending.wait(item)
            elif isinstance(item, Done):
                self.runtime.attempt("an outcome", item.adopt, fatal=FATAL)
            else:
                self._fail_one(item.answer, partial(self._take_request, item))
        if together:
            self.appending.take(together)

    def _crashed(self, items: Sequence[Item], error: Exception) -> None:
        fail_items(items, shown(error) if self.failure is None else self.gone())

    def _ended(self, error: BaseException) -> None:
        # The log's contents are unknown now: nobody may be answered from here on.
        self.failure = self.deposed or error
        self.ready.set()
        if not isinstance(error, DeposedError):
            _log.critical("Group commit has stopped: %s", error)
        self._fail_all(self.gone())
        self._on_end(self.failure)

    def _fail_all(self, error: SetupError) -> None:
        self.replies.fail_all(error)
        parked = [item for table in self.tables.values() for item in table.take_parked()]
        fail_items([*self.appending.waiting, *parked], error)

    def _fail_one(self, answer: Answered | None, take: Callable[[], object]) -> None:
        error = self.runtime.attempt("a request", take, fatal=FATAL)
        if error is not None and answer is not None:
            fail([answer], shown(error))

    # ---- events and effects ----

    def _take_request(self, item: TableRequest) -> None:
        table = self.tables.get(item.table_id)
        if table is None and item.table_info is not None:
            table = self._table(item.table_info)
        if table is None:
            raise SetupError("The table has no queue: no small insert was ever sent to it.")
        if item.table_info is not None and not (table.is_open or table.queue.closed):
            self._park(table, [item])  # another log may have rows that were acknowledged
            return
        ask = next(self.replies.numbers)
        event = item.make(ask)
        if item.answer is not None:
            self.replies.expect({ask: item})
        self.happen(table, event)

    def _do(self, effects: Iterable[tuple[TableQueue, Effect]]) -> None:
        replies: list[Reply] = []
        for table, effect in effects:
            match effect:
                case Reply():
                    replies.append(effect)
                case BeginFlush():
                    self.work.load(table, effect)
                case SettleFlush():
                    self.work.settle(table, effect)
                case Bury():
                    self.work.bury(table, effect)
                case _:
                    raise AssertionError(effect)
        self.replies.give(replies)

    def _park(self, table: TableQueue, items: Sequence[Insert | TableRequest]) -> None:
        """Make items wait until a table is open."""
        if table.parked is not None:
            table.parked += items
        else:
            table.parked = list(items)
            self.work.open(table)

    def _table(self, table_info: TableInfo) -> TableQueue:
        """The table's queue, which is made at the first insert."""
        id = table_info.identity
        if id in self._gone:
            raise dropped(table_info.name)
        table = self.tables.get(id)
        if table is None:
            queue = Queue(table_info.thresholds)
            table = self.tables[id] = TableQueue(id, table_info.name, queue)
        if table.name != table_info.name:
            self._renamed(table)
        table.name, table.mode = table_info.name, table_info.mode
        if table.queue.thresholds != table_info.thresholds:
            self.happen(table, Ticked(self._now_ms(), table_info.thresholds))
        return table

    def _renamed(self, table: TableQueue) -> None:
        """End the holds of statements that meant to rename or drop a table, which has another name
        now. Their clients may have died.
        """
        for hold in table.queue.holds:
            if hold.refuses:
                self.happen(table, HoldEnded(hold.id, self._now_ms()))

    # ---- time ----

    def _tick(self) -> None:
        """Wake the owner if a waiting item depends on time."""
        waits = self.appending.is_unclear or self.replies.are_withheld
        if not self._tick_waits and (
            waits or any(table.queue.batches for table in list(self.tables.values()))
        ):
            self._tick_waits = True
            self.put(Done(self._ticked, at_once=True))

    def _ticked(self) -> None:
        self._tick_waits = False
        self.appending.settle()
        self.replies.give([])
        if self.appending.is_unclear:
            return
        now_ms = self._now_ms()
        for table in list(self.tables.values()):
            if table.queue.batches:
                self.runtime.attempt(
                    "a tick", partial(self.happen, table, Ticked(now_ms)), fatal=FATAL
                )
