"""A log's own time: the milliseconds for which it was open, whatever a machine's clock says."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["RunningTime"]


class RunningTime:
    """Goes on from `begin_ms` by a steady clock in seconds, time.monotonic if none is given."""

    def __init__(self, begin_ms: int, steady: Callable[[], float] | None = None) -> None:
        self._steady = steady or time.monotonic
        self._begin_ms = begin_ms
        self._begin = self._steady()

    def now_ms(self) -> int:
        """The time now."""
        return self._begin_ms + int((self._steady() - self._begin) * 1000)
