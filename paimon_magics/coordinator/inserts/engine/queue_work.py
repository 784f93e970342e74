"""How the queues' thread processes items, in the order of their arrival.

It has the queues decide (`queue.step`), appends all records to the log at once, and only then
answers: so many inserts share one sync of the disk.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
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
    FlushFailed,
    Published,
    Reply,
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

__all__ = ["Loader", "QueueWork"]

_RETRY_SECONDS = 0.5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loader:
    """The slow work: `load` loads a batch in another thread, `bury` makes a dead letter at once."""

    load: Callable[[TableQueue, Batch], None]
    bury: Callable[[TableQueue, int, str], None]


class QueueWork:
    """For one thread, which owns the queues of `tables` and the log.

    `may_answer` raises when this coordinator may not acknowledge any more. `stopping` tells whether
    to stop waiting for a log that does not answer. `counts` has the counters since the start,
    `pending` the futures that wait for a queue's answer, by ask number.
    """

    def __init__(
        self,
        tables: TableQueues,
        log: Log,
        loader: Loader,
        may_answer: Callable[[], None],
        stopping: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._tables = tables
        self._log = log
        self._loader = loader
        self._may_answer = may_answer
        self._stopping = stopping
        self._clock = clock
        self.counts: Counter[str] = Counter()
        self.append_seconds = 0.0
        self.pending: dict[int, Answered] = {}
        self._numbers = itertools.count(1)

    def take(self, items: Sequence[Item]) -> None:
        """Process items in their order; consecutive inserts are taken together."""
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
            inserts.setdefault(item.table_info.identity, []).append(item)
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
            table = self._table(inserts[0].table_info, now_ms)
        except StoreLostError:
            raise
        except (PaimonMagicsError, OSError) as error:  # the warehouse's store, not the log
            fail([insert.answer for insert in inserts], error)
            return
        turn.take(table, inserts, self._log, self._numbers, now_ms)

    def _append(self, turn: Turn) -> None:
        """Append the decided records to the log."""
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
                if self._stopping():
                    raise
                time.sleep(_RETRY_SECONDS)
        self.append_seconds += time.perf_counter() - started
        self.counts["groups"] += 1
        reach("log.appended")

    def _carry_out(self, turn: Turn) -> None:
        """Adopt the new states, which are durable now, and carry out their effects."""
        self.pending |= {ask: insert.answer for ask, insert in turn.waiting.items()}
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
                    future = self.pending.pop(ask, None)
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
            self._wait_until_owner()
        except (PaimonMagicsError, OSError) as error:
            fail([future for future, _ in replies], error)
            raise
        deliver(replies)

    def _wait_until_owner(self) -> None:
        """Return once this coordinator may acknowledge what the log has. One whose lease has run
        out on a full disk tries to take it again; who asked waits. Raises DeposedError when another
        one has taken over, and the last error when the coordinator is stopping."""
        while True:
            try:
                self._may_answer()
            except DeposedError:
                raise
            except (PaimonMagicsError, OSError) as error:
                if self._stopping():
                    raise
                _log.error("What is stored can't be acknowledged yet: %s", error)
                time.sleep(_RETRY_SECONDS)
            else:
                return

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
            if table is None and item.table_info is not None:
                table = self._table(item.table_info, now_ms)
        except StoreLostError:
            raise
        except (PaimonMagicsError, OSError) as error:
            if item.answer is not None:
                fail([item.answer], error)
            return
        if table is None:
            if item.answer is not None:
                fail(
                    [item.answer],
                    SetupError("The table has no queue: no small insert was ever sent to it."),
                )
            return
        ask = next(self._numbers)
        event = item.make(ask)
        if isinstance(event, Closed):
            self._close_or_open(table, event, item)
            return
        if item.answer is not None:
            self.pending[ask] = item.answer
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

    def _table(self, table_info: TableInfo, now_ms: int) -> TableQueue:
        table, effects = self._tables.of(table_info, now_ms)
        self._do([(table, effect) for effect in effects])
        return table
