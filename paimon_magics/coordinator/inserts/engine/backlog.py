"""What waits to be loaded, as the queues have it at this moment."""

from __future__ import annotations

from paimon_magics.coordinator.inserts.engine.table_queues import TableQueues
from paimon_magics.coordinator.inserts.queue.values import backlog
from paimon_magics.statements.statement import TableName

__all__ = ["Backlog"]


class Backlog:
    """Looks at the queues, from any thread."""

    def __init__(self, queues: TableQueues) -> None:
        self._queues = queues

    @property
    def has_work(self) -> bool:
        """Whether acknowledged rows are not in their tables yet, and can get there: not those of a
        table that is closed, or whose rows could not be loaded the last time. They stay in the log,
        and the next start loads them."""
        return any(
            table.queue.batches and not table.queue.closed and not table.queue.last_error
            for table in list(self._queues.all.values())
        )

    @property
    def troubles(self) -> list[tuple[str, int, str]]:
        """The tables whose rows wait and can't be loaded, each with how many and why."""
        return [
            (str(table.name), backlog(table.queue)[0], table.queue.closed or table.queue.last_error)
            for table in sorted(self._queues.all.values(), key=lambda table: str(table.name))
            if table.queue.batches and (table.queue.closed or table.queue.last_error)
        ]

    def identity_of(self, name: TableName) -> str | None:
        """The identity of the table that last had that name and has a queue, without a look at the
        warehouse; None where none has."""
        identities = [t.location for t in list(self._queues.all.values()) if t.name == name]
        return identities[-1] if identities else None

    def name_of(self, identity: str) -> str | None:
        """What a table was called last; None for one without a queue."""
        table = self._queues.all.get(identity)
        return None if table is None else str(table.name)

    def why_not_loaded(self, identity: str) -> str:
        """Why a table's rows are not loaded."""
        table = self._queues.all.get(identity)
        return (table.queue.last_error if table is not None else "") or "it takes long"
