"""The thread that owns all queues and the log.

It takes all items that have arrived since its last turn; `queue_work` processes them.

If the process dies: every answered insert is in the log, and the next start goes on from there.
"""

from __future__ import annotations

import contextlib
import logging
import queue as queues
import threading
from collections.abc import Callable
from concurrent.futures import Future

from paimon_magics.coordinator.inserts.admission.futures import Answered, fail
from paimon_magics.coordinator.inserts.admission.items import Asked, Item, Work
from paimon_magics.coordinator.inserts.admission.table_info import TableInfo
from paimon_magics.coordinator.inserts.engine.queue_work import Loader, QueueWork
from paimon_magics.coordinator.inserts.engine.table_queues import TableQueues
from paimon_magics.coordinator.inserts.log.interface import Log
from paimon_magics.coordinator.inserts.queue.events import (
    Event,
    Ticked,
)
from paimon_magics.coordinator.inserts.queue.values import (
    Answer,
)
from paimon_magics.coordinator.protocol.clock import Clock
from paimon_magics.errors import SetupError
from paimon_magics.tables.commits.fencing import DeposedError

__all__ = ["QueueThread"]

_GROUP_MAX = 4_096
_STOPPED = "The coordinator is stopping."

_log = logging.getLogger(__name__)


class QueueThread:
    """Any thread may call `put`, `tell`, `ask` and `work`; everything else happens in one thread.

    `may_answer` raises when this coordinator may not acknowledge any more. `on_failure` is called
    once, with the error that ended the thread.
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
        self._work = QueueWork(tables, log, loader, may_answer, lambda: self.stopping, clock)
        self._on_failure = on_failure
        self.failure: BaseException | None = None
        self.deposed: DeposedError | None = None
        self.stopping = False
        self.ready = threading.Event()  # set when the log has been read, or can't be
        self._inbox: queues.SimpleQueue[Item | None] = queues.SimpleQueue()
        self._taken: list[Item] = []
        self._thread = threading.Thread(target=self._run, name="group-commit", daemon=True)

    def start(self) -> None:
        """Read the log and start the thread. Items that arrive meanwhile wait."""
        self._thread.start()

    def put(self, item: Item) -> None:
        """Hand over an item."""
        self._inbox.put(item)

    def tell(self, location: str, event: Event) -> None:
        """Give a table's queue an event that nobody waits for."""
        self.put(Asked(location, lambda _: event))

    def ask(
        self, location: str, make: Callable[[int], Event], table_info: TableInfo | None = None
    ) -> Future[Answer]:
        """Give a table's queue the event that `make` returns for an ask number; the future of its
        answer."""
        future: Future[Answer] = Future()
        if self.failure is not None:
            future.set_exception(self.gone())
        else:
            self.put(Asked(location, make, future, table_info))
        return future

    def work(self, do: Callable[[], object]) -> None:
        """Run a function in the queues' thread, and wait until it has ended."""
        if self.failure is not None:
            raise self.gone()
        done: Future[None] = Future()
        self.put(Work(do, done))
        done.result()

    def depose(self, error: DeposedError) -> None:
        """Stop answering: another coordinator owns the warehouse."""
        self.deposed = self.deposed or error
        self._inbox.put(Asked("", lambda _: Ticked(self._clock())))  # wakes the thread

    def wind_down(self) -> None:
        """Stop waiting for a log that does not answer: the process is about to end."""
        self.stopping = True

    def end(self) -> None:
        """End the thread when all items before are done."""
        self._inbox.put(None)
        self._thread.join()

    @property
    def counts(self) -> dict[str, int]:
        """The counters since the start; 0 for a name that was never counted."""
        return self._work.counts

    @property
    def append_seconds(self) -> float:
        """The total time of the log's appends, in seconds."""
        return self._work.append_seconds

    @property
    def problem(self) -> str | None:
        """Why group commit has stopped for good; None while it works."""
        return None if self.failure is None else f"Group commit has stopped: {self.failure}"

    def gone(self) -> SetupError:
        """The error for callers after the thread has stopped."""
        if isinstance(self.failure, DeposedError):
            return self.failure
        return SetupError(
            self.problem or _STOPPED, hint="Send the request again when the coordinator runs again."
        )

    # ---- the thread ----

    def _run(self) -> None:
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
                self._work.take(items)
        except BaseException as error:
            # The log's contents are unknown now: nobody may be answered from here on.
            self.failure = error
            self.ready.set()
            if not isinstance(error, DeposedError):
                _log.critical("Group commit has stopped: %s", error)
            self._fail_all()
            self._on_failure(error)

    def _next(self) -> list[Item] | None:
        """The items since the last turn, after waiting for one; None at the end."""
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

    def _fail_all(self) -> None:
        waiting: list[Answered | Future[None]] = list(self._work.pending.values())
        waiting += [item.answer for item in self._taken if item.answer is not None]
        self._work.pending.clear()
        with contextlib.suppress(queues.Empty):
            while True:
                item = self._inbox.get_nowait()
                if item is not None and item.answer is not None:
                    waiting.append(item.answer)
        fail(waiting, self.gone())
