"""Places of statements in the order of small inserts. A place is kept until its statement has ended
or its time is over.

A statement waits until everything acknowledged before it is visible; until it has ended, nothing
else is loaded. A transaction keeps its place until it ends. A commit that an engine must prepare
anew, because rows were loaded before it, finds its place still kept. A statement that drops or
renames a table has inserts refused meanwhile, so that none is acknowledged that can't be loaded.

If the process dies, its places are gone, and with them the statements' transactions. The next
coordinator first loads what was acknowledged.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from paimon_magics.coordinator.inserts.admission.table_info import KnownTables, TableInfo
from paimon_magics.coordinator.inserts.engine.queue_thread import QueueThread
from paimon_magics.coordinator.inserts.queue.events import HoldAsked, HoldEnded
from paimon_magics.coordinator.inserts.queue.values import Granted, Refused
from paimon_magics.coordinator.protocol.clock import Clock
from paimon_magics.errors import CommitConflictError
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.table import Table

__all__ = ["Places"]

_WAIT_SECONDS = 60.0
_LOOK_SECONDS = 10.0
_KEPT_SECONDS = 12.0  # longer than Paimon's clients wait before they try again
_STATEMENT_SECONDS = 120.0
_FOREVER_MS = 2**62


@dataclass(slots=True)
class _Place:
    """A place, kept while the transaction `transaction_id` ("" while unknown) is open. `until`, a
    time of this process's monotonic clock, ends it too, where it is given."""

    location: str
    transaction_id: str = ""
    until: float | None = None


class Places:
    """The places of one coordinator. Safe for several threads.

    `is_open` tells whether the transaction with an id may still be committed; `why_not` returns why
    the rows of the table with an identity are not loaded.
    """

    def __init__(
        self,
        queues: QueueThread,
        known_tables: KnownTables,
        is_open: Callable[[str], bool],
        why_not: Callable[[str], str],
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._queues = queues
        self._known_tables = known_tables
        self._is_open = is_open
        self._why_not = why_not
        self._turn = threading.Lock()
        self._places: dict[str, _Place] = {}
        self._kept: dict[tuple[str, str], str] = {}

    def of_transaction(self, table: Table) -> Callable[[str | None], None]:
        """Wait for a transaction's place. Call the returned function with the transaction's id, and
        the place is kept until that ends; or with None, and the place ends at once.

        Raises CommitConflictError when the place does not come in time.
        """
        table_info = self._known_tables.find(table.name)
        if table_info is None:
            return lambda _: None
        id, _ = self._take(table_info)

        def taken_by(transaction_id: str | None) -> None:
            if transaction_id is None:
                self.end(id)
            else:
                self._places[id].transaction_id = transaction_id

        return taken_by

    @contextlib.contextmanager
    def of_commit(self, name: TableName, who: str) -> Iterator[Callable[[], None]]:
        """Hold the place of a commit without a transaction, by `who`. The block calls the yielded
        function once the commit is published. If it ends without that call and without an error,
        the place is kept for the next try.

        Raises CommitConflictError when the place does not come in time.
        """
        table_info = self._known_tables.find(name)
        if table_info is None:
            yield lambda: None
            return
        key = table_info.identity, who
        with self._turn:
            id = self._kept.pop(key, "")
            kept = self._places.get(id)
            if kept is not None:
                kept.until = None
        if kept is None:
            id, _ = self._take(table_info)
        published = False

        def is_published() -> None:
            nonlocal published
            published = True

        failed = True
        try:
            yield is_published
            failed = False
        finally:
            if published or failed:
                self.end(id)
            else:
                with self._turn:
                    self._kept[key] = id
                    self._places[id].until = time.monotonic() + _KEPT_SECONDS

    def of_statement(self, table_info: TableInfo, *, refuses: bool) -> str:
        """Wait for a statement's place and return its id. The place lasts until `end` is called,
        for two minutes at most. With `refuses` no inserts are taken meanwhile."""
        id, _ = self._take(table_info, refuses=refuses)
        self._places[id].until = time.monotonic() + _STATEMENT_SECONDS
        return id

    @contextlib.contextmanager
    def of_look(self, table_info: TableInfo) -> Iterator[int]:
        """Have nothing loaded during the `with` block; yields the last record that is visible.

        Raises CommitConflictError when the batch being loaded does not end in time, or the table is
        closed.
        """
        id, lsn = self._take(table_info, drains=False, wait_seconds=_LOOK_SECONDS)
        try:
            yield lsn
        finally:
            self.end(id)

    def end(self, id: str) -> bool:
        """End a statement's place. Return whether it was still kept."""
        place = self._places.pop(id, None)
        if place is None:
            return False
        self._queues.tell(place.location, HoldEnded(id, self._clock()))
        return True

    def tick(self) -> None:
        """End the places whose time is over or whose transaction has ended."""
        now = time.monotonic()
        for id, place in list(self._places.items()):
            with self._turn:  # so that no commit takes up a place again that is being ended
                over = place.until is not None and place.until < now
                if over:
                    self._kept = {key: one for key, one in self._kept.items() if one != id}
            if over or (place.transaction_id and not self._is_open(place.transaction_id)):
                self.end(id)

    def _take(
        self,
        table_info: TableInfo,
        *,
        drains: bool = True,
        refuses: bool = False,
        wait_seconds: float = _WAIT_SECONDS,
    ) -> tuple[str, int]:
        """Wait for a place. Return its id and the last record before it."""
        id = uuid.uuid4().hex
        location = table_info.identity
        self._places[id] = _Place(location)
        try:
            answer = self._queues.ask(
                location,
                lambda ask: HoldAsked(
                    id, ask, self._clock(), _FOREVER_MS, drains=drains, refuses=refuses
                ),
                table_info,
            ).result(wait_seconds)
        except TimeoutError:
            answer = None
        except BaseException:
            self.end(id)
            raise
        if isinstance(answer, Granted):
            return id, answer.lsn
        self.end(id)
        why = answer.message if isinstance(answer, Refused) else self._why_not(location)
        raise CommitConflictError(
            f"Rows of `{table_info.name}` were acknowledged before this statement, and could not "
            f"be loaded in time: {why}.",
            hint="Nothing was written. `%paimon queue` shows the rows that wait.",
        )
