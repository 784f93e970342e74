"""The coordinator's clock: it tells the time of day, but never jumps.

Leases, intervals and retention are differences of times. When an administrator or NTP sets the
machine's clock, none of them may change. So the time of day is read once, at the start, and then
advances by a clock that never goes back and runs on while the machine sleeps.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Clock"]


def _wall_ms() -> float:
    return time.time() * 1000


def _steady_ms() -> float:
    """Milliseconds of a clock that never goes back and, where possible, runs on during sleep."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return (time.monotonic() if boottime is None else time.clock_gettime(boottime)) * 1000


class Clock:
    """A clock that starts at the time of day `wall_ms()` and advances by `steady_ms()`.

    For any thread.
    """

    def __init__(
        self,
        wall_ms: Callable[[], float] = _wall_ms,
        steady_ms: Callable[[], float] = _steady_ms,
    ) -> None:
        self._steady_ms = steady_ms
        self._ahead_ms = wall_ms() - steady_ms()

    def now_ms(self) -> int:
        """Milliseconds since 1970 in UTC, as of the machine's clock when this one was made."""
        return int(self._steady_ms() + self._ahead_ms)

    def steady_ms(self) -> float:
        """Milliseconds since an unknown time, for differences alone."""
        return self._steady_ms()
