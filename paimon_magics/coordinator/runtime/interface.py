"""What runs, and the rules that hold for it.

- An *owner* is a thread that alone changes some state. It takes items in the order of arrival.
- A *pool* carries out effects. Each effect ends in exactly one event, whatever it raises.
- A *timer* calls a function that does not wait. A *loop* repeats work that may wait.

An exception of any type in an item, an effect, a timer or a loop is logged and reported; it ends
nothing. An owner alone may name types that end it: those that mean that its state can't be relied
on any more.

`progress` tells what each of them is doing, and since when. So a thread that stands still is seen.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from paimon_magics.errors import PaimonMagicsError

T = TypeVar("T")
E = TypeVar("E")
T_contra = TypeVar("T_contra", contravariant=True)

Lock = AbstractContextManager[object]
"""A lock that its holder may take again."""


_log = logging.getLogger(__name__)


Steps = Generator[Future[Any], Any, T]


@dataclass(frozen=True, slots=True)
class Progress:
    """What an owner, pool, timer or loop is doing.

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


class Event(Protocol):
    """A flag that threads can wait for."""

    def set(self) -> None:
        """Set the flag, and wake all that wait."""

    def clear(self) -> None:
        """Clear the flag."""

    def is_set(self) -> bool:
        """Whether the flag is set."""

    def wait(self, timeout_ms: float | None = None) -> bool:
        """Wait until the flag is set, or the time is over; return whether it is set."""


class Owner(Protocol, Generic[T_contra]):
    """A thread that alone changes some state. Any thread may call `put`."""

    failure: BaseException | None
    """What ended it early; None while it runs, and after `end`."""

    def put(self, item: T_contra) -> None:
        """Hand over an item."""

    def start(self, begin: Callable[[], None] | None = None) -> None:
        """Start. `begin` runs in the thread before the first item; its errors end the owner."""

    def end(self) -> None:
        """End after the items that were put before, and wait for that."""


class Pool(Protocol):
    """Threads that carry out effects. Any thread may call its methods."""

    def effect(
        self,
        label: str,
        work: Callable[[], E],
        crashed: Callable[[Exception], E],
        deliver: Callable[[E], object],
        *,
        after_ms: float = 0,
    ) -> None:
        """Run `work`, and deliver the event that it returns: exactly one.

        If `work` raises an exception, the event is what `crashed` makes of it. The wait of
        `after_ms` occupies no thread. Once the pool is ending nothing more begins: what an effect
        would have done is found at the next start.
        """

    def run(self, label: str, work: Callable[[], object], *, after_ms: float = 0) -> None:
        """Run `work`, whose outcome nobody waits for."""

    def end(self) -> None:
        """Wait for the work that has begun; begin nothing more."""


class Timer(Protocol):
    """Calls a function again and again."""

    def stop(self) -> None:
        """Call it no more."""


class Loop(Protocol):
    """Repeats work in a thread of its own."""

    def wake(self) -> None:
        """Begin the next round at once."""

    def stop(self) -> None:
        """Begin no more rounds, and don't wait for the present one."""

    def end(self) -> None:
        """Stop, and wait for the present round."""


class Runtime(Protocol):
    """Makes everything that runs. `clock` is the clock of all of it."""

    clock: Clock

    def owner(
        self,
        name: str,
        take: Callable[[Sequence[T]], object],
        *,
        crashed: Callable[[Sequence[T], Exception], object],
        fatal: tuple[type[Exception], ...],
        ended: Callable[[BaseException], object],
        items_max: int = 1,
    ) -> Owner[T]:
        """An owner, not started. `take` gets up to `items_max` items at a time.

        If it raises an exception, `crashed` gets the same items with it, and the owner goes on. A
        `fatal` type, or an exception in `crashed`, ends the owner: `ended` is called with it, then
        `crashed` with these items and with all that wait.
        """

    def pool(self, name: str, workers: int) -> Pool:
        """A pool with up to that many threads."""

    def every(self, name: str, interval_ms: float, call: Callable[[], object]) -> Timer:
        """Call a function that does not wait, in each interval once."""

    def loop(
        self, name: str, pause_ms: Callable[[], float | None], work: Callable[[], object]
    ) -> Loop:
        """Repeat `work` in a thread of its own, from now on, with pauses in between.

        `pause_ms` is asked after each round, also after one that has failed; with None the next
        round begins when somebody calls `wake`.
        """

    def lock(self) -> Lock:
        """A lock that its holder may take again."""

    def event(self) -> Event:
        """A flag that is not set."""

    def future(self) -> Future[T]:
        """A future without an answer."""

    def attempt(
        self, label: str, call: Callable[[], object], *, fatal: tuple[type[Exception], ...] = ()
    ) -> Exception | None:
        """Do something whose failure is the caller's to tell, in the calling thread.

        Return its exception, which is logged and counted; None after a success. Exceptions of a
        `fatal` type are raised.
        """

    def sleep(self, ms: float) -> None:
        """Wait in the calling thread. Owners and effects that retry use `after_ms` instead."""

    def progress(self) -> list[Progress]:
        """What everything that this runtime has made is doing."""


# Pieces of work: what a thread is doing, since when, and what it raised.


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


def run_steps(
    pool: Pool,
    label: str,
    steps: Steps[E],
    crashed: Callable[[Exception], E],
    deliver: Callable[[E], object],
) -> None:
    """Run steps in a pool, and deliver the event that they return, or `crashed` makes of their
    error: exactly one."""

    def advance(settled: Future[Any] | None) -> None:
        def deliver_or_wait(outcome: Future[Any] | tuple[E]) -> None:
            if isinstance(outcome, tuple):
                deliver(outcome[0])
            else:
                outcome.add_done_callback(advance)

        def step() -> Future[Any] | tuple[E]:
            return advanced(steps, settled)

        def failed(error: Exception) -> Future[Any] | tuple[E]:
            return (crashed(error),)

        pool.effect(label, step, failed, deliver_or_wait)

    advance(None)


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
