"""Group commit put together: the queues' thread, the loaders, and the places of statements.

Inserts go to one thread (`queue_thread`), which makes them durable and answers. A pool of threads
(`load_pool`) loads batches; a process of its own (`loading.flusher_process`) writes their files.

If the process dies: every answered insert is in the log, and the next start goes on from there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from paimon_magics.coordinator.inserts.admission.futures import fail
from paimon_magics.coordinator.inserts.admission.items import Asked, Insert
from paimon_magics.coordinator.inserts.admission.table_info import KnownTables, TableInfo
from paimon_magics.coordinator.inserts.engine.backlog import Backlog
from paimon_magics.coordinator.inserts.engine.dead_letters import DeadLetters
from paimon_magics.coordinator.inserts.engine.holds import Places
from paimon_magics.coordinator.inserts.engine.load_pool import Loading
from paimon_magics.coordinator.inserts.engine.queue_thread import QueueThread
from paimon_magics.coordinator.inserts.engine.queue_work import Loader
from paimon_magics.coordinator.inserts.engine.statement_order import StatementOrder
from paimon_magics.coordinator.inserts.engine.table_queues import TableQueue, TableQueues
from paimon_magics.coordinator.inserts.engine.ticker import Ticker
from paimon_magics.coordinator.inserts.loading.dead_letter_table import DeadLetterTable
from paimon_magics.coordinator.inserts.loading.flush import Flushing
from paimon_magics.coordinator.inserts.loading.flusher_process import Flusher
from paimon_magics.coordinator.inserts.log.registry import RegisteredLog
from paimon_magics.coordinator.inserts.queue.events import Closed, FlushAsked
from paimon_magics.coordinator.inserts.queue.values import Answer, Thresholds
from paimon_magics.coordinator.ownership.ownership import Ownership
from paimon_magics.coordinator.protocol.clock import Clock, now_ms
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.errors import PaimonMagicsError, UnknownNameError
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.fencing import DeposedError
from paimon_magics.tables.snapshots.latest import latest_snapshot_id

__all__ = ["Buffered", "GroupCommit", "GroupCommitSettings"]

_STOP_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Buffered:
    """The acknowledged records that the table's latest snapshot (0 for none) does not show: those
    above `published` up to `acknowledged`, in segments by their first lsns."""

    snapshot_id: int
    published: int
    acknowledged: int
    segments: tuple[tuple[int, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupCommitSettings:
    """`thresholds` are for tables that set none. `label_retention_ms` is how long a label is
    remembered after its last use. Files are written with the settings `writing`."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    label_retention_ms: int = 3 * 86_400_000  # as long as Doris keeps labels
    writing: Settings = field(default_factory=Settings)


class GroupCommit:
    """Owns the queues of a warehouse's tables. Every method may be called from any thread.

    `tables` are those that have or had inserts. `places` keeps the order of operations other than
    inserts, and `order` gives places to statements. `letters` has the dead letters, `backlog` what
    waits. `on_failure` is called once, when no insert can be taken before a new start has read the
    log. `ownership` is None where nobody contests the warehouse.
    """

    def __init__(
        self,
        catalog: Catalog,
        coordinator: Coordinator,
        log: RegisteredLog,
        settings: GroupCommitSettings,
        ownership: Ownership | None = None,
        *,
        on_failure: Callable[[], None] = lambda: None,
        clock: Clock = now_ms,
    ) -> None:
        self._clock = clock
        self._catalog = catalog
        self._coordinator = coordinator
        self._log = log.log
        self._on_failure = on_failure
        self._refusing = False
        own = _nothing if ownership is None else ownership.acquire
        self._flusher = Flusher()
        flushing = Flushing(
            catalog,
            coordinator,
            self._log,
            self._flusher,
            settings.writing,
            lambda: self._thread.stopping,
        )
        self._queues = self._table_queues(log, flushing, own, settings.thresholds)
        self.backlog = Backlog(self._queues)
        dead_letter_table = DeadLetterTable(catalog, coordinator, settings.writing)
        self.letters = DeadLetters(self._log, dead_letter_table, self.backlog.name_of)
        self._loading = Loading(
            flushing,
            self._log,
            lambda identity, event: self._thread.tell(identity, event),
            coordinator.depose,
            self.letters.buried,
            clock,
        )
        self._thread = QueueThread(
            self._queues,
            self._log,
            Loader(self._loading.load, self._loading.bury),
            _nothing if ownership is None else ownership.check_time,
            self._failed,
            clock,
        )
        self.known_tables = KnownTables(catalog, coordinator.table_ids, settings.thresholds, own)
        may_commit, why_not = self._may_commit, self.backlog.why_not_loaded
        self.places = Places(self._thread, self.known_tables, may_commit, why_not, clock)
        self.order = StatementOrder(self.places, self._queues, self.known_tables, self._thread.work)
        self._ticker = self._ticker_of(settings.label_retention_ms)
        if ownership is not None:
            ownership.when_lost(self.depose)

    def _ticker_of(self, label_retention_ms: int) -> Ticker:
        return Ticker(
            self._thread,
            self._queues,
            self.places,
            self._loading,
            self.letters,
            lambda at_ms: self._log.forget(at_ms - label_retention_ms),
            self._clock,
        )

    def start(self) -> None:
        """Read the log and start the threads. Inserts that arrive meanwhile wait."""
        self._thread.start()
        self._ticker.start()

    def wind_up(self) -> list[Future[Answer]]:
        """Refuse new inserts and begin to load what waits. Return the futures of those flushes."""
        self._refusing = True
        return [
            self.flush(one.location)
            for one in list(self.tables.values())
            if one.queue.batches and not one.queue.closed and self._thread.deposed is None
        ]

    def depose(self, error: DeposedError) -> None:
        """Stop answering: another coordinator owns the warehouse."""
        self._thread.depose(error)

    def stop(self) -> None:
        """Refuse new inserts, load what waits (for up to 20 seconds), and end."""
        deadline = time.monotonic() + _STOP_SECONDS
        for future in self.wind_up():
            with contextlib.suppress(Exception):
                future.result(max(0.0, deadline - time.monotonic()))
        self._thread.wind_down()
        self._ticker.join()
        self._loading.end()
        self._thread.end()
        if self._thread.failure is None:
            with contextlib.suppress(PaimonMagicsError, OSError):
                self._queues.note_clean()
        self._flusher.close()
        self._log.close()

    # ---- state and counters ----

    @property
    def tables(self) -> dict[str, TableQueue]:
        """The queues, by their tables' identities."""
        return self._queues.all

    @property
    def counts(self) -> dict[str, int]:
        """The counters since the start; 0 for a name that was never counted."""
        return self._thread.counts

    @property
    def append_seconds(self) -> float:
        """The total time of the log's appends, in seconds."""
        return self._thread.append_seconds

    @property
    def problem(self) -> str | None:
        """Why group commit has stopped for good; None while it works."""
        return self._thread.problem

    @property
    def log_name(self) -> str:
        """The log's name, for people."""
        return self._log.name

    @property
    def flusher_pid(self) -> int | None:
        """The id of the process that writes files, if it runs."""
        return self._flusher.pid

    @property
    def flusher_busy_seconds(self) -> float:
        """How long the process that writes files has had its present job."""
        return self._flusher.busy_seconds

    # ---- requests ----

    def submit(self, insert: Insert) -> None:
        """Hand over an insert; the answer comes in its future."""
        if self._thread.failure is not None or self._refusing:
            fail([insert.answer], self._thread.gone())
            return
        self._thread.put(insert)

    def queue_of(self, table_info: TableInfo) -> TableQueue | None:
        """The table's queue; None if nothing was ever inserted. May wait for the queues' thread,
        which reads the log first."""
        self._thread.ready.wait()
        return self.tables.get(table_info.identity)

    def flush(self, location: str) -> Future[Answer]:
        """Have everything acknowledged until now loaded; the answer comes when it is visible."""
        return self._thread.ask(location, lambda ask: FlushAsked(ask, self._clock()))

    def buffered(self, table_info: TableInfo) -> Buffered:
        """The acknowledged records that are not in the table, and the snapshot that they follow.
        Nothing is loaded while both are read. Raises CommitConflictError as `Places.of_look` does.
        """
        if self.queue_of(table_info) is None:
            return Buffered(latest_snapshot_id(self._catalog.load(table_info.name)), 0, 0)
        with self.places.of_look(table_info) as published:
            acknowledged = self.tables[table_info.identity].queue.acknowledged
            snapshot_id = latest_snapshot_id(self._catalog.load(table_info.name))
            segments = self._log.read(table_info.identity, published + 1, acknowledged)
            return Buffered(snapshot_id, published, acknowledged, tuple(segments))

    def reopen(self, table_info: TableInfo, *, accept_loss: bool) -> None:
        """Open a closed table again. With `accept_loss` it goes on without the records that are
        missing or damaged; otherwise raises SetupError while any are missing."""
        done: Future[Answer] = Future()
        opened = Closed("", self._clock())
        self._thread.put(
            Asked(table_info.identity, lambda _: opened, done, table_info, accept_loss)
        )
        done.result()

    # ---- between the parts ----

    def _table_queues(
        self,
        log: RegisteredLog,
        flushing: Flushing,
        own: Callable[[], object],
        defaults: Thresholds,
    ) -> TableQueues:
        def on_open() -> None:
            self._loading.soon(self._flusher.warm_up)

        return TableQueues(log, flushing, self._identity_at, own, defaults, on_open)

    def _identity_at(self, name: TableName) -> str | None:
        try:
            return self._coordinator.table_ids.id_of(self._catalog.load(name), look=True)
        except UnknownNameError:
            return None

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, DeposedError):
            self._coordinator.depose(error)
        else:
            self._on_failure()

    def _may_commit(self, transaction_id: str) -> bool:
        held = self._coordinator.state.held.get(transaction_id)
        return held is not None and held.phase.value in ("active", "committing", "unclear")


def _nothing() -> None:
    """Stands for the ownership checks where nobody contests the warehouse."""
