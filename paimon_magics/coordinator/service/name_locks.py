"""Statements that change what names mean are kept apart: one at a time has a name.

A statement asks for all its names at once, and gets them when no earlier statement has one of them,
or waits for it. So there is no deadlock, and nobody is passed over. Waits are futures.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paimon_magics.coordinator.runtime import Future, Runtime
from paimon_magics.errors import CommitConflictError

__all__ = ["NameLock", "NameLocks"]

_WAIT_MS = 60_000.0


@dataclass(slots=True, eq=False)
class NameLock:
    """The lock on some names that a statement has, or waits for: `granted` has a result then."""

    names: frozenset[str]
    granted: Future[None]


class NameLocks:
    """The locks of one process. For any thread."""

    def __init__(self, runtime: Runtime, wait_ms: float = _WAIT_MS) -> None:
        self._runtime = runtime
        self._wait_ms = wait_ms
        self._turn = runtime.lock()
        self._locks: list[NameLock] = []
        self._alarms = runtime.pool("names", 1)

    def lock(self, names: Iterable[str]) -> NameLock:
        """Ask for some names. `granted` fails with CommitConflictError where that takes too long;
        call `release` in any case."""
        lock = NameLock(frozenset(names), self._runtime.future())
        with self._turn:
            self._locks.append(lock)
            is_free = self._is_free(lock)
            if is_free:
                lock.granted.set_result(None)
        if not is_free:
            self._alarms.run("late", lambda: self._refuse(lock), after_ms=self._wait_ms)
        return lock

    def release(self, lock: NameLock) -> None:
        """Let the next statements have the names."""
        with self._turn:
            if lock not in self._locks:
                return
            self._locks.remove(lock)
            free = [other for other in self._locks if self._is_free(other)]
            granted = [other.granted for other in free if not other.granted.done()]
        for future in granted:
            if not future.done():
                future.set_result(None)

    def count(self) -> int:
        """How many statements have names or wait for them."""
        return len(self._locks)

    def _is_free(self, lock: NameLock) -> bool:
        earlier = self._locks[: self._locks.index(lock)]
        return not any(lock.names & other.names for other in earlier)

    def _refuse(self, lock: NameLock) -> None:
        with self._turn:
            if lock.granted.done():
                return
            self._locks.remove(lock)
        names = ", ".join(sorted(name.lstrip("\0").replace("\0", ".") for name in lock.names))
        lock.granted.set_exception(
            CommitConflictError(
                f"Other statements have been changing {names} for {self._wait_ms / 1000:.0f} s.",
                hint="Nothing was changed. Run the statement again.",
            )
        )
