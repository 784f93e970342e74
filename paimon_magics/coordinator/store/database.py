"""The database that a coordinator's store is kept in, as the store sees it: one interface.

Two stand behind it, SQLite (`sqlite`) and PostgreSQL (`postgres`). Both promise:
what `write` was given is durable, all of it or nothing, before it returns; there is one owner at a
time; and an error says whether anything may have been written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from paimon_magics.errors import SetupError

__all__ = ["Change", "Database", "Dialect", "StoreLostError", "StoreUnavailableError"]


@dataclass(frozen=True, slots=True)
class Change:
    """A statement that changes rows, with a `?` for each of its values in their order."""

    statement: str
    values: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs in the definition of a table."""

    integer: str
    bytes: str
    table_end: str


class StoreUnavailableError(SetupError):
    """The database does not work now and may again: full, locked, read-only, out of reach.

    Nothing of what was to be written was, unless `unclear`: then all of it may have been, which
    the same `write` again finds out.
    """

    def __init__(self, message: str, *, hint: str = "", unclear: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.unclear = unclear


class StoreLostError(SetupError):
    """The database is not what this coordinator left: it must not go on, and can't heal."""


class Database(Protocol):
    """Where a store is kept. Safe for several threads.

    `name` says to a person which one it is, without secrets.
    """

    name: str
    dialect: Dialect

    def read(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of a query. Raises StoreUnavailableError or StoreLostError."""

    def write(self, changes: Sequence[Change]) -> None:
        """Make all the changes, durably, or none of them.

        Raises StoreUnavailableError or StoreLostError; any other error leaves open what was
        written, and whoever gets it must not go on.
        """

    def close(self) -> None:
        """Give the database up, so that another coordinator may own it."""
