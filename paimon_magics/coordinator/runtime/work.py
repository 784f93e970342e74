"""Pieces of work: what a thread is doing, since when, and what it raised."""

from __future__ import annotations

import logging
from collections.abc import Callable

from paimon_magics.coordinator.runtime.clock import Clock
from paimon_magics.coordinator.runtime.interface import Progress
from paimon_magics.errors import PaimonMagicsError

__all__ = ["Work", "as_exception", "unless_expected"]

_log = logging.getLogger(__name__)


class Work:
    """What one thread is doing. The thread writes, others read."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._since_ms: float | None = None
        self._failures = 0
        self._trouble = ""
        self.ended = False
        self.waiting: Callable[[], int] = lambda: 0

    def do(self, work: Callable[[], object], label: str = "") -> Exception | None:
        """Do a piece of work. Return its exception, which is logged with the label."""
        self._since_ms = self._clock.steady_ms()
        try:
            work()
        except BaseException as raised:
            error = as_exception(raised)
            self._failures += 1
            shown = error if isinstance(error, PaimonMagicsError) else repr(error)
            self._trouble = f"{label}: {shown}" if label else str(shown)
            _log.warning("%s: %s", self.name, self._trouble, exc_info=unless_expected(error))
            return error
        finally:
            self._since_ms = None
        self._trouble = ""
        return None

    def progress(self) -> Progress:
        """See `Runtime.progress`."""
        since_ms = self._since_ms
        busy_ms = 0.0 if since_ms is None else self._clock.steady_ms() - since_ms
        return Progress(
            self.name, busy_ms, self.waiting(), self._failures, self._trouble, self.ended
        )


def as_exception(raised: BaseException) -> Exception:
    """The exception as one that handlers expect: a panic of a library in Rust is none."""
    if isinstance(raised, Exception):
        return raised
    error = RuntimeError(f"{type(raised).__name__}: {raised}")
    error.__cause__ = raised
    return error


def unless_expected(error: Exception) -> Exception | None:
    """The exception, for a log with its frames; None for one of ours, whose message is enough."""
    return None if isinstance(error, PaimonMagicsError | OSError) else error
