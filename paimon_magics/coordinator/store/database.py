"""The interface of the database in which a coordinator's store is kept.

SQLite (`sqlite`) and PostgreSQL (`postgres`) implement it. Both promise that all the changes of a
`write` are durable when it returns, or none of them; that there is one owner at a time; that no
call waits for long; and that an error says whether anything may have been written. They raise the
errors below and no others, whatever their libraries raise.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from paimon_magics.errors import SetupError

_UNCLEAR_MAX = 10_000  # ids of writes whose answers were lost; each has some 100 bytes
_RECENT_MAX = 1_024


@dataclass(frozen=True, slots=True)
class Change:
    """A statement that changes rows, with a `?` for each of its values in order."""

    statement: str
    values: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Dialect:
    """The differences between databases in the definition of a table."""

    integer: str
    bytes: str
    table_end: str


class StoreUnavailableError(SetupError):
    """The database does not work now, but may recover: it is full, locked, read-only, unreachable.

    This write was not done, unless `unclear`: then all of it may have been done. Repeating the same
    write settles it, regardless of writes in between.
    """

    def __init__(self, message: str, *, hint: str = "", unclear: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.unclear = unclear


class UnstorableError(StoreUnavailableError):
    """The database can't store the values of this write. The write was not done; other writes
    work."""


class StoreLostError(SetupError):
    """The database is not as this coordinator left it. The coordinator must not continue
    with it."""


class Database(Protocol):
    """Keeps a store. Safe for several threads.

    `name` names the database in messages, without secrets. One that `is_shared` has the store of
    all coordinators of a warehouse, which own it one after the other.
    """

    name: str
    dialect: Dialect
    is_shared: bool

    def read(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of a query. Raises StoreUnavailableError or StoreLostError."""

    def write(self, changes: Sequence[Change], id: str = "") -> None:
        """Make all the changes durable, or none of them.

        With an `id` they are made once, even if the call is repeated after an unclear error, or
        soon after its success. Without an `id` the changes must be idempotent: a repeat makes them
        again. Raises StoreUnavailableError, UnstorableError or StoreLostError.
        """

    def close(self) -> None:
        """Close the database, so that another coordinator may own it."""


class KnownWrites:
    """The outcomes of the last writes with ids: of writes with lost answers, and of the very last
    writes. For one thread at a time.
    """

    def __init__(self) -> None:
        self._unclear: dict[str, bool | None] = {}  # whether it was done, None if that is unknown
        self._recent: dict[str, None] = {}

    def unclear(self, id: str) -> None:
        """Note that the answer to a write was lost."""
        self._unclear.pop(id, None)
        self._unclear[id] = None
        if len(self._unclear) > _UNCLEAR_MAX:
            del self._unclear[next(iter(self._unclear))]

    def settle(self, done: str = "") -> None:
        """Note that of the writes with an unknown outcome only `done` was done, if any."""
        for id in self._unclear:
            if self._unclear[id] is None:
                self._unclear[id] = id == done

    def succeeded(self, id: str) -> None:
        """Note that a write is done."""
        if id in self._unclear:
            self._unclear[id] = True
            return
        self._recent[id] = None
        if len(self._recent) > _RECENT_MAX:
            del self._recent[next(iter(self._recent))]

    def is_open(self, id: str) -> bool:
        """Whether it is unknown if a write was done."""
        return self._unclear.get(id, False) is None

    def is_done(self, id: str) -> bool:
        """Whether a write is known to be done."""
        return self._unclear.get(id, False) is True or id in self._recent


class Turn:
    """The turn to use a connection; no thread waits long for it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Hold the turn in the `with` block. Raises StoreUnavailableError if it does not come
        within some seconds.
        """
        if not self._lock.acquire(timeout=seconds):
            raise StoreUnavailableError(
                f"{self._name} is slow: another request waits for it.",
                hint=(
                    "Send the request again. If the error persists, check the database's server "
                    "or disk."
                ),
            )
        try:
            yield
        finally:
            self._lock.release()


def check_warehouse(what: str, bound_id: str, id: str, hint: str = "") -> bool:
    """Whether to bind a store or log to the warehouse with an id now ("" while that is unknown).
    Raises SetupError if it belongs to another warehouse, with a `hint` of the caller's besides.
    """
    if bound_id and id and bound_id != id:
        raise SetupError(
            f"{what} belongs to the warehouse with the id {bound_id}, not to this warehouse with "
            f"the id {id}.",
            hint=(
                "Start the coordinator with that warehouse, or give this warehouse its own "
                f"state folder and store. {hint}".rstrip()
            ),
        )
    return bool(id and not bound_id)
