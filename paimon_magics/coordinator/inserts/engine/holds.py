"""Holds: places of statements in the order of a table's small inserts.

A statement waits until everything acknowledged before it is visible; until it has ended, nothing
else is loaded. A transaction keeps its hold until it ends. If an engine must prepare its commit
again, because rows were loaded before it, the hold is still kept. While a statement drops or
renames a table, inserts are refused, so that no insert is acknowledged that can't be loaded. Waits
are futures: no thread waits for a hold.

Transactions outlive the process, and so do their places: the next coordinator restores the holds of
open transactions before it loads anything. Other holds end with the process, and so do their
statements.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager
from dataclasses import dataclass

from paimon_magics.coordinator.inserts.admission.items import Done
from paimon_magics.coordinator.inserts.admission.validator import KnownTables, TableInfo
from paimon_magics.coordinator.inserts.engine.loading import LoadPool
from paimon_magics.coordinator.inserts.engine.queue_owner import QueueOwner
from paimon_magics.coordinator.inserts.engine.recovery import with_place
from paimon_magics.coordinator.inserts.engine.replies import TableQueue
from paimon_magics.coordinator.inserts.queue.events import HoldEnded, HoldRequested
from paimon_magics.coordinator.inserts.queue.values import Answer, Granted, Refused
from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.runtime.work import Steps
from paimon_magics.coordinator.service.served import CommitPlace
from paimon_magics.coordinator.service.transactions import Place
from paimon_magics.errors import CommitConflictError, TableDamagedError
from paimon_magics.faults import reach
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.table import Table

_WAIT_MS = 60_000.0
_KEPT_MS = 12_000.0  # longer than Paimon's clients wait before they try again
_TICK_MS = 200


@dataclass(slots=True)
class Hold:
    """A requested hold. `granted` is the last lsn before it, once that is visible; it fails with
    CommitConflictError if that takes too long. The end of the transaction `transaction_id`, once
    known, also ends the hold.
    """

    id: str
    table_id: str
    name: TableName
    granted: Future[int]
    transaction_id: str = ""


class StatementHolds:
    """The holds of one coordinator, an `Order` of statements. Safe for several threads.

    `is_open` returns whether the transaction with an id may still be committed; `why_not` returns
    why the rows of the table with an id are not loaded.
    """

    def __init__(
        self,
        runtime: Runtime,
        owner: QueueOwner,
        loading: LoadPool,
        known_tables: KnownTables,
        is_open: Callable[[str], bool],
        why_not: Callable[[str], str],
    ) -> None:
        self._runtime = runtime
        self._owner = owner
        self._loading = loading
        self._known_tables = known_tables
        self._is_open = is_open
        self._why_not = why_not
        self._turn = threading.RLock()
        self._holds: dict[str, Hold] = {}
        self._kept: dict[tuple[str, str], Hold] = {}
        self._alarms = runtime.pool("holds", 1)

    def start(self) -> None:
        """Begin to check for ended transactions."""
        self._ticker = self._runtime.every("ticks of holds", _TICK_MS, self._tick)

    def stop(self) -> None:
        """Stop checking."""
        self._ticker.stop()
        self._alarms.end()

    def take(
        self,
        table: TableInfo | TableQueue,
        *,
        drains: bool = True,
        refuses: bool = False,
        passes: bool = False,
        wait_ms: float = _WAIT_MS,
    ) -> Hold:
        """Request a hold, which lasts until `end`. With `refuses`, inserts are refused meanwhile.
        Without `drains`, it waits only for the batch that is being loaded. With `passes`, it does
        not wait for rows whose loading failed several times.
        """
        table_info = table if isinstance(table, TableInfo) else None
        table_id = table.identity if isinstance(table, TableInfo) else table.id
        hold = Hold(uuid.uuid4().hex, table_id, table.name, Future())
        self._holds[hold.id] = hold
        now_ms = self._runtime.clock.now_ms
        answer = self._owner.ask(
            table_id,
            lambda ask: HoldRequested(
                hold.id, ask, now_ms(), drains=drains, refuses=refuses, passes=passes
            ),
            table_info,
        )
        answer.add_done_callback(lambda settled: self._answered(hold, settled))
        self._alarms.run("late", lambda: self._refuse(hold, ""), after_ms=wait_ms)
        return hold

    def end(self, hold: Hold) -> None:
        """End a hold. A repeat changes nothing."""
        if self._holds.pop(hold.id, None) is not None:
            event = HoldEnded(hold.id, self._runtime.clock.now_ms())
            table = self._owner.tables.get(hold.table_id)
            if table is not None:
                self._owner.tell(table, event)
            else:  # the owner has not made its queue yet
                self._owner.ask(hold.table_id, lambda _: event)

    def of_transaction(self, table: Table) -> Steps[Place]:
        """Wait for a transaction's hold.

        Raises CommitConflictError when the hold is not granted in time.
        """
        table_info = self._known_tables.find(table.name)
        if table_info is None:
            return Place("", lambda _: None)
        hold = self.take(table_info)
        yield hold.granted

        def taken_by(transaction_id: str | None) -> None:
            if transaction_id is None:
                self.end(hold)
            else:
                hold.transaction_id = transaction_id

        return Place(table_info.identity, taken_by)

    def commit(self, name: TableName, who: str) -> Steps[CommitPlace]:
        """Wait for the hold of a commit without a transaction, by `who`. A block that ends without
        an error and without publishing keeps the hold for the next try.

        Raises CommitConflictError when the hold is not granted in time.
        """
        table_info = self._known_tables.find(name)
        if table_info is None:
            return contextlib.nullcontext(lambda: None)
        key = table_info.identity, who
        with self._turn:
            hold = self._kept.pop(key, None)
        if hold is None or hold.id not in self._holds:
            hold = self.take(table_info)
            yield hold.granted
        return self._committing(key, hold)

    @contextlib.contextmanager
    def _committing(self, key: tuple[str, str], hold: Hold) -> Iterator[Callable[[], None]]:
        is_published = False

        def publish() -> None:
            nonlocal is_published
            is_published = True

        try:
            yield publish
        except BaseException:
            self.end(hold)
            raise
        if is_published:
            self.end(hold)
        else:
            self._keep(key, hold)

    def change(
        self,
        name: TableName,
        *,
        drops: bool = False,
        renamed_to: TableName | None = None,
        alters: bool = False,
    ) -> Steps[AbstractContextManager[None]]:
        """Wait for the hold of a statement that changes a table. While a statement drops or renames
        it, inserts are refused. Such a statement, or a statement that only `alters` the definition,
        does not wait for rows that can't be loaded: these are loaded after it, or deleted with the
        table. A block that ends without an error has dropped or renamed the table.

        Raises CommitConflictError when the hold is not granted in time.
        """
        refuses = drops or renamed_to is not None
        try:
            table = self._known_tables.find(name) or self._queue_of(name)
            drains = True
        except TableDamagedError:  # waiting rows can't be loaded, and are deleted with it
            table = self._queue_of(name)
            drains = False
        if table is None:
            return contextlib.nullcontext()
        hold = self.take(
            table, drains=drains, refuses=refuses, passes=drains and (refuses or alters)
        )
        yield hold.granted
        if drops:
            try:
                self._loading.note_drop(hold.table_id)
            except BaseException:
                self.end(hold)
                raise
        if renamed_to is not None:
            reach("rename.noted")
        return self._changing(hold, drops, renamed_to)

    @contextlib.contextmanager
    def _changing(self, hold: Hold, drops: bool, renamed_to: TableName | None) -> Iterator[None]:
        is_done = False
        try:
            yield
            is_done = True
        finally:
            self._known_tables.forget(hold.name)
            if is_done and renamed_to is not None:
                reach("rename.done")
                self._known_tables.forget(renamed_to)
                self._rename(hold.table_id, renamed_to)
            elif is_done and drops:
                self._loading.forget(hold.table_id)
            self.end(hold)

    def _rename(self, table_id: str, name: TableName) -> None:
        table = self._owner.tables.get(table_id)
        if table is None:
            return

        def rename() -> None:
            table.name = name
            self._loading.renamed(table)

        self._owner.put(Done(rename))

    def has_queue(self, name: TableName) -> bool:
        """Whether the table of that name has accepted inserts before, though it accepts none
        now."""
        return self._queue_of(name) is not None

    def _queue_of(self, name: TableName) -> TableQueue | None:
        tables = [t for t in list(self._owner.tables.values()) if t.name == name]
        return next((t for t in tables if t.queue.batches), tables[0] if tables else None)

    def restore(self, table: TableQueue, transaction_id: str) -> None:
        """Give an open transaction its place back before any rows of the table are loaded. Rows
        that were acknowledged before the transaction were loaded when it began.
        """
        hold = Hold(uuid.uuid4().hex, table.id, table.name, Future(), transaction_id)
        self._holds[hold.id] = hold
        table.queue = with_place(table.queue, hold.id)

    # ---- their ends ----

    def _keep(self, key: tuple[str, str], hold: Hold) -> None:
        with self._turn:
            other = self._kept.get(key)
            self._kept[key] = hold
        if other is not None:  # the commit came twice, and each had a hold
            self.end(other)
        self._alarms.run("kept", lambda: self._drop(key, hold), after_ms=_KEPT_MS)

    def _drop(self, key: tuple[str, str], hold: Hold) -> None:
        with self._turn:
            if self._kept.get(key) is not hold:
                return  # it was taken up again
            del self._kept[key]
        self.end(hold)

    def _answered(self, hold: Hold, settled: Future[Answer]) -> None:
        error = settled.exception()
        if error is not None:
            self._fail(hold, error)
            return
        match settled.result():
            case Granted(lsn=lsn):
                with contextlib.suppress(InvalidStateError):  # it was too late
                    hold.granted.set_result(lsn)
            case Refused(message=message):
                self._refuse(hold, message)
            case answer:
                self._refuse(hold, str(answer))

    def _refuse(self, hold: Hold, why: str) -> None:
        if hold.granted.done():
            return
        why = why or self._why_not(hold.table_id)
        error = CommitConflictError(
            f"Rows of `{hold.name}` were acknowledged before this statement, but could not be "
            f"loaded in time: {why}.",
            hint=(
                "Nothing was written. `%paimon queue` shows the waiting rows. If they can never "
                f"be loaded, an administrator can discard them: `%paimon queue {hold.name} "
                "accept-loss`."
            ),
        )
        self._fail(hold, error)

    def _fail(self, hold: Hold, error: BaseException) -> None:
        self.end(hold)
        with contextlib.suppress(InvalidStateError):
            hold.granted.set_exception(error)

    def _tick(self) -> None:
        for hold in list(self._holds.values()):
            if hold.transaction_id and not self._is_open(hold.transaction_id):
                self.end(hold)
