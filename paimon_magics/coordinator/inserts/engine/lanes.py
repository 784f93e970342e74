"""Whose batch is loaded next: a share for each user, and for long loads a lane of their own.

Loads are files to write, and how long a batch takes is seen only while it is written: a few
kilobytes may have rows of ten thousand partitions. So users take turns, however many tables and
batches one of them has. A load that lasts while others wait gives up its place, and begins again in
the lane of long loads; there it may last, unless its batch can be cut in halves.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable

from paimon_magics.coordinator.runtime.work import Clock

QUICK_SLOTS = 3
LONG_SLOTS = 2
QUICK_MS = 10_000.0
"""How long a load may last while others wait, before it goes to the lane of long loads."""

LONG_MS = 300_000.0
"""How long a load may last there, before its batch is cut in halves."""


class LongLoadError(Exception):
    """A load has lasted too long for its lane, and others wait."""


class Lane:
    """Loads that take turns: up to `slots` at once, the users who wait one after the other. A load
    may last for `limit_ms` while others wait. For any thread."""

    def __init__(self, slots: int, limit_ms: float, clock: Clock) -> None:
        self._free = slots
        self._limit_ms = limit_ms
        self._clock = clock
        self._turn = threading.Lock()
        self._waiting: OrderedDict[str, deque[Callable[[Place], object]]] = OrderedDict()

    def enter(self, user: str, begin: Callable[[Place], object]) -> None:
        """Call `begin`, which must not wait, with a place when it is the user's turn."""
        with self._turn:
            self._waiting.setdefault(user, deque()).append(begin)
        self._go_on()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for a place."""
        return bool(self._waiting)

    def left(self) -> None:
        """Give a place to the next user."""
        with self._turn:
            self._free += 1
        self._go_on()

    def place(self) -> Place:
        """A place, which is taken already."""
        return Place(self, self._limit_ms, self._clock)

    def _go_on(self) -> None:
        while (begin := self._next()) is not None:
            begin(self.place())

    def _next(self) -> Callable[[Place], object] | None:
        with self._turn:
            if not self._free or not self._waiting:
                return None
            self._free -= 1
            user, begins = self._waiting.popitem(last=False)
            begin = begins.popleft()
            if begins:  # behind the others
                self._waiting[user] = begins
            return begin


class Place:
    """The place of a load in a lane, until its `end`; `lasted_ms` is how long it was taken. For any
    thread."""

    def __init__(self, lane: Lane, limit_ms: float, clock: Clock) -> None:
        self._lane = lane
        self._limit_ms = limit_ms
        self._clock = clock
        self._since_ms = clock.steady_ms()
        self._turn = threading.Lock()
        self._has_ended = False
        self.has_limit = True
        self.lasted_ms = 0.0

    def check(self) -> None:
        """Raise LongLoadError if the load has lasted too long, and others wait."""
        lasts_ms = self._clock.steady_ms() - self._since_ms
        is_long = self.has_limit and lasts_ms > self._limit_ms
        if is_long and self._lane.is_wanted:
            raise LongLoadError(f"Its load has lasted {lasts_ms / 1000:,.0f} s, and others wait.")

    def end(self) -> None:
        """Leave the lane. May be called again."""
        with self._turn:
            if self._has_ended:
                return
            self._has_ended = True
            self.lasted_ms = self._clock.steady_ms() - self._since_ms
        self._lane.left()
