"""The queues of all tables. They are recovered at the start, made at a table's first insert, closed
when records are missing, opened again by an administrator, and moved when a table is renamed. For
one thread.

A renamed table keeps its queue, its labels and its dead letters. The new name is noted in the log
before the rename. When a table of that name exists with the creation time of the queue's table, and
the old name is gone, the queue moves to it. So a rename is found whoever did it, even if that
process has died.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from paimon_magics.coordinator.inserts.admission.table_info import TableInfo
from paimon_magics.coordinator.inserts.engine.recovery import recovered, stored_name, table_name
from paimon_magics.coordinator.inserts.loading.flush import Flushing, StuckError
from paimon_magics.coordinator.inserts.log.interface import LogTable
from paimon_magics.coordinator.inserts.log.registry import RegisteredLog
from paimon_magics.coordinator.inserts.queue.events import Closed, Effect, Ticked
from paimon_magics.coordinator.inserts.queue.step import step
from paimon_magics.coordinator.inserts.queue.values import Mode, Queue, Thresholds
from paimon_magics.errors import PaimonMagicsError, SetupError, UnknownNameError
from paimon_magics.faults import reach
from paimon_magics.statements.statement import TableName

__all__ = ["TableQueue", "TableQueues"]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class TableQueue:
    """One table: its queue (a value), and the `chain` of the last record in its log. `location` is
    the table's identity. `is_open` tells that the log registry names this log for the table. `mode`
    is the table's mode, None before an insert. `moving` is its new name while it is renamed.
    `noted` is the last record in the registry's note."""

    location: str
    name: TableName
    queue: Queue
    chain: int
    is_open: bool = False
    mode: Mode | None = None
    moving: TableName | None = None
    noted: int = 0

    @classmethod
    def empty(cls, location: str, name: TableName) -> TableQueue:
        """The queue of a table without any inserts yet."""
        return cls(location, name, Queue(), 0)


class TableQueues:
    """All queues; `all` has them by table identity.

    `flushing` finds out what became of a flush under way, and which records a table has.
    `identity_at` returns the identity of the table with a name, None if there is no such table.
    `own` makes sure that this coordinator owns the warehouse. `on_open` is called at a table's
    first insert.
    """

    def __init__(
        self,
        log: RegisteredLog,
        flushing: Flushing,
        identity_at: Callable[[TableName], str | None],
        own: Callable[[], object],
        defaults: Thresholds,
        on_open: Callable[[], None],
    ) -> None:
        self.all: dict[str, TableQueue] = {}
        self._log = log.log
        self._registry = log.registry
        self._flushing = flushing
        self._identity_at = identity_at
        self._own = own
        self._defaults = defaults
        self._on_open = on_open
        self._gone: set[str] = set()

    def recover(self, now_ms: int) -> None:
        """Read the log, and check the records of every table."""
        for stored in self._log.tables():
            if stored.moving:
                # A store that does not answer now is asked again when an insert comes.
                with contextlib.suppress(PaimonMagicsError, OSError):
                    self._move_if_renamed(
                        stored.location,
                        table_name(stored.moving),
                        stored.acknowledged,
                    )
        for stored in self._log.tables():
            self.all[stored.location] = self._recovered(stored, now_ms)

    def of(self, table_info: TableInfo, now_ms: int) -> tuple[TableQueue, tuple[Effect, ...]]:
        """The table's queue, which is made and noted in the log registry at the first insert; and
        the effects of changed thresholds.

        Raises UnknownNameError for a table that was dropped since it was loaded, and the errors of
        the warehouse's store.
        """
        if table_info.identity in self._gone:
            raise UnknownNameError(
                f"`{table_info.name}` was dropped or renamed.",
                hint="SHOW TABLES lists what is there.",
            )
        table = self.known(table_info)
        if table is None:
            table = TableQueue(
                table_info.identity, table_info.name, Queue(table_info.thresholds), 0
            )
            self.all[table_info.identity] = table
        table.name = table_info.name
        table.mode = table_info.mode
        effects: tuple[Effect, ...] = ()
        if table.queue.thresholds != table_info.thresholds:
            table.queue, effects = step(table.queue, Ticked(now_ms, table_info.thresholds))
        if not table.is_open and not table.queue.closed:
            missing = self._missing(table)
            if missing:
                table.queue = step(table.queue, Closed(missing, now_ms))[0]
            else:
                self._open(table)
                self._on_open()
        return table, effects

    def known(self, table_info: TableInfo) -> TableQueue | None:
        """The table's queue, if it has or had inserts, also under its name before a rename."""
        table = self.all.get(table_info.identity)
        if table is not None and table.moving == table_info.name:
            self.settle_move(table)
        return table

    def forget(self, location: str) -> None:
        """Forget a dropped table for which nothing waits. Later inserts are refused, even from
        callers that have not heard of the drop."""
        self._gone.add(location)
        table = self.all.get(location)
        if table is not None and not table.queue.batches:
            del self.all[location]
            self._log.drop_table(location)
            self._registry.forget(location)

    def begin_move(self, location: str, target: TableName) -> None:
        """Note that a table is about to be renamed, so that its new name is found in any case."""
        table = self.all[location]
        self._log.begin_move(location, stored_name(target))
        table.moving = table_name(stored_name(target))

    def end_move(self, location: str, *, done: bool) -> None:
        """Settle a rename after its statement, which reports whether it succeeded (`done`)."""
        table = self.all.get(location)
        if table is None or table.moving is None or self.settle_move(table):
            return
        if done:  # its new name can't be looked at now: the first insert there finds it
            self._gone.add(location)
        elif self._identity_at(table.name) == location:
            self._log.begin_move(location, "")
            table.moving = None

    def settle_move(self, table: TableQueue) -> bool:
        """Find out whether a table has its new name, and move its queue there. Return whether it
        moved. Raises SetupError while rows are being loaded."""
        if table.moving is None:
            return False
        if table.queue.flushing is not None:
            raise SetupError(f"Rows of `{table.name}` are being loaded.", hint="Ask again.")
        location, target = table.location, table.moving
        to_location = self._move_if_renamed(location, target, table.queue.acknowledged)
        if to_location is None:
            return False
        del self.all[location]
        self._gone.add(location)
        self._gone.discard(to_location)
        # The statement that held a place has ended with the rename: no hold is needed any more.
        table.queue = replace(table.queue, holds=())
        table.location, table.name, table.moving = to_location, target, None
        self.all[to_location] = table
        return True

    def open_again(self, table: TableQueue, now_ms: int, *, accept_loss: bool) -> None:
        """Set a closed table's state from the log. With `accept_loss` the records that are missing
        or damaged are given up; otherwise raises SetupError while any are missing."""
        if table.queue.flushing is not None:
            raise SetupError(f"Rows of `{table.name}` are being loaded.", hint="Ask again.")
        missing = self._missing(table)
        if not missing and not table.queue.closed:
            return  # there is nothing to accept, and what waits is loaded
        if missing and not accept_loss:
            raise SetupError(f"`{table.name}` stays closed: {missing}.")
        if accept_loss and not (missing and self._goes_on(table)):
            self._begin_anew(table)
        else:
            self._log.close_table(table.location, "")
        stored = self._stored(table.location)
        assert stored is not None  # it was closed for its records, or has begun anew
        if accept_loss:
            self._registry.open(table.location, stored.acknowledged + 1)
        again = self._recovered(stored, now_ms)
        if again.queue.closed:
            raise SetupError(f"`{table.name}` stays closed: {again.queue.closed}.")
        table.queue, table.chain = again.queue, again.chain
        table.is_open = table.is_open or accept_loss

    def note_ends(self) -> None:
        """Note in the log registry how far records are acknowledged, so that their loss from the
        log is noticed. May be called from another thread."""
        for one in list(self.all.values()):
            acknowledged = one.queue.acknowledged
            if one.is_open and one.noted < acknowledged:
                self._own()
                self._registry.open(one.location, acknowledged + 1)
                one.noted = acknowledged

    def note_clean(self) -> None:
        """Note in the log registry the tables that have nothing left in the log."""
        for one in self.all.values():
            if one.is_open and not one.queue.batches:
                self._registry.clean(one.location, one.queue.acknowledged)

    def _stored(self, location: str) -> LogTable | None:
        return next((s for s in self._log.tables() if s.location == location), None)

    def _open(self, table: TableQueue) -> None:
        """Note in the log registry that this log has the table's records."""
        self._registry.open(table.location, table.queue.next_lsn)
        table.is_open, table.noted = True, table.queue.acknowledged

    def _missing(self, table: TableQueue) -> str:
        """Why acknowledged rows are missing in this log; "" when they are not."""
        acknowledged = table.queue.acknowledged
        found = self._registry.missing(table.location, acknowledged, self._log.damage)
        if found:
            return found
        last = self._flushing.last_in(table.name, table.location, table.queue.snapshot_id or 0)
        if last > acknowledged:
            return (
                f"The log {self._log.name} ends with record {acknowledged}, but the table has "
                f"records up to {last}"
            )
        return ""

    def _goes_on(self, table: TableQueue) -> bool:
        """Whether a log that has lost its last records can go on from its present end: the records
        that it has are whole, and none that it lost is in the table."""
        stored = self._stored(table.location)
        if stored is None or stored.flush is not None:
            return False
        last = self._flushing.last_in(table.name, table.location, stored.snapshot_id or 0)
        whole = recovered(self._log, replace(stored, closed=""), self._defaults, 0)
        return last <= stored.acknowledged and not whole.queue.closed

    def _begin_anew(self, table: TableQueue) -> None:
        """Give up the table's records in the log, and go on above all lsns that were ever given."""
        note = self._registry.note(table.location)
        above = max(
            table.queue.acknowledged,
            0 if note is None else note.first,
            self._flushing.last_in(table.name, table.location, table.queue.snapshot_id or 0),
        )
        self._log.accept_loss(table.location, stored_name(table.name), above)

    def _move_if_renamed(self, location: str, target: TableName, acknowledged: int) -> str | None:
        """Move a table's log to its new name, if the table there is the same one. Return its
        identity, None if it was not moved."""
        to_location = self._identity_at(target)
        if to_location != location:
            return None
        # The note comes first, so that a loss of the log is noticed under the new name, too.
        self._registry.open(to_location, acknowledged + 1)
        self._log.move_table(location, to_location, stored_name(target))
        reach("rename.moved")
        return to_location

    def _recovered(self, stored: LogTable, now_ms: int) -> TableQueue:
        name = table_name(stored.name)
        if stored.flush is not None and not stored.closed:
            try:
                self._own()
                self._flushing.settle(stored, name)
            except StuckError as error:
                self._log.close_table(stored.location, str(error))
            stored = self._stored(stored.location) or stored
        found = recovered(self._log, stored, self._defaults, now_ms)
        queue = found.queue
        moving = table_name(stored.moving) if stored.moving else None
        table = TableQueue(stored.location, name, queue, found.chain, moving=moving)
        if queue.batches and not queue.closed:
            # If the table can't be read now, the load of the first batch looks again.
            with contextlib.suppress(PaimonMagicsError, OSError):
                missing = self._missing(table)
                table.queue = step(queue, Closed(missing, 0))[0] if missing else queue
        if table.queue.closed and not stored.closed:
            _log.error("`%s` takes no inserts: %s", name, table.queue.closed)
        return table
