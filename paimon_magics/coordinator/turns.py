"""One caller at a time has a table: commits, expiry and other changes of a process take turns."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

Turn = Callable[[str], AbstractContextManager[None]]
"""Gives one caller at a time the table at a location (see `StoredTable`)."""


class Turns:
    """A `Turn` for this process. A thread that has a table may take it again."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: dict[str, tuple[threading.RLock, int]] = {}

    @contextlib.contextmanager
    def __call__(self, location: str) -> Iterator[None]:
        """Wait for the location, and hold it until the end of the `with` block."""
        with self._guard:
            lock, users = self._waiting.get(location, (threading.RLock(), 0))
            self._waiting[location] = lock, users + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, users = self._waiting[location]
                if users == 1:
                    del self._waiting[location]
                else:
                    self._waiting[location] = lock, users - 1
