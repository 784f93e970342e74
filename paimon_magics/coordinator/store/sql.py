"""SQL for a store: one statement at a time, or several that become durable together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from paimon_magics.coordinator.protocol.json_text import storable_text
from paimon_magics.coordinator.store.database import Change, Database


class Sql:
    """Reads and writes one database, for any thread.

    Every statement must be idempotent: it is repeated when it is unclear whether it was done. Of
    texts the database gets what it can hold (`storable_text`), so that no client's text stops the
    store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._blocks = threading.local()  # the changes of the `together` block of each thread

    def read(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return self._database.read(statement, *_storable(values))

    def write(self, statement: str, *values: object) -> None:
        """Make a change durable: at once, or at the end of the `together` block around it."""
        change = Change(statement, _storable(values))
        changes: list[Change] | None = getattr(self._blocks, "changes", None)
        if changes is None:
            self._database.write([change])
        else:
            changes.append(change)

    @contextmanager
    def together(self, id: str = "") -> Iterator[None]:
        """Make the changes of the `with` block durable together, at its end; drop them when it
        raises. For the `id` see `Database.write`."""
        changes: list[Change] = []
        self._blocks.changes = changes
        try:
            yield
        finally:
            del self._blocks.changes
        if changes:
            self._database.write(changes, id)


class SqlTable:
    """A table of a store, or some that belong together."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql


def _storable(values: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(storable_text(v) if isinstance(v, str) else v for v in values)
