"""Work as values: what a thread is doing and since when, work in steps, and the clock."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from paimon_magics.errors import PaimonMagicsError

T = TypeVar("T")

_log = logging.getLogger(__name__)

Steps = Generator[Future[Any], Any, T]


@dataclass(frozen=True, slots=True)
class Progress:
    """What an owner, pool, timer or loop is doing; see `threads`.

    `busy_ms` is how long the longest present piece of work has lasted, 0 without work. `waiting` is
    the number of items that wait. `failures` counts the exceptions since the start; `trouble` is
    the last one, "" after a success. `ended` says that it no longer runs.
    """

    name: str
    busy_ms: float
    waiting: int
    failures: int
    trouble: str
    ended: bool = False


# Pieces of work: what a thread is doing, since when, and what it raised.


class Work:
    """What one thread is doing. The thread writes, others read."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._since_ms: float | None = None
        self._failures = 0
        self.trouble = ""
        self.ended = False
        self.waiting: Callable[[], int] = lambda: 0

    def do(self, work: Callable[[], object], label: str = "") -> Exception | None:
        """Do a piece of work. Return its exception, which is logged with the label."""
        self._since_ms = self._clock.steady_ms()
        try:
            work()
        except BaseException as raised:
            return self.fail(raised, label)
        finally:
            self._since_ms = None
        self.trouble = ""
        return None

    def fail(self, raised: BaseException, label: str = "") -> Exception:
        """Count and log an exception; return it as one that handlers expect."""
        error = as_exception(raised)
        self._failures += 1
        shown = error if isinstance(error, PaimonMagicsError) else repr(error)
        self.trouble = f"{label}: {shown}" if label else str(shown)
        # The message of an error of ours, or of the system, is enough.
        is_expected = isinstance(error, PaimonMagicsError | OSError)
        _log.warning("%s: %s", self.name, self.trouble, exc_info=None if is_expected else error)
        return error

    @property
    def busy_ms(self) -> float:
        """How long the present piece of work has lasted; 0 without one."""
        since_ms = self._since_ms
        return 0.0 if since_ms is None else self._clock.steady_ms() - since_ms

    def progress(self) -> Progress:
        """See `Runtime.progress`."""
        return Progress(
            self.name, self.busy_ms, self.waiting(), self._failures, self.trouble, self.ended
        )


def as_exception(raised: BaseException) -> Exception:
    """The exception in a form that handlers expect; a panic of a Rust library is not in that
    form."""
    if isinstance(raised, Exception):
        return raised
    error = RuntimeError(f"{type(raised).__name__}: {raised}")
    error.__cause__ = raised
    return error


# Work in steps, with waits in between that occupy no thread.
#
# Steps are a generator: it yields futures, gets their results, and returns the result of the whole.
# A future's error is raised where it was yielded. The steps themselves run in threads.


def advanced(steps: Steps[T], settled: Future[Any] | None) -> Future[Any] | tuple[T]:
    """Run the next step, with the outcome of the future that was yielded, None for the first step.
    Return the next future to wait for, or the result of the whole in a tuple. Raises its errors."""
    try:
        if settled is None:
            return next(steps)
        error = settled.exception()
        return steps.send(settled.result()) if error is None else steps.throw(error)
    except StopIteration as end:
        return (end.value,)


def waited(steps: Steps[T]) -> T:
    """Run steps in this thread, and wait in it."""
    outcome = advanced(steps, None)
    while not isinstance(outcome, tuple):
        outcome.exception()  # waits
        outcome = advanced(steps, outcome)
    return outcome[0]


# The coordinator's clock: it tells the time of day, but never jumps.
#
# Leases, intervals and retention are differences of times. When an administrator or NTP sets the
# machine's clock, none of them may change. So the time of day is read once, at the start, and then
# advances by a clock that never goes back and runs on while the machine sleeps.


def _wall_ms() -> float:
    return time.time() * 1000


_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)


def _steady_ms() -> float:
    """Milliseconds of a clock that never goes back and, where possible, runs on during sleep."""
    return (time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)) * 1000


class Clock:
    """A clock that starts at the time of day `wall_ms()` and advances by `steady_ms()`.

    For any thread.
    """

    def __init__(
        self,
        wall_ms: Callable[[], float] = _wall_ms,
        steady_ms: Callable[[], float] = _steady_ms,
    ) -> None:
        self.steady_ms = steady_ms
        """Milliseconds since an unknown time, for differences alone."""
        self._ahead_ms = wall_ms() - steady_ms()

    def now_ms(self) -> int:
        """Milliseconds since 1970 in UTC, as of the machine's clock when this one was made."""
        return int(self.steady_ms() + self._ahead_ms)
