"""Holds: places of statements in the order of a table's small inserts.

A statement waits until everything acknowledged before it is visible; until it has ended, nothing
else is loaded. A transaction keeps its hold until it ends. A commit that an engine must prepare
anew, because rows were loaded before it, finds its hold still kept. A statement that drops or
renames a table has inserts refused meanwhile, so that none is acknowledged that can't be loaded.
Waits are futures: no thread waits for a hold.

Transactions outlive the process, and so do their places: the next coordinator restores the holds of
those that are still open before it loads anything. Other holds are gone, and with them what they
were for.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field

from paimon_magics.coordinator.inserts.admission.validator import KnownTables, TableInfo
from paimon_magics.coordinator.inserts.engine.openings import with_place
from paimon_magics.coordinator.inserts.engine.queue_owner import QueueOwner
from paimon_magics.coordinator.inserts.engine.replies import TableQueue
from paimon_magics.coordinator.inserts.queue.events import HoldAsked, HoldEnded
from paimon_magics.coordinator.inserts.queue.values import Answer, Granted, Refused
from paimon_magics.coordinator.runtime.interface import Runtime, Steps
from paimon_magics.errors import CommitConflictError
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.table import Table

_WAIT_MS = 60_000.0
_LOOK_MS = 10_000.0
_KEPT_MS = 12_000.0  # longer than Paimon's clients wait before they try again
_TICK_MS = 200


@dataclass(slots=True)
class Hold:
    """A hold that was asked for. `granted` is the last lsn before it, once that is visible; it
    fails with CommitConflictError where that takes too long. The end of the transaction
    `transaction_id`, once known, ends it, too."""

    id: str
    table_id: str
    name: TableName
    granted: Future[int]
    transaction_id: str = ""


@dataclass(slots=True)
class CommitHold:
    """The hold of a commit without a transaction, for the `with` block of its steps. Call `publish`
    once the commit is published. A block that ends without that call and without an error keeps the
    hold for the next try."""

    _keep: Callable[[], None]
    _end: Callable[[], None]
    _is_published: bool = field(default=False)

    def publish(self) -> None:
        """Note that the commit is published."""
        self._is_published = True

    def __enter__(self) -> CommitHold:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._is_published or error is not None:
            self._end()
        else:
            self._keep()


@dataclass(frozen=True, slots=True)
class TransactionPlace:
    """A transaction's place among the small inserts of the table `table_id`, "" for one that takes
    none."""

    table_id: str
    _taken_by: Callable[[str | None], None]

    def taken_by(self, transaction_id: str | None) -> None:
        """Keep the place until the transaction with this id ends; or with None, give it up."""
        self._taken_by(transaction_id)


class StatementHolds:
    """The holds of one coordinator. Safe for several threads.

    `is_open` tells whether the transaction with an id may still be committed; `why_not` returns why
    the rows of the table with an id are not loaded.
    """

    def __init__(
        self,
        runtime: Runtime,
        owner: QueueOwner,
        known_tables: KnownTables,
        is_open: Callable[[str], bool],
        why_not: Callable[[str], str],
    ) -> None:
        self._runtime = runtime
        self._owner = owner
        self._known_tables = known_tables
        self._is_open = is_open
        self._why_not = why_not
        self._turn = runtime.lock()
        self._holds: dict[str, Hold] = {}
        self._kept: dict[tuple[str, str], Hold] = {}
        self._alarms = runtime.pool("holds", 1)

    def start(self) -> None:
        """Begin to look for transactions that have ended."""
        self._ticker = self._runtime.every("ticks of holds", _TICK_MS, self._tick)

    def stop(self) -> None:
        """Look no more."""
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
        """Ask for a hold, which lasts until `end`. With `refuses` no inserts are taken meanwhile;
        without `drains` it waits only for the batch that is being loaded. With `passes` it does
        not wait for rows whose loading has failed several times."""
        table_info = table if isinstance(table, TableInfo) else None
        table_id = table.identity if isinstance(table, TableInfo) else table.id
        hold = Hold(uuid.uuid4().hex, table_id, table.name, self._runtime.future())
        self._holds[hold.id] = hold
        now_ms = self._runtime.clock.now_ms
        answer = self._owner.ask(
            table_id,
            lambda ask: HoldAsked(
                hold.id, ask, now_ms(), drains=drains, refuses=refuses, passes=passes
            ),
            table_info,
        )
        answer.add_done_callback(lambda settled: self._answered(hold, settled))
        self._alarms.run("late", lambda: self._refuse(hold, ""), after_ms=wait_ms)
        return hold

    def end(self, hold: Hold) -> None:
        """End a hold. Done again it changes nothing."""
        if self._holds.pop(hold.id, None) is not None:
            event = HoldEnded(hold.id, self._runtime.clock.now_ms())
            table = self._owner.tables.get(hold.table_id)
            if table is not None:
                self._owner.tell(table, event)
            else:  # the owner has not made its queue yet
                self._owner.ask(hold.table_id, lambda _: event)

    def of_transaction(self, table: Table) -> Steps[TransactionPlace]:
        """Wait for a transaction's hold.

        Raises CommitConflictError when the hold is not granted in time.
        """
        table_info = self._known_tables.find(table.name)
        if table_info is None:
            return TransactionPlace("", lambda _: None)
        hold = self.take(table_info)
        yield hold.granted

        def taken_by(transaction_id: str | None) -> None:
            if transaction_id is None:
                self.end(hold)
            else:
                hold.transaction_id = transaction_id

        return TransactionPlace(table_info.identity, taken_by)

    def of_commit(self, name: TableName, who: str) -> Steps[CommitHold]:
        """Wait for the hold of a commit without a transaction, by `who`.

        Raises CommitConflictError when the hold is not granted in time.
        """
        table_info = self._known_tables.find(name)
        if table_info is None:
            return CommitHold(lambda: None, lambda: None)
        key = table_info.identity, who
        with self._turn:
            hold = self._kept.pop(key, None)
        if hold is None or hold.id not in self._holds:
            hold = self.take(table_info)
            yield hold.granted
        return CommitHold(lambda: self._keep(key, hold), lambda: self.end(hold))

    @contextlib.contextmanager
    def ending(self, hold: Hold) -> Iterator[None]:
        """End a hold at the end of the `with` block."""
        try:
            yield
        finally:
            self.end(hold)

    def restore(self, table: TableQueue, transaction_id: str) -> None:
        """Give an open transaction its place back, before anything of the table is loaded. What was
        acknowledged before the transaction had been loaded when it began."""
        hold = Hold(uuid.uuid4().hex, table.id, table.name, self._runtime.future(), transaction_id)
        self._holds[hold.id] = hold
        table.queue = with_place(table.queue, hold.id)

    def of_look(self, table_info: TableInfo) -> Hold:
        """Ask that nothing is loaded until `end`; what is visible then is granted."""
        return self.take(table_info, drains=False, wait_ms=_LOOK_MS)

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
            f"Rows of `{hold.name}` were acknowledged before this statement, and could "
            f"not be loaded in time: {why}.",
            hint="Nothing was written. `%paimon queue` shows the rows that wait. Where they can "
            "never be loaded, an administrator gives them up: reopen the table with "
            "`accept_loss`.",
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
