"""Order statements and engines' commits among the small inserts of the tables they change."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from paimon_magics.coordinator.inserts.admission.table_info import KnownTables, TableInfo
from paimon_magics.coordinator.inserts.engine.holds import Places
from paimon_magics.coordinator.inserts.engine.table_queues import TableQueues
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.faults import reach
from paimon_magics.statements.statement import TableName

__all__ = ["StatementOrder"]


@dataclass(frozen=True, slots=True)
class _TakenAway:
    """A table that a statement drops or renames."""

    table_info: TableInfo
    renamed_to: TableName | None


class StatementOrder:
    """See `service.served.Order`. For any thread. `in_queue_thread` runs a function in the thread
    that owns the queues, and waits until it has ended."""

    def __init__(
        self,
        places: Places,
        queues: TableQueues,
        known_tables: KnownTables,
        in_queue_thread: Callable[[Callable[[], object]], None],
    ) -> None:
        self._places = places
        self._queues = queues
        self._known_tables = known_tables
        self._in_queue_thread = in_queue_thread
        self._taken_away: dict[str, _TakenAway] = {}

    def commit(self, name: TableName, who: str) -> AbstractContextManager[Callable[[], None]]:
        """The place of a commit without a transaction; see `Places.of_commit`."""
        return self._places.of_commit(name, who)

    @contextlib.contextmanager
    def change(
        self, name: TableName, *, takes_away: bool, renamed_to: TableName | None = None
    ) -> Iterator[None]:
        """Hold the place of a statement that runs in the `with` block; see `begin_change`."""
        table_info = self._known_tables.find(name)
        if table_info is None:
            yield
            return
        id = self.begin_change(table_info, takes_away=takes_away, renamed_to=renamed_to)
        done = False
        try:
            yield
            done = True
        finally:
            self.end_change(id, done=done)

    def begin_change(
        self, table_info: TableInfo, *, takes_away: bool, renamed_to: TableName | None = None
    ) -> str:
        """Wait for the place of a statement that changes a table, and return its id. A statement
        that drops (`takes_away`) or renames the table has inserts refused until it ends.

        Raises CommitConflictError when the place does not come in time.
        """
        takes_away = takes_away or renamed_to is not None
        id = self._places.of_statement(table_info, refuses=takes_away)
        if renamed_to is not None:
            try:
                self._in_queue_thread(
                    lambda: self._queues.begin_move(table_info.identity, renamed_to)
                )
            except BaseException:
                self._places.end(id)
                raise
            reach("rename.noted")
        if takes_away:
            self._taken_away[id] = _TakenAway(table_info, renamed_to)
        return id

    def end_change(self, id: str, *, done: bool) -> bool:
        """End the place of a statement that succeeded (`done`) or failed. Return whether the place
        was still kept."""
        taken = self._taken_away.pop(id, None)
        if taken is not None:
            identity = taken.table_info.identity
            self._known_tables.forget(taken.table_info.name)
            with contextlib.suppress(PaimonMagicsError, OSError):
                if taken.renamed_to is not None:
                    reach("rename.done")
                    self._in_queue_thread(lambda: self._queues.end_move(identity, done=done))
                elif done:
                    self._in_queue_thread(lambda: self._queues.forget(identity))
        return self._places.end(id)
