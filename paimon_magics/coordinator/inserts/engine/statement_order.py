"""Order statements and engines' commits among the small inserts of the tables they change."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.coordinator.inserts.admission.items import Done
from paimon_magics.coordinator.inserts.admission.table_info import KnownTables
from paimon_magics.coordinator.inserts.engine.holds import CommitHold, Hold, StatementHolds
from paimon_magics.coordinator.inserts.engine.loading import Loading
from paimon_magics.coordinator.inserts.engine.queue_owner import QueueOwner
from paimon_magics.coordinator.inserts.engine.table_queue import TableQueue
from paimon_magics.coordinator.runtime import Steps
from paimon_magics.errors import TableDamagedError
from paimon_magics.faults import reach
from paimon_magics.statements.statement import TableName

__all__ = ["ChangeHold", "StatementOrder"]


@dataclass(slots=True)
class ChangeHold:
    """The hold of a statement that changes a table, for the `with` block of its steps; `hold` is
    None for a table without small inserts. A block that ends without an error has dropped the table
    if `drops`, or given it the name `renamed_to`."""

    _order: StatementOrder
    hold: Hold | None
    drops: bool
    renamed_to: TableName | None

    def __enter__(self) -> ChangeHold:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self.hold is not None:
            self._order.end_change(self, self.hold, done=error is None)


class StatementOrder:
    """See `service.served.Order`. For any thread."""

    def __init__(
        self,
        owner: QueueOwner,
        holds: StatementHolds,
        loading: Loading,
        known_tables: KnownTables,
    ) -> None:
        self._owner = owner
        self._holds = holds
        self._loading = loading
        self._known_tables = known_tables

    def commit(self, name: TableName, who: str) -> Steps[CommitHold]:
        """Wait for the hold of a commit without a transaction; see `StatementHolds.of_commit`."""
        return self._holds.of_commit(name, who)

    def change(
        self,
        name: TableName,
        *,
        drops: bool = False,
        renamed_to: TableName | None = None,
        alters: bool = False,
    ) -> Steps[ChangeHold]:
        """Wait for the hold of a statement that changes a table. One that drops or renames it has
        inserts refused until it ends. One of these, or one that `alters` the definition alone, does
        not wait for rows that can't be loaded: they are loaded after it, or go with the table.

        Raises CommitConflictError when the hold is not granted in time.
        """
        refuses = drops or renamed_to is not None
        try:
            table = self._known_tables.find(name) or self._queue_of(name)
        except TableDamagedError:  # what waits can't be loaded, and goes with it
            queue = self._queue_of(name)
            hold = None if queue is None else self._holds.take(queue, drains=False, refuses=refuses)
        else:
            passes = refuses or alters
            hold = (
                None if table is None else self._holds.take(table, refuses=refuses, passes=passes)
            )
        if hold is None:
            return ChangeHold(self, None, drops, renamed_to)
        yield hold.granted
        if renamed_to is not None:
            reach("rename.noted")
        return ChangeHold(self, hold, drops, renamed_to)

    def has_queue(self, name: TableName) -> bool:
        """Whether the table of that name has taken inserts, though it takes none now."""
        return self._queue_of(name) is not None

    def _queue_of(self, name: TableName) -> TableQueue | None:
        tables = [t for t in list(self._owner.tables.values()) if t.name == name]
        return next((t for t in tables if t.queue.batches), tables[0] if tables else None)

    def end_change(self, change: ChangeHold, hold: Hold, *, done: bool) -> None:
        """End the hold of a statement that succeeded (`done`) or failed."""
        self._known_tables.forget(hold.name)
        table = self._owner.tables.get(hold.table_id)
        if done and change.renamed_to is not None:
            reach("rename.done")
            self._known_tables.forget(change.renamed_to)
            if table is not None:
                name = change.renamed_to

                def rename() -> None:
                    table.name = name
                    self._loading.renamed(table)

                self._owner.put(Done(rename))
        elif done and change.drops:
            self._loading.forget(hold.table_id)
        elif change.drops and table is not None:
            table.may_be_dropped = True  # what waits for it is forgotten where it is gone
        self._holds.end(hold)
