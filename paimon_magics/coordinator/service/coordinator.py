"""The coordinator: its parts, put together, started and stopped in order.

A question becomes an event for the thread that owns the state (`state_thread`), and is answered
when the state is saved. Commits, look-ups and removals run in a pool of threads (`commit_worker`)
and come back as events. The core ensures that a table has one commit at a time.

If the process dies, every transaction that was reported to a client is stored. A commit that was
under way is looked up in the table's snapshots at the next start, before anything else happens to
its table.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from starlette.types import ASGIApp, Receive, Scope, Send

from paimon_magics.coordinator.core.events import (
    CommitPublished,
    Effect,
    Event,
    Noted,
    PauseRequested,
    Republish,
    Republished,
    Restored,
    SlotEnded,
    SlotRequested,
    UnpauseRequested,
)
from paimon_magics.coordinator.core.state import (
    CompactedBucket,
    State,
    claimed,
    still_claimed,
)
from paimon_magics.coordinator.core.values import (
    PENDING,
    Answer,
    Limits,
    Pause,
    Phase,
    Stopped,
    Suspended,
    TransactionState,
)
from paimon_magics.coordinator.ownership.ownership import Ownership
from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.protocol.documents import transaction_of
from paimon_magics.coordinator.runtime.threads import Loop, Runtime
from paimon_magics.coordinator.service.commit_worker import CommitPool, CommitWorker
from paimon_magics.coordinator.service.expiry import Upkeep
from paimon_magics.coordinator.service.guards import TableGuard
from paimon_magics.coordinator.service.publication_watch import PublicationMonitor
from paimon_magics.coordinator.service.snapshot_leases import Leases
from paimon_magics.coordinator.service.state_thread import QueuedEvent, StateThread
from paimon_magics.coordinator.service.transactions import Transactions
from paimon_magics.coordinator.store.state_store import StateStore
from paimon_magics.coordinator.turns import Turns
from paimon_magics.errors import InvalidValueError, SetupError
from paimon_magics.planning.commits.publications import Publication, Verdict
from paimon_magics.redaction import redacted
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.marks import TableIds
from paimon_magics.tables.commits.fencing import DeposedError

_logger = logging.getLogger(__name__)

_BUCKETS_MAX = 100_000  # of one transaction: some 20 MB of memory

_ERRORS_MAX = 50
_CHARACTERS_MAX = 2_000
_LOGGER = "paimon_magics"

_LOOK_MS = 1_000.0
_LOG_BYTES_MAX = 4 * 1024 * 1024
_STDERR = 2


class Coordinator:
    """Owns the commits of one warehouse. Every method may be called from any thread.

    `turns` keeps changes of one table apart; everything in this process that changes a table takes
    a turn. `transactions` opens and commits transactions, `stored` looks them up. `watching` knows
    the publications, `republished` counts the commits that were published again since the start,
    `guard` decides what may be removed, `is_restored` says whether it has taken over what was
    stored when it started, `recent_errors` has the last errors, `leases` the snapshots that are
    being read, `compactions` the buckets that are being compacted, `commits` the commits under
    way, `placed` the transactions with a place among small inserts that were open when it started.
    Without `ownership` (a warehouse whose catalog publishes snapshots by its own compare-and-swap)
    any number of coordinators may run.
    """

    placed: tuple[tuple[TransactionState, TableName], ...] = ()

    def __init__(
        self,
        catalog: Catalog,
        store: StateStore,
        settings: Settings,
        limits: Limits | None = None,
        ownership: Ownership | None = None,
        runtime: Runtime | None = None,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        limits = limits or Limits()
        self.runtime = runtime = runtime or Runtime()
        self._now_ms = clock_ms = runtime.clock.now_ms
        self.catalog = catalog
        self.load = catalog.load
        self.table_ids = TableIds(catalog)
        self._ownership = ownership
        self.store = store
        self.state_thread = StateThread(
            runtime,
            store,
            State(limits),
            happened=self._happened,
            carry_out=self._carry_out,
            may_answer=(lambda: None) if ownership is None else ownership.check_lease,
            failed=on_failure,
        )
        self.finished = self.state_thread.finished
        self.stored = self.state_thread.stored
        self.republished = 0
        self.is_restored = False
        self._listeners: list[Callable[[Publication], None]] = []
        self.recent_errors = RecentErrors()
        self.turns = Turns()
        self.watching = PublicationMonitor(
            catalog,
            store,
            self.turns,
            self.state_thread,
            None if ownership is None else ownership.fence,
        )
        self.worker = CommitWorker(
            catalog, store, settings, self.turns, self.watching, ownership, self.state_thread
        )
        self.leases = Leases(catalog, limits.lease_ms, clock_ms())
        self.compactions = CompactionClaims(lambda: self.state)
        self.guard = TableGuard(
            self.turns, self.leases, self.state_thread, ownership, self.worker.own
        )
        self.upkeep = Upkeep(catalog, store, self.state_thread, ownership, self.turns, self.guard)
        self.transactions = Transactions(
            catalog, self.state_thread, self.worker, self.watching, self.leases
        )
        self.commits = CommitPool(self.state_thread, self.worker, self.watching)
        if ownership is not None:
            ownership.when_lost(self.depose)

    def start(self) -> None:
        """Restore the stored state and start.

        Raises SetupError when something is stored and another coordinator owns the warehouse.
        """
        stored, unreadable = self._unfinished()
        if stored:
            self.worker.own()
        if self._ownership is not None and self._ownership.succeeded_another:
            stored = [transaction for transaction in stored if not self._was_committed(transaction)]
            if not self.store.database.is_shared:
                # The other one noted in its own store what it removed on purpose.
                self.store.publications.unwatch_all()
        self.placed = tuple(
            (transaction, self.state_thread.opened[transaction.id].table)
            for transaction in stored
            if transaction.placed and transaction.phase in PENDING
        )
        self.state_thread.put(
            QueuedEvent(
                Restored(
                    tuple(stored),
                    self._now_ms(),
                    tuple(self.store.publications.watched()),
                    (*unreadable, *self.store.halts.stopped()),
                    self.store.halts.pause(),
                )
            )
        )
        self.recent_errors.begin()
        self.state_thread.start()
        self.upkeep.drop_partitions = self.transactions.drop_partitions
        self.upkeep.start()

    def _unfinished(self) -> tuple[list[TransactionState], list[tuple[str, Stopped]]]:
        """The unfinished transactions, and the tables with one whose document can't be read. Such a
        table takes no commits, since it is unknown what its transaction has begun.
        """
        stored, unreadable = [], []
        for transaction, opened in self.store.transactions.unfinished():
            try:
                self.state_thread.opened[transaction.id] = transaction_of(opened)
                stored.append(transaction)
            except InvalidValueError as error:
                reason = (
                    f"The stored document of its transaction {transaction.id} can't be read: "
                    f"{error.message}"
                )
                _logger.error("The table at %s is stopped. %s", transaction.location, reason)
                unreadable.append((transaction.location, Stopped(reason, self._now_ms())))
        return stored, unreadable

    def stop(self) -> None:
        """Stop after the commits under way; open transactions stay stored."""
        self.state_thread.refuse()
        self.upkeep.stop()
        self.commits.end()
        self.state_thread.stop()
        if self._ownership is not None:
            self._ownership.release()
        self.store.close()
        self.recent_errors.end()

    def depose(self, error: DeposedError) -> None:
        """Stop answering: another coordinator owns the warehouse. For any thread."""
        self.state_thread.depose(error)

    @property
    def problem(self) -> str | None:
        """Why it accepts nothing now: it has stopped for good, or its store does not work."""
        return self.state_thread.problem

    @property
    def is_owner(self) -> bool:
        """Whether it answers for the warehouse."""
        return self.worker.epoch != 0 and self.state_thread.deposed is None

    @property
    def misplaced(self) -> SetupError | None:
        """Why the warehouse is not in its place; see `Ownership.misplaced`."""
        return None if self._ownership is None else self._ownership.misplaced

    @property
    def store_trouble(self) -> str:
        """Why the lease could not be renewed in the warehouse's store; "" when it could."""
        return "" if self._ownership is None else self._ownership.trouble

    @property
    def state(self) -> State:
        """The core's state at this moment; a value, so safe to read."""
        return self.state_thread.state

    def when_published(self, listener: Callable[[Publication], None]) -> None:
        """Call `listener`, which must not wait, with each publication from now on."""
        self._listeners.append(listener)

    @contextlib.contextmanager
    def slot(self, location: str) -> Iterator[Future[Answer]]:
        """In the `with` block, once the returned future has an answer, no commit of the table at a
        location is under way or unclear.
        """
        number = 0

        def ask_slot(ask: int) -> QueuedEvent:
            nonlocal number
            number = ask
            return QueuedEvent(SlotRequested(location, ask))

        answer = self.state_thread.ask_soon(ask_slot)
        try:
            yield answer
        finally:
            self.state_thread.put(QueuedEvent(SlotEnded(location, number)))

    def pause(self, by: str) -> Pause:
        """Let nothing new begin once this returns. An earlier pause stays, with the name of its
        requester.
        """
        self.worker.own()
        answer = self.state_thread.ask_event(lambda ask: PauseRequested(by, now_ms(), ask))
        assert isinstance(answer, Suspended)
        return answer.pause

    def unpause(self) -> None:
        """Let new things begin again."""
        self.worker.own()
        self.state_thread.ask_event(UnpauseRequested)

    def _was_committed(self, transaction: TransactionState) -> bool:
        """Whether another coordinator committed the transaction while this one was down; the
        receipt is stored if so."""
        receipt = self.worker.receipt(self.state_thread.opened[transaction.id])
        if receipt is None:
            return False
        until_ms = self._now_ms() + self.state_thread.state.limits.receipt_retention_ms
        self.store.transactions.save(
            replace(transaction, phase=Phase.COMMITTED, receipt=receipt, expires_at_ms=until_ms)
        )
        self.state_thread.opened.pop(transaction.id)
        return True

    # ---- what follows from an event ----

    def _happened(self, event: Event) -> None:
        self.is_restored = self.is_restored or isinstance(event, Restored)
        if isinstance(event, Republished) and event.finding.verdict is Verdict.REPUBLISHED:
            self.republished += 1
        if isinstance(event, CommitPublished | Noted) and event.publication is not None:
            self.upkeep.committed(event.publication.table, event.publication.location)
            for listener in self._listeners:
                listener(event.publication)

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Republish):
            self.upkeep.wrote_over()
        self.commits.carry_out(effect)


# The buckets that open transactions compact. A claim lasts as long as its transaction is open: it
# is renewed by the transaction's heartbeats, and given back when the transaction ends.


class CompactionClaims:
    """The claims of one coordinator's transactions, in memory only. For any thread."""

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state
        self._claims: dict[CompactedBucket, str] = {}
        self._guard = threading.Lock()

    def claim(self, id: str, wanted: Sequence[CompactedBucket]) -> tuple[int, ...]:
        """Let an open transaction compact the buckets that no other transaction compacts. Return
        their positions in `wanted`; () for an ended transaction. Raises InvalidValueError for too
        many buckets.
        """
        if len(wanted) > _BUCKETS_MAX:
            raise InvalidValueError(
                f"{len(wanted):,} buckets are too many for one compaction.",
                hint=f"Compact at most {_BUCKETS_MAX:,} buckets at once, by partition.",
            )
        with self._guard:
            open_ids = self._open_ids()
            if id not in open_ids:
                return ()
            claims = still_claimed(self._claims, open_ids)
            self._claims, granted = claimed(claims, wanted, id)
        return granted

    def counts(self) -> Counter[str]:
        """The number of buckets that each open transaction compacts."""
        with self._guard:
            return Counter(still_claimed(self._claims, self._open_ids()).values())

    def _open_ids(self) -> frozenset[str]:
        transactions = self._state().transactions
        return frozenset(
            id for id, transaction in transactions.items() if transaction.phase in PENDING
        )


# The last errors of this process, for its status page. The package's warnings and errors are kept
# in memory, each message once; they also go to the process's log. A restart clears them.


@dataclass(frozen=True, slots=True)
class RecentError:
    """A message, how often it was logged, and when last, in milliseconds since the epoch."""

    message: str
    count: int
    at_ms: int


class RecentErrors(logging.Handler):
    """Keeps the last messages between `begin` and `end`. For any thread."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._kept: OrderedDict[str, RecentError] = OrderedDict()
        self.total = 0
        """How many messages were logged since `begin`, including repeated messages."""

    def begin(self) -> None:
        """Keep messages from now on."""
        logging.getLogger(_LOGGER).addHandler(self)

    def end(self) -> None:
        """Keep no more messages."""
        logging.getLogger(_LOGGER).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record's message; logging calls this under the handler's lock."""
        message = redacted(record.getMessage())[:_CHARACTERS_MAX]
        before = self._kept.pop(message, None)
        count = 1 if before is None else before.count + 1
        self._kept[message] = RecentError(message, count, int(record.created * 1000))
        self.total += 1
        if len(self._kept) > _ERRORS_MAX:
            self._kept.popitem(last=False)

    def list(self) -> list[RecentError]:
        """Return the kept messages, the newest first."""
        self.acquire()
        try:
            return list(reversed(self._kept.values()))
        finally:
            self.release()


# An unsupervised coordinator ends when it has been idle for a while. It is busy while a request is
# being answered, a transaction is not finished, rows wait to be loaded, or something is under way.
# It does not wait for work that the warehouse's store prevents: rows stay in the log on disk,
# transactions in the database, and the next start continues with them. It also truncates its
# process's log when that grows long, because nobody else would.


class Idling:
    """An ASGI application around another application, which notices when no request comes.

    `end` is called once, from a thread of its own, after `idle_ms` without anything to do.
    """

    def __init__(
        self,
        runtime: Runtime,
        app: ASGIApp,
        coordinator: Coordinator,
        idle_ms: int,
        end: Callable[[], None],
        has_work: Callable[[], bool] = lambda: False,
    ) -> None:
        self._has_work = has_work
        self._app = app
        self._coordinator = coordinator
        self._idle_ms = idle_ms
        self._end = end
        self._runtime = runtime
        self._steady_ms = runtime.clock.steady_ms
        self._asking = 0
        self._since_ms = self._steady_ms()
        self._loop: Loop | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        self._asking += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._asking -= 1
            self._since_ms = self._steady_ms()

    def start(self) -> None:
        """Start to check."""
        pause_ms = min(_LOOK_MS, self._idle_ms / 4)
        self._loop = self._runtime.loop("idling", lambda: pause_ms, self._look)

    def _look(self) -> None:
        with contextlib.suppress(OSError):  # it may be no file, and closed
            if os.fstat(_STDERR).st_size > _LOG_BYTES_MAX:
                os.ftruncate(_STDERR, 0)
        state = self._coordinator.state
        is_open = (state.transactions or state.running) and not self._coordinator.store_trouble
        if self._asking or is_open or self._has_work():
            self._since_ms = self._steady_ms()
        elif self._steady_ms() - self._since_ms >= self._idle_ms and self._loop is not None:
            self._loop.stop()
            self._end()
