"""The owner of all queues: it has them decide, appends their records to the log, and answers.

It takes all items that have arrived since its last turn. Of inserts that came together the queues
decide (`queue.step`), all records are appended to the log at once, and only then they are answered:
so many inserts share one sync of the disk. Everything else that is slow is done elsewhere, and
comes back as an item.

While it is unclear whether the log has a turn's records, nothing else is appended: the turn is
appended again until that is clear. Callers who have waited too long are told that it is not known.

If the process dies: every answered insert is in the log, and the next start goes on from there.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import InvalidStateError
from dataclasses import replace
from functools import partial
from typing import Protocol

from paimon_magics.coordinator.inserts.admission.futures import Answered, deliver, fail
from paimon_magics.coordinator.inserts.admission.items import Asked, Done, Insert, Item
from paimon_magics.coordinator.inserts.admission.table_info import TableInfo
from paimon_magics.coordinator.inserts.engine.batching import Turn
from paimon_magics.coordinator.inserts.engine.table_queue import TableQueue
from paimon_magics.coordinator.inserts.log.interface import Log
from paimon_magics.coordinator.inserts.queue.events import (
    BeginFlush,
    Bury,
    Closed,
    Effect,
    Event,
    FlushUnclear,
    HoldEnded,
    Published,
    Reply,
    SettleFlush,
    Ticked,
)
from paimon_magics.coordinator.inserts.queue.step import step
from paimon_magics.coordinator.inserts.queue.values import Accepted, Answer, Queue, Refused
from paimon_magics.coordinator.runtime import Future, Runtime
from paimon_magics.coordinator.store.database import (
    StoreLostError,
    StoreUnavailableError,
    UnstorableError,
)
from paimon_magics.errors import PaimonMagicsError, SetupError, UnknownNameError
from paimon_magics.faults import reach
from paimon_magics.tables.commits.fencing import DeposedError

__all__ = ["QueueOwner", "TableWork"]

_GROUP_MAX = 4_096
_TICK_MS = 50
_UNCLEAR_MS = 5_000  # callers are not answered for so long while their turn is unclear
_GONE_MAX = 10_000
_FATAL = (StoreLostError, DeposedError)

_log = logging.getLogger(__name__)


class TableWork(Protocol):
    """The slow work for tables, done elsewhere. Its outcomes come back as events and items."""

    def open(self, table: TableQueue) -> None:
        """Check that the log has all of a table's records, and note it in the log registry;
        `QueueOwner.opened` or `not_opened` follows."""

    def load(self, table: TableQueue, effect: BeginFlush) -> None:
        """Load a batch."""

    def settle(self, table: TableQueue, effect: SettleFlush) -> None:
        """Find out what became of a batch."""

    def bury(self, table: TableQueue, effect: Bury) -> None:
        """Make a dead letter of a record."""

    def close(self, table: TableQueue, why: str) -> None:
        """Note that a table is closed."""


class QueueOwner:
    """Any thread may call its methods, except for those that say otherwise.

    `tables` has the queues by their tables' ids. `recover` reads them from the log, in the owner's
    thread. `may_answer` raises when this coordinator may not acknowledge now; it asks no store.
    `ended` is called once, with the error that ended the owner. `counts` has the counters since the
    start, `append_seconds` is the total time of the log's appends.
    """

    def __init__(
        self,
        runtime: Runtime,
        log: Log,
        recover: Callable[[], dict[str, TableQueue]],
        may_answer: Callable[[], None],
        ended: Callable[[BaseException], None],
    ) -> None:
        self._runtime = runtime
        self._now_ms = runtime.clock.now_ms
        self._log = log
        self._recover = recover
        self._may_answer = may_answer
        self._on_end = ended
        self.work: TableWork
        self.tables: dict[str, TableQueue] = {}
        self.failure: BaseException | None = None
        self.deposed: DeposedError | None = None
        self.ready = runtime.event()  # set when the log has been read, or can't be
        self.counts: Counter[str] = Counter()
        self.append_seconds = 0.0
        self._pending: dict[int, Answered] = {}
        self._numbers = itertools.count(1)
        self._gone: dict[str, None] = {}
        self._unclear: tuple[Turn, float] | None = None
        self._behind: deque[Insert] = deque()
        self._withheld: list[tuple[Answered, Answer]] = []
        self._tick_waits = False
        self._owner = runtime.owner(
            "group commit",
            self._take,
            crashed=self._crashed,
            fatal=_FATAL,
            ended=self._ended,
            items_max=_GROUP_MAX,
        )
        self.put: Callable[[Item], None] = self._owner.put

    def start(self, work: TableWork) -> None:
        """Read the log and begin to take items; those that came before wait."""
        self.work = work
        self._owner.start(self._begin)
        self._ticker = self._runtime.every("ticks of queues", _TICK_MS, self._tick)

    def tell(self, table: TableQueue, event: Event) -> None:
        """Give a table's queue an event that nobody waits for."""
        self.put(Done(lambda: self._happen(table, event)))

    def ask(
        self, table_id: str, make: Callable[[int], Event], table_info: TableInfo | None = None
    ) -> Future[Answer]:
        """Give a table's queue the event that `make` returns for an ask number; the future of its
        answer."""
        future: Future[Answer] = self._runtime.future()
        self.put(Asked(table_id, make, future, table_info))
        if self.failure is not None:  # it has ended, perhaps without seeing this
            with contextlib.suppress(InvalidStateError):
                future.set_exception(self.gone())
        return future

    def depose(self, error: DeposedError) -> None:
        """Stop answering: another coordinator owns the warehouse."""
        self.deposed = self.deposed or error
        self.put(Done(lambda: None))  # wakes the owner

    def lose(self, error: Exception) -> None:
        """End: what the log holds is not what was left there."""

        def end() -> None:
            raise error

        self.put(Done(end))

    def end(self) -> None:
        """End when all items before are done."""
        self._ticker.stop()
        self._owner.end()
        self._fail_all(self.gone())

    @property
    def unclear_ms(self) -> float:
        """For how long it has been unclear whether the log has the last records; 0 if it is not."""
        unclear = self._unclear
        return 0.0 if unclear is None else self._runtime.clock.steady_ms() - unclear[1]

    @property
    def problem(self) -> str | None:
        """Why group commit has stopped for good; None while it works."""
        return None if self.failure is None else f"Group commit has stopped: {self.failure}"

    def gone(self) -> SetupError:
        """The error for callers after the owner has stopped."""
        if isinstance(self.failure, DeposedError):
            return self.failure
        return SetupError(
            self.problem or "The coordinator is stopping.",
            hint="Send the request again when the coordinator runs again.",
        )

    # ---- outcomes of slow work, in the owner's thread ----

    def opened(self, table: TableQueue, missing: str) -> None:
        """Take the inserts that waited for a table to be opened. With `missing`, which says why
        records are missing, the table is closed."""
        if missing:
            self._happen(table, Closed(missing, self._now_ms()))
        else:
            table.is_open = True
        self._take_inserts(table.take_parked())

    def not_opened(self, table: TableQueue, error: Exception) -> None:
        """Fail the inserts that waited for a table to be opened; the next one tries it again."""
        answers = [insert.answer for insert in table.take_parked()]
        fail(answers, _shown(error))

    def reopened(self, table: TableQueue, queue: Queue, chain: int) -> None:
        """Adopt a closed table's queue as it was read again."""
        waiting = _with_holds(queue, table.queue)
        table.queue, table.chain = waiting, chain
        self._happen(table, Closed("", self._now_ms()))

    def dropped(self, table_id: str) -> None:
        """Forget a table that is gone. Later inserts are refused, also from callers that have not
        heard of the drop. Rows that wait stay, with the table's last trouble."""
        self._gone[table_id] = None
        if len(self._gone) > _GONE_MAX:
            del self._gone[next(iter(self._gone))]
        table = self.tables.get(table_id)
        if table is not None and not table.queue.batches:
            del self.tables[table_id]

    # ---- the owner's thread ----

    def _begin(self) -> None:
        self.tables = self._recover()
        self.ready.set()

    def _take(self, items: Sequence[Item]) -> None:
        """Process items in their order; consecutive inserts are taken together."""
        together: list[Insert] = []
        for item in items:
            if self.deposed is not None:
                raise self.deposed
            if isinstance(item, Insert):
                together.append(item)
                continue
            if together:
                self._take_inserts(together)
                together = []
            if isinstance(item, Done):
                self._runtime.attempt("an outcome", item.adopt, fatal=_FATAL)
            else:
                self._fail_one(item.answer, partial(self._take_asked, item))
        if together:
            self._take_inserts(together)

    def _crashed(self, items: Sequence[Item], error: Exception) -> None:
        answers = [item.answer for item in items if not isinstance(item, Done)]
        fail([one for one in answers if one is not None], _shown(error))

    def _ended(self, error: BaseException) -> None:
        # The log's contents are unknown now: nobody may be answered from here on.
        self.failure = self.deposed or error
        self.ready.set()
        if not isinstance(error, DeposedError):
            _log.critical("Group commit has stopped: %s", error)
        self._fail_all(self.gone())
        self._on_end(self.failure)

    def _fail_all(self, error: SetupError) -> None:
        waiting = [*self._pending.values(), *(future for future, _ in self._withheld)]
        waiting += [insert.answer for insert in self._behind]
        for table in self.tables.values():
            waiting += [insert.answer for insert in table.take_parked()]
        if self._unclear is not None:
            waiting += [insert.answer for insert in self._unclear[0].waiting.values()]
        self._pending.clear()
        fail(waiting, error)

    def _fail_one(self, answer: Answered | None, take: Callable[[], object]) -> None:
        error = self._runtime.attempt("a request", take, fatal=_FATAL)
        if error is not None and answer is not None:
            fail([answer], _shown(error))

    # ---- inserts ----

    def _take_inserts(self, inserts: Sequence[Insert]) -> None:
        if self._unclear is not None:
            self._behind.extend(inserts)
            return
        turn = Turn()
        by_table: dict[str, list[Insert]] = {}
        for insert in inserts:
            by_table.setdefault(insert.table_info.identity, []).append(insert)
        for some in by_table.values():
            decide = partial(self._decide, turn, some)
            error = self._runtime.attempt("inserts", decide, fatal=_FATAL)
            if error is not None:
                fail([insert.answer for insert in some], _shown(error))
        self._append(turn)

    def _decide(self, turn: Turn, inserts: Sequence[Insert]) -> None:
        """Have one table's queue decide about inserts; nothing is done yet."""
        now_ms = self._now_ms()
        table = self._table(inserts[0].table_info)
        if table.is_open or table.queue.closed:
            turn.take(table, inserts, self._log, self._numbers, now_ms)
        elif table.parked is not None:
            table.parked += inserts
        else:
            table.parked = list(inserts)
            self.work.open(table)

    def _append(self, turn: Turn) -> None:
        """Append the decided records to the log, and carry the turn out."""
        if turn.groups:
            reach("log.sealed")
            clock = self._runtime.clock
            started_ms = clock.steady_ms()
            try:
                self._log.append(turn.groups)
            except UnstorableError as error:
                self._append_each(turn, error)
                return
            except StoreUnavailableError as error:
                if not error.unclear:
                    fail([insert.answer for insert in turn.waiting.values()], error)
                    return
                _log.error("The log does not answer: %s", error)
                self._unclear = turn, started_ms
                return
            self.append_seconds += (clock.steady_ms() - started_ms) / 1000
            self.counts["groups"] += 1
            reach("log.appended")
        self._carry_out(turn)

    def _append_each(self, turn: Turn, error: UnstorableError) -> None:
        """After a turn that can't be stored take its inserts again one by one, so that the one that
        is the reason fails alone."""
        inserts = list(turn.waiting.values())
        if len(inserts) == 1:
            fail([inserts[0].answer], error)
            return
        for insert in inserts:
            self._take_inserts([insert])

    def _settle_append(self) -> None:
        """Append an unclear turn again: that tells whether the log has it."""
        if self._unclear is None:
            return
        turn, since_ms = self._unclear
        try:
            self._log.append(turn.groups)
        except StoreUnavailableError as error:
            if self._runtime.clock.steady_ms() - since_ms > _UNCLEAR_MS:
                waiting = [insert.answer for insert in turn.waiting.values()]
                waiting += [insert.answer for insert in self._behind]
                self._behind.clear()
                fail(waiting, error)
            return
        self._unclear = None
        self.counts["groups"] += 1
        reach("log.appended")
        self._carry_out(turn)
        behind = list(self._behind)
        self._behind.clear()
        self._take_inserts(behind)

    def _carry_out(self, turn: Turn) -> None:
        """Adopt the new states, which are durable now, and carry out their effects."""
        self._pending |= {ask: insert.answer for ask, insert in turn.waiting.items()}
        self.counts.update(turn.counts)
        for table, queue, chain in turn.states:
            table.queue, table.chain = queue, chain
        self._do(turn.effects)

    # ---- events and effects ----

    def _take_asked(self, item: Asked) -> None:
        table = self.tables.get(item.table_id)
        if table is None and item.table_info is not None:
            table = self._table(item.table_info)
        if table is None:
            raise SetupError("The table has no queue: no small insert was ever sent to it.")
        ask = next(self._numbers)
        event = item.make(ask)
        if item.answer is not None:
            self._pending[ask] = item.answer
        self._happen(table, event)

    def _happen(self, table: TableQueue, event: Event) -> None:
        """Have a table's queue decide about an event, and carry its effects out."""
        if isinstance(event, Closed) and event.why:
            _log.error("`%s` takes no inserts: %s", table.name, event.why)
            self.work.close(table, event.why)
        table.queue, effects = step(table.queue, event)
        if isinstance(event, Published):
            self.counts["flushes"] += 1
        self._do([(table, effect) for effect in effects])

    def _do(self, effects: Iterable[tuple[TableQueue, Effect]]) -> None:
        replies: list[tuple[Answered, Answer]] = []
        for table, effect in effects:
            match effect:
                case Reply(ask=ask, answer=answer):
                    future = self._pending.pop(ask, None)
                    self._count(answer)
                    if future is not None:
                        replies.append((future, answer))
                case BeginFlush():
                    self.work.load(table, effect)
                case SettleFlush():
                    self.work.settle(table, effect)
                case Bury():
                    self.work.bury(table, effect)
                case _:
                    raise AssertionError(effect)
        self._reply(replies)

    def _reply(self, replies: list[tuple[Answered, Answer]]) -> None:
        """Answer, unless this coordinator's lease has run out: then answers wait until it is taken
        again. Raises DeposedError when another one has taken over."""
        replies = self._withheld + replies
        if not replies:
            return
        try:
            self._may_answer()
        except DeposedError:
            self._withheld = replies
            raise
        except PaimonMagicsError as error:
            if not self._withheld:
                _log.error("What is stored can't be acknowledged yet: %s", error)
            self._withheld = replies
        else:
            self._withheld = []
            deliver(replies)

    def _count(self, answer: Answer) -> None:
        match answer:
            case Accepted(duplicate=True):
                self.counts["duplicates"] += 1
            case Refused(reason=reason):
                self.counts[f"refused_{reason.value}"] += 1
            case _:
                pass

    def _table(self, table_info: TableInfo) -> TableQueue:
        """The table's queue, which is made at the first insert."""
        id = table_info.identity
        if id in self._gone:
            raise UnknownNameError(
                f"`{table_info.name}` was dropped.", hint="SHOW TABLES lists what is there."
            )
        table = self.tables.get(id)
        if table is None:
            queue = Queue(table_info.thresholds)
            table = self.tables[id] = TableQueue(id, table_info.name, queue)
        if table.name != table_info.name:
            self._renamed(table)
        table.name, table.mode = table_info.name, table_info.mode
        if table.queue.thresholds != table_info.thresholds:
            self._happen(table, Ticked(self._now_ms(), table_info.thresholds))
        return table

    def _renamed(self, table: TableQueue) -> None:
        """End the holds of statements that were to rename a table, or drop it: it has another name.
        Their clients may have died."""
        for hold in table.queue.holds:
            if hold.refuses:
                self._happen(table, HoldEnded(hold.id, self._now_ms()))

    # ---- time ----

    def _tick(self) -> None:
        """Wake the owner where time matters to something that waits."""
        waits = self._unclear is not None or bool(self._withheld)
        if not self._tick_waits and (
            waits or any(table.queue.batches for table in list(self.tables.values()))
        ):
            self._tick_waits = True
            self.put(Done(self._ticked))

    def _ticked(self) -> None:
        self._tick_waits = False
        self._settle_append()
        self._reply([])
        now_ms = self._now_ms()
        for table in list(self.tables.values()):
            if table.queue.batches:
                self._runtime.attempt(
                    "a tick", partial(self._happen, table, Ticked(now_ms)), fatal=_FATAL
                )


def _with_holds(queue: Queue, before: Queue) -> Queue:
    """A queue that was read from the log, with the statements' holds that it had before."""
    return replace(queue, holds=before.holds)


def unclear(error: Exception, now_ms: int) -> FlushUnclear:
    """The event for a batch whose loading ended in an error that tells nothing."""
    return FlushUnclear(_shown(error).message, now_ms)


def _shown(error: Exception) -> PaimonMagicsError:
    """An error for callers; what nobody expected names its type."""
    if isinstance(error, PaimonMagicsError):
        return error
    return SetupError(
        f"The coordinator failed unexpectedly: {error!r}",
        hint="Whether the request was carried out is not known. Send it again with its label.",
    )
