"""Timers: one thread calls functions that do not wait, at their times."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable

from paimon_magics.coordinator.runtime.clock import Clock
from paimon_magics.coordinator.runtime.work import Work

__all__ = ["Alarms", "RepeatedCall"]


class Alarms:
    """One thread that calls functions at their times. They must not wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.work = Work("timers", clock)
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._thread: threading.Thread | None = None

    def set(self, after_ms: float, call: Callable[[], object]) -> None:
        """Have a function called once, after that time."""
        at_ms = self._clock.steady_ms() + after_ms
        with self._changed:
            heapq.heappush(self._due, (at_ms, next(self._numbers), call))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="timers", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._due:
                    self._changed.wait()
                wait_ms = self._due[0][0] - self._clock.steady_ms()
                if wait_ms > 0:
                    self._changed.wait(wait_ms / 1000)
                    continue
                call = heapq.heappop(self._due)[2]
            self.work.do(call)


class RepeatedCall:
    """See `interface.Timer`."""

    def __init__(
        self,
        name: str,
        interval_ms: float,
        call: Callable[[], object],
        clock: Clock,
        alarms: Alarms,
    ) -> None:
        self.work = Work(name, clock)
        self._interval_ms = interval_ms
        self._call = call
        self._alarms = alarms
        self._is_stopped = False
        alarms.set(interval_ms, self._ring)

    def stop(self) -> None:
        """See `Timer.stop`."""
        self._is_stopped = True
        self.work.ended = True

    def _ring(self) -> None:
        if self._is_stopped:
            return
        self.work.do(self._call)
        self._alarms.set(self._interval_ms, self._ring)
