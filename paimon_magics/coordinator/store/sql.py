"""SQL for a store: one statement at a time, or several that become durable together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from paimon_magics.coordinator.store.database import Change, Database

__all__ = ["Sql"]


class Sql:
    """Reads and writes one database, for any thread.

    Every statement must be idempotent: it is repeated when it is unclear whether it was done.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turn = threading.RLock()
        self._together: list[Change] | None = None

    def read(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return self._database.read(statement, *values)

    def write(self, statement: str, *values: object) -> None:
        """Make a change durable: at once, or at the end of the `together` block around it."""
        with self._turn:
            change = Change(statement, values)
            if self._together is None:
                self._database.write([change])
            else:
                self._together.append(change)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Make the changes of the `with` block durable together, at its end; drop them when it
        raises."""
        with self._turn:
            changes: list[Change] = []
            self._together = changes
            try:
                yield
            finally:
                self._together = None
            if changes:
                self._database.write(changes)
