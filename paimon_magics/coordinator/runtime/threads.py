"""The runtime of a real process: a thread for each owner and loop, some for a pool, one for timers.

See `interface.Runtime`. What nobody expected is caught here alone, so that it is never lost: it is
logged, counted in `progress`, and handed on as an event.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

from paimon_magics.coordinator.runtime.interface import (
    Clock,
    Event,
    Lock,
    Loop,
    Owner,
    Progress,
    Timer,
    Work,
    as_exception,
    unless_expected,
)
from paimon_magics.errors import PaimonMagicsError

_IDLE_THREAD_SECONDS = 30.0

_log = logging.getLogger(__name__)

T = TypeVar("T")
E = TypeVar("E")


class ThreadRuntime:
    """See `interface.Runtime`."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self._reports: list[Work | _ThreadPool] = []
        self._alarms = Alarms(self.clock)
        self._attempts = Work("attempts", self.clock)
        self._reports += [self._alarms.work, self._attempts]

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
        """See `Runtime.owner`."""
        owner = _ThreadOwner(Work(name, self.clock), take, crashed, fatal, ended, items_max)
        self._reports.append(owner.work)
        return owner

    def pool(self, name: str, workers: int) -> _ThreadPool:
        """See `Runtime.pool`."""
        pool = _ThreadPool(name, workers, self.clock, self._alarms)
        self._reports.append(pool)
        return pool

    def every(self, name: str, interval_ms: float, call: Callable[[], object]) -> Timer:
        """See `Runtime.every`."""
        timer = RepeatedCall(name, interval_ms, call, self.clock, self._alarms)
        self._reports.append(timer.work)
        return timer

    def loop(
        self, name: str, pause_ms: Callable[[], float | None], work: Callable[[], object]
    ) -> Loop:
        """See `Runtime.loop`."""
        loop = _ThreadLoop(Work(name, self.clock), pause_ms, work)
        self._reports.append(loop.work)
        return loop

    def lock(self) -> Lock:
        """See `Runtime.lock`."""
        return threading.RLock()

    def event(self) -> Event:
        """See `Runtime.event`."""
        return _ThreadEvent()

    def future(self) -> Future[T]:
        """See `Runtime.future`."""
        return Future()

    def attempt(
        self, label: str, call: Callable[[], object], *, fatal: tuple[type[Exception], ...] = ()
    ) -> Exception | None:
        """See `Runtime.attempt`."""
        error = self._attempts.do(call, label)
        if isinstance(error, fatal):
            raise error
        return error

    def sleep(self, ms: float) -> None:
        """See `Runtime.sleep`."""
        time.sleep(ms / 1000)

    def progress(self) -> list[Progress]:
        """See `Runtime.progress`."""
        return [report.progress() for report in list(self._reports)]


class _ThreadOwner(Generic[T]):
    """See `interface.Owner`."""

    def __init__(
        self,
        work: Work,
        take: Callable[[Sequence[T]], object],
        crashed: Callable[[Sequence[T], Exception], object],
        fatal: tuple[type[Exception], ...],
        ended: Callable[[BaseException], object],
        items_max: int,
    ) -> None:
        self.work = work
        self.failure: BaseException | None = None
        self._take = take
        self._crashed = crashed
        self._fatal = fatal
        self._ended = ended
        self._items_max = items_max
        self._inbox: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self.put: Callable[[T], None] = self._inbox.put  # inserts come thousands a second
        work.waiting = self._inbox.qsize
        self._begin: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, name=work.name, daemon=True)

    def start(self, begin: Callable[[], None] | None = None) -> None:
        self._begin = begin
        self._thread.start()

    def end(self) -> None:
        self._inbox.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        items: list[T] | None = None
        try:
            if self._begin is not None and (error := self.work.do(self._begin)) is not None:
                raise error
            while (items := self._next()) is not None:
                error = self.work.do(lambda items=items: self._take(items))  # type: ignore[misc]
                if isinstance(error, self._fatal):
                    raise error
                if error is not None:
                    self._crashed(items, error)
        except BaseException as raised:
            self.failure = raised
            self._ended(raised)
            if left := [*(items or ()), *self._left()]:
                self._crashed(left, as_exception(raised))
        finally:
            self.work.ended = True

    def _left(self) -> list[T]:
        """The items that nobody takes any more."""
        left: list[T] = []
        while not self._inbox.empty():
            item = self._inbox.get()
            left += [] if item is None else [item]
        return left

    def _next(self) -> list[T] | None:
        """The items since the last turn, after waiting for one; None at the end."""
        first = self._inbox.get()
        if first is None:
            return None
        items = [first]
        while len(items) < self._items_max and not self._inbox.empty():
            item = self._inbox.get()
            if item is None:
                self._inbox.put(None)
                break
            items.append(item)
        return items


class _ThreadPool:
    """See `interface.Pool`. Threads start when they are needed, and end when they are not."""

    def __init__(self, name: str, workers: int, clock: Clock, alarms: Alarms) -> None:
        self._name = name
        self._clock = clock
        self._alarms = alarms
        self._inbox: queue.SimpleQueue[tuple[str, Callable[[], object]] | None] = (
            queue.SimpleQueue()
        )
        self._turn = threading.Lock()
        self._workers_max = workers
        self._workers: dict[threading.Thread, Work] = {}
        self._idle = 0
        self._is_ending = False
        self._failures = 0
        self._trouble = ""

    def effect(
        self,
        label: str,
        work: Callable[[], E],
        crashed: Callable[[Exception], E],
        deliver: Callable[[E], object],
        *,
        after_ms: float = 0,
    ) -> None:
        def carried_out() -> None:
            try:
                event = work()
            except BaseException as raised:
                error = as_exception(raised)
                self._note(label, error)
                event = crashed(error)
            deliver(event)

        self.run(label, carried_out, after_ms=after_ms)

    def run(self, label: str, work: Callable[[], object], *, after_ms: float = 0) -> None:
        if after_ms > 0:
            self._alarms.set(after_ms, lambda: self.run(label, work))
            return
        with self._turn:
            if self._is_ending:
                return
            self._inbox.put((label, work))
            if self._idle < self._inbox.qsize() and len(self._workers) < self._workers_max:
                thread = threading.Thread(
                    target=self._work, name=f"{self._name}-{len(self._workers)}", daemon=True
                )
                self._workers[thread] = Work(self._name, self._clock)
                thread.start()

    def end(self) -> None:
        with self._turn:
            self._is_ending = True
            workers = list(self._workers)
            for _ in workers:
                self._inbox.put(None)
        for thread in workers:
            thread.join()

    def progress(self) -> Progress:
        with self._turn:
            reports = [work.progress() for work in self._workers.values()]
        busy_ms = max((report.busy_ms for report in reports), default=0.0)
        waiting = self._inbox.qsize()
        return Progress(self._name, busy_ms, waiting, self._failures, self._trouble, False)

    def _work(self) -> None:
        thread = threading.current_thread()
        report = self._workers[thread]
        while True:
            with self._turn:
                self._idle += 1
            try:
                item = self._inbox.get(timeout=_IDLE_THREAD_SECONDS)
            except queue.Empty:
                item = None
            with self._turn:
                self._idle -= 1
                if item is None and (self._is_ending or self._inbox.empty()):
                    del self._workers[thread]
                    return
            if item is None:
                continue
            label, work = item
            if (error := report.do(work)) is not None:
                self._note(label, error)
            else:
                self._trouble = ""

    def _note(self, label: str, error: Exception) -> None:
        self._failures += 1
        shown = error if isinstance(error, PaimonMagicsError) else repr(error)
        self._trouble = f"{label}: {shown}"
        _log.warning("%s: %s", self._name, self._trouble, exc_info=unless_expected(error))


class _ThreadLoop:
    """See `interface.Loop`."""

    def __init__(
        self, work: Work, pause_ms: Callable[[], float | None], round: Callable[[], object]
    ) -> None:
        self.work = work
        self._pause_ms = pause_ms
        self._round = round
        self._wakes = threading.Event()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=work.name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._wakes.set()

    def stop(self) -> None:
        self._is_stopped = True
        self._wakes.set()

    def end(self) -> None:
        self.stop()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._is_stopped:
            self._wakes.clear()
            self.work.do(self._round)
            pause_ms = self._pause_ms()
            if not self._is_stopped:
                self._wakes.wait(None if pause_ms is None else pause_ms / 1000)
        self.work.ended = True


class _ThreadEvent:
    """See `interface.Event`."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.set = self._event.set
        self.clear = self._event.clear
        self.is_set = self._event.is_set

    def wait(self, timeout_ms: float | None = None) -> bool:
        return self._event.wait(None if timeout_ms is None else timeout_ms / 1000)


# Timers: one thread calls functions that do not wait, at their times.


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
