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

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from paimon_magics.coordinator.runtime.clock import Clock

__all__ = [
    "Event",
    "Future",
    "Lock",
    "Loop",
    "Owner",
    "Pool",
    "Progress",
    "Runtime",
    "Timer",
]

T = TypeVar("T")
E = TypeVar("E")
T_contra = TypeVar("T_contra", contravariant=True)

Lock = AbstractContextManager[object]
"""A lock that its holder may take again."""


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
