"""The interface of the database in which a coordinator's store is kept.

SQLite (`sqlite`) and PostgreSQL (`postgres`) implement it. Both promise that all the changes of a
`write` are durable when it returns, or none of them; that there is one owner at a time; and that an
error says whether anything may have been written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from paimon_magics.errors import SetupError

__all__ = ["Change", "Database", "Dialect", "StoreLostError", "StoreUnavailableError"]


@dataclass(frozen=True, slots=True)
class Change:
    """A statement that changes rows, with a `?` for each of its values in order."""

    statement: str
    values: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs between databases in the definition of a table."""

    integer: str
    bytes: str
    table_end: str


class StoreUnavailableError(SetupError):
    """The database does not work now, but may recover: it is full, locked, read-only, unreachable.

    Nothing was written, unless `unclear`: then all of it may have been, and repeating the same
    `write` settles it.
    """

    def __init__(self, message: str, *, hint: str = "", unclear: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.unclear = unclear


class StoreLostError(SetupError):
    """The database is not as this coordinator left it. The coordinator must not go on with it."""


class Database(Protocol):
    """Keeps a store. Safe for several threads.

    `name` names the database in messages, without secrets.
    """

    name: str
    dialect: Dialect

    def read(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of a query. Raises StoreUnavailableError or StoreLostError."""

    def write(self, changes: Sequence[Change]) -> None:
        """Make all the changes durable, or none of them.

        Raises StoreUnavailableError or StoreLostError. After any other error it is unknown what
        was written, and the caller must not go on.
        """

    def close(self) -> None:
        """Close the database, so that another coordinator may own it."""
