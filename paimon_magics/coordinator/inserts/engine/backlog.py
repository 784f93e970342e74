"""What waits to be loaded, as the queues are now."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from paimon_magics.coordinator.inserts.engine.table_queue import TableQueue
from paimon_magics.coordinator.inserts.queue.values import backlog
from paimon_magics.statements.statement import TableName

__all__ = ["Backlog"]


class Backlog:
    """Reads the queues that `tables` returns, from any thread."""

    def __init__(self, tables: Callable[[], Mapping[str, TableQueue]]) -> None:
        self._tables = tables

    @property
    def has_work(self) -> bool:
        """Whether acknowledged rows wait that can be loaded. Tables that are closed, or whose last
        load failed, don't count: their rows stay in the log, and the next start loads them."""
        return any(
            table.queue.batches and not table.queue.closed and not table.queue.last_error
            for table in list(self._tables().values())
        )

    @property
    def troubles(self) -> list[tuple[str, int, str]]:
        """The tables whose rows wait and can't be loaded: name, number of rows, reason."""
        return [
            (str(table.name), backlog(table.queue)[0], table.queue.closed or table.queue.last_error)
            for table in sorted(self._tables().values(), key=lambda table: str(table.name))
            if table.queue.batches and (table.queue.closed or table.queue.last_error)
        ]

    def identity_of(self, name: TableName) -> str | None:
        """The identity of the table with a queue that last had that name, without asking the
        warehouse; None where there is none."""
        identities = [t.id for t in list(self._tables().values()) if t.name == name]
        return identities[-1] if identities else None

    def name_of(self, identity: str) -> str | None:
        """The last name of a table; None for one without a queue."""
        table = self._tables().get(identity)
        return None if table is None else str(table.name)

    def why_not_loaded(self, identity: str) -> str:
        """Why a table's rows are not loaded."""
        table = self._tables().get(identity)
        return (table.queue.last_error if table is not None else "") or "loading them takes long"
