"""Group commit put together: the owner of the queues, the pools that load, and statements' holds.

Inserts go to one owner (`queue_owner`), which makes them durable and answers. Pools load batches
(`loading`); processes of their own (`loading.flusher_process`) write their files.

If the process dies: every answered insert is in the log, and the next start goes on from there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from paimon_magics.coordinator.core.values import PENDING
from paimon_magics.coordinator.inserts.admission.items import (
    Insert,
    fail,
    fail_items,
    not_known,
)
from paimon_magics.coordinator.inserts.admission.validator import KnownTables, TableInfo
from paimon_magics.coordinator.inserts.engine.appending import FATAL, repeated
from paimon_magics.coordinator.inserts.engine.holds import StatementHolds
from paimon_magics.coordinator.inserts.engine.loading import LoadPool
from paimon_magics.coordinator.inserts.engine.queue_owner import QueueOwner
from paimon_magics.coordinator.inserts.engine.recovery import recovered
from paimon_magics.coordinator.inserts.engine.replies import TableQueue
from paimon_magics.coordinator.inserts.loading.dead_letter_table import DeadLetters
from paimon_magics.coordinator.inserts.loading.flush import BatchLoader
from paimon_magics.coordinator.inserts.loading.flusher_process import FlushProcesses
from paimon_magics.coordinator.inserts.log.log import LogTable, table_name
from paimon_magics.coordinator.inserts.log.registry import RegisteredLog
from paimon_magics.coordinator.inserts.queue.events import Arrived, FlushRequested
from paimon_magics.coordinator.inserts.queue.values import (
    Answer,
    Arrival,
    Queue,
    Thresholds,
    backlog,
)
from paimon_magics.coordinator.ownership.ownership import Ownership
from paimon_magics.coordinator.runtime.work import Steps
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.store.database import StoreUnavailableError
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.fencing import DeposedError
from paimon_magics.tables.snapshots.latest import latest_snapshot_id

_STOP_SECONDS = 20.0
_LOOK_MS = 10_000.0
_NOTE_EVERY_MS = 5_000
_FORGET_EVERY_MS = 60_000


@dataclass(frozen=True, slots=True)
class Buffered:
    """The acknowledged records that are not in the table's latest snapshot (0 for none): records
    above `published` up to `acknowledged`, in segments by their first lsns.
    """

    snapshot_id: int
    published: int
    acknowledged: int
    segments: tuple[tuple[int, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupCommitSettings:
    """`thresholds` are for tables without own thresholds. `label_retention_ms` is how long a label
    is remembered after its last use. Files are written with the settings `writing`.
    """

    thresholds: Thresholds = field(default_factory=Thresholds)
    label_retention_ms: int = 3 * 86_400_000  # as long as Doris keeps labels
    writing: Settings = field(default_factory=Settings)


class GroupCommit:
    """Owns the queues of a warehouse's tables. Every method may be called from any thread.

    `tables` has the tables that have or had inserts, by their ids. `holds` keeps the order of
    operations other than inserts. `letters` has the dead letters, `backlog` the waiting rows.
    `flusher` has the processes that write files. `on_failure` is called once, when no insert can be
    accepted before a new start has read the log. `ownership` is None if no other coordinator can
    own the warehouse.
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
    ) -> None:
        self.runtime = runtime = coordinator.runtime
        self._catalog = catalog
        self._coordinator = coordinator
        self._log = log.log
        self._settings = settings
        self._on_failure = on_failure
        self._refusing = False
        own: Callable[[], object] = _nothing if ownership is None else ownership.acquire
        self._ids = coordinator.table_ids
        self.flusher = FlushProcesses()
        loader = BatchLoader(catalog, coordinator, log, self.flusher, settings.writing)
        self._registry = log.registry
        may_answer = _nothing if ownership is None else ownership.check_lease
        self.owner = QueueOwner(runtime, self._log, self._recovered, may_answer, self._failed)
        self.backlog = Backlog(self.owner)
        self.letters = DeadLetters(
            catalog, coordinator, settings.writing, self._log, self.backlog.name_of
        )
        self._loading = LoadPool(
            self.owner,
            loader,
            log,
            ownership,
            settings.thresholds,
            self._lose,
            self.letters.write_new,
        )
        self.known_tables = KnownTables(runtime, catalog, self._ids, settings.thresholds, own)
        self.holds = StatementHolds(
            runtime,
            self.owner,
            self._loading,
            self.known_tables,
            self._may_commit,
            self.backlog.why_not_loaded,
        )
        if ownership is not None:
            ownership.when_lost(self.owner.depose)

    def start(self) -> None:
        """Read the log and start. Inserts that arrive meanwhile wait."""
        self.owner.start(self._loading)
        self.holds.start()
        self._loading.pool.run("dead letters", self.letters.write_all)
        self._timers = (
            self.runtime.every("notes", _NOTE_EVERY_MS, self._note_ends),
            self.runtime.every("labels", _FORGET_EVERY_MS, self._forget),
        )

    def wind_up(self) -> list[Future[Answer]]:
        """Refuse new inserts and begin to load waiting rows. Return the futures of these
        flushes."""
        self._refusing = True
        return [
            self.flush(table.id)
            for table in list(self.tables.values())
            if table.queue.batches and not table.queue.closed and self.owner.deposed is None
        ]

    def check_log(self) -> None:
        """Raise an error if the log accepts no records now, or its registry is unreachable."""
        self._log.check()
        self._registry.check()

    def stop(self) -> None:
        """Refuse new inserts, load waiting rows (for up to 20 seconds), and end."""
        clock = self.runtime.clock
        deadline_ms = clock.steady_ms() + _STOP_SECONDS * 1000
        for future in self.wind_up():
            with contextlib.suppress(PaimonMagicsError, TimeoutError):
                future.result(max(0.0, deadline_ms - clock.steady_ms()) / 1000)
        for timer in self._timers:
            timer.stop()
        self.holds.stop()
        self.known_tables.end()
        self.flusher.close()
        self._loading.end([] if self.owner.failure else list(self.tables.values()))
        self.owner.end()
        self._log.close()

    # ---- state and counters ----

    @property
    def tables(self) -> Mapping[str, TableQueue]:
        """The queues, by their tables' ids."""
        return self.owner.tables

    @property
    def problem(self) -> str | None:
        """Why group commit has stopped for good; None while it works."""
        return self.owner.problem

    # ---- requests ----

    def submit(self, insert: Insert) -> None:
        """Hand over an insert; the answer comes in its future."""
        if self._refusing:
            fail([insert.answer], self.owner.gone())
            return
        self.owner.put(insert)
        if self._refusing:  # since then: the owner may have it, or has ended before
            fail([insert.answer], not_known(insert, self.owner.gone()))
        elif self.owner.failure is not None:
            fail_items([insert], self.owner.gone())

    def queue_of(self, table_info: TableInfo) -> TableQueue | None:
        """The table's queue; None if nothing was ever inserted. May wait until the owner has read
        the log.
        """
        self.owner.ready.wait()
        return self.tables.get(table_info.identity)

    def flush(self, table_id: str) -> Future[Answer]:
        """Load everything acknowledged until now; the answer comes when it is visible."""
        now_ms = self.runtime.clock.now_ms
        return self.owner.ask(table_id, lambda ask: FlushRequested(ask, now_ms()))

    def repeated(self, name: TableName, arrival: Arrival) -> Future[Answer] | None:
        """Answer an insert into the table that last had that name, if it repeats an accepted
        insert; else it is refused with `Reason.NEW`. None if the table has no queue."""
        self.owner.ready.wait()
        table_id = self.backlog.identity_of(name)
        if table_id is None:
            return None
        now_ms = self.runtime.clock.now_ms

        def arrived(ask: int) -> Arrived:
            arrivals = (repeated(self._log, table_id, arrival._replace(ask=ask)),)
            return Arrived(arrivals, now_ms())

        return self.owner.ask(table_id, arrived)

    def buffered(self, table_info: TableInfo) -> Steps[Buffered]:
        """The acknowledged records that are not in the table, and the snapshot that they follow.
        Nothing is loaded while both are read. Raises CommitConflictError if a running load does not
        end in time, or the table is closed.
        """
        table = self.queue_of(table_info)
        if table is None:
            return Buffered(latest_snapshot_id(self._catalog.load(table_info.name)), 0, 0)
        hold = self.holds.take(table_info, drains=False, wait_ms=_LOOK_MS)
        try:
            published = yield hold.granted
            acknowledged = table.queue.acknowledged
            snapshot_id = latest_snapshot_id(self._catalog.load(table_info.name))
            segments = self._log.read(table_info.identity, published + 1, acknowledged)
            return Buffered(snapshot_id, published, acknowledged, tuple(segments))
        finally:
            self.holds.end(hold)

    def reopen(self, table_info: TableInfo, *, accept_loss: bool) -> Future[None]:
        """Open a closed table again. With `accept_loss` it continues without the records that are
        missing, damaged, or can't be loaded. Otherwise it fails with SetupError while any are
        missing.
        """
        self.owner.ready.wait()
        table = self.tables.get(table_info.identity)
        table = table or TableQueue(table_info.identity, table_info.name)
        return self._loading.reopen(table, accept_loss=accept_loss)

    # ---- between the parts ----

    def _recovered(self) -> dict[str, TableQueue]:
        """The queues of the log. One table's records never block the recovery of other tables."""
        tables = {}
        for stored in self._log.tables():
            name = table_name(stored.name)
            self._ids.expect(stored.table_id, name)
            table = tables[stored.table_id] = TableQueue(stored.table_id, name)
            error = self.runtime.attempt(
                f"records of {name}", partial(self._recover, table, stored), fatal=FATAL
            )
            if isinstance(error, StoreUnavailableError):
                raise error
            if error is not None:
                why = f"Its records can't be read from the log {self._log.name}: {error!r}"
                table.queue = Queue(next_lsn=stored.acknowledged + 1, closed=why)
        self._restore_places(tables)
        return tables

    def _recover(self, table: TableQueue, stored: LogTable) -> None:
        again = recovered(self._log, stored, self._settings.thresholds)
        table.queue, table.chain = again.queue, again.chain

    def _restore_places(self, tables: dict[str, TableQueue]) -> None:
        """Restore the places of open statements, also for tables that had no inserts yet."""
        for transaction, name in self._coordinator.placed:
            table = tables.get(transaction.placed)
            if table is None:
                name = TableName(name.table, name.database)
                self._ids.expect(transaction.placed, name)
                queue = Queue(self._settings.thresholds)
                table = tables[transaction.placed] = TableQueue(transaction.placed, name, queue)
            self.holds.restore(table, transaction.id)

    def _note_ends(self) -> None:
        self._loading.note_ends(list(self.tables.values()))

    def _forget(self) -> None:
        retention_ms = self._settings.label_retention_ms
        self._loading.pool.run("old labels", partial(self._log.forget, retention_ms))
        self._loading.pool.run("dead letters", self.letters.write_pending)

    def _lose(self, error: Exception) -> None:
        if isinstance(error, DeposedError):
            self._coordinator.depose(error)
            self.owner.depose(error)
        else:
            self.owner.lose(error)

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, DeposedError):
            self._coordinator.depose(error)
        else:
            self._on_failure()

    def _may_commit(self, transaction_id: str) -> bool:
        state = self._coordinator.state
        transaction = state.transactions.get(transaction_id)
        return not state.is_restored or (transaction is not None and transaction.phase in PENDING)


def _nothing() -> None:
    """Replaces the ownership checks if no other coordinator can own the warehouse."""


# The rows that wait to be loaded, according to the present queues.


class Backlog:
    """Reads the queues of an owner, from any thread."""

    def __init__(self, owner: QueueOwner) -> None:
        self._owner = owner

    @property
    def has_work(self) -> bool:
        """Whether loadable acknowledged rows wait. Tables that are closed, or whose last load
        failed, don't count: their rows stay in the log, and the next start loads them.
        """
        return any(
            table.queue.batches and not table.queue.closed and not table.queue.last_error
            for table in list(self._owner.tables.values())
        )

    @property
    def troubles(self) -> list[tuple[str, int, str]]:
        """The tables whose rows wait and can't be loaded: name, number of rows, reason."""
        return [
            (str(table.name), backlog(table.queue)[0], table.queue.closed or table.queue.last_error)
            for table in sorted(self._owner.tables.values(), key=lambda table: str(table.name))
            if table.queue.batches and (table.queue.closed or table.queue.last_error)
        ]

    def identity_of(self, name: TableName) -> str | None:
        """The identity of the table with a queue that last had that name, without asking the
        warehouse; None if there is none.
        """
        identities = [t.id for t in list(self._owner.tables.values()) if t.name == name]
        return identities[-1] if identities else None

    def name_of(self, identity: str) -> str | None:
        """The last name of a table; None for a table without a queue."""
        table = self._owner.tables.get(identity)
        return None if table is None else str(table.name)

    def why_not_loaded(self, identity: str) -> str:
        """Why a table's rows are not loaded."""
        table = self._owner.tables.get(identity)
        return (
            table.queue.last_error if table is not None else ""
        ) or "loading them takes a long time"
