"""Everything of the coordinator that runs: owners, pools, timers and loops, in threads.

- An *owner* is a thread that alone changes some state. It takes items in the order of arrival.
- A *pool* carries out effects. Each effect ends in exactly one event, whatever it raises.
- A *timer* calls a function that does not wait. A *loop* repeats work that may wait.

An exception of any type in an item, an effect, a timer or a loop is logged and reported; it ends
nothing. Only an owner may name types that end it: types that mean that its state is no longer
reliable. Only this module catches unexpected exceptions, so that none is lost: each is logged,
counted in `progress`, and handed on as an event.

`progress` shows what each of them is doing, and since when, so a thread that stands still is
visible.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Generic, TypeVar

from paimon_magics.coordinator.runtime.work import (
    Clock,
    Progress,
    Steps,
    Work,
    advanced,
    as_exception,
)

_IDLE_THREAD_SECONDS = 30.0
_AGAIN_MS = 1_000.0

T = TypeVar("T")
E = TypeVar("E")


class Runtime:
    """Makes owners, pools, timers and loops. `clock` is their common clock."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self._reports: list[Work | Pool] = []
        self._alarms = _Alarms(self.clock)
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
        """An owner, not started. `take` gets up to `items_max` items at a time.

        If it raises an exception, `crashed` gets the same items with it, and the owner goes on. A
        `fatal` type, or an exception in `crashed`, ends the owner: `ended` is called with it, then
        `crashed` with these items and with all that wait.
        """
        owner = Owner(Work(name, self.clock), take, crashed, fatal, ended, items_max)
        self._reports.append(owner.work)
        return owner

    def pool(self, name: str, workers: int) -> Pool:
        """A pool with up to that many threads."""
        pool = Pool(Work(name, self.clock), workers, self.clock, self._alarms)
        self._reports.append(pool)
        return pool

    def every(self, name: str, interval_ms: float, call: Callable[[], object]) -> Timer:
        """Call a function that does not wait, in each interval once."""
        timer = Timer(Work(name, self.clock), interval_ms, call, self._alarms)
        self._reports.append(timer.work)
        return timer

    def loop(
        self, name: str, pause_ms: Callable[[], float | None], work: Callable[[], object]
    ) -> Loop:
        """Repeat `work` in a thread of its own, from now on, with pauses in between.

        `pause_ms` is asked after each round, also after one that has failed; with None the next
        round begins when somebody calls `wake`.
        """
        loop = Loop(Work(name, self.clock), pause_ms, work)
        self._reports.append(loop.work)
        return loop

    def attempt(
        self, label: str, call: Callable[[], object], *, fatal: tuple[type[Exception], ...] = ()
    ) -> Exception | None:
        """Do something in the calling thread; the caller reports a failure.

        Return its exception, which is logged and counted; None after a success. Exceptions of a
        `fatal` type are raised.
        """
        error = self._attempts.do(call, label)
        if isinstance(error, fatal):
            raise error
        return error

    def progress(self) -> list[Progress]:
        """The progress of everything that this runtime has made."""
        return [report.progress() for report in list(self._reports)]


class Owner(Generic[T]):
    """A thread that alone changes some state. Any thread may call `put`, which hands over an item.

    `failure` is the exception that ended it early; None while it runs, and after `end`.
    """

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
        """Start. `begin` runs in the thread before the first item; its errors end the owner."""
        self._begin = begin
        self._thread.start()

    def end(self) -> None:
        """End after the items that were put before, and wait for that."""
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
        """The items that the owner no longer takes."""
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
        with contextlib.suppress(queue.Empty):
            while len(items) < self._items_max:
                item = self._inbox.get_nowait()
                if item is None:
                    self._inbox.put(None)
                    break
                items.append(item)
        return items


class Pool:
    """Threads that carry out effects. Any thread may call its methods.

    Threads start when they are needed. The last one stays for good: when the system is short of
    threads for a moment, work goes on.
    """

    def __init__(self, work: Work, workers: int, clock: Clock, alarms: _Alarms) -> None:
        self._report = work
        self._clock = clock
        self._alarms = alarms
        self._inbox: queue.SimpleQueue[tuple[str, Callable[[], object]] | None] = (
            queue.SimpleQueue()
        )
        work.waiting = self._inbox.qsize
        self._turn = threading.Lock()
        self._workers_max = workers
        self._workers: dict[threading.Thread, Work] = {}
        self._idle = 0
        self._is_ending = False

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
        `after_ms` occupies no thread. Once the pool is ending, nothing more begins: the next start
        finds the open work.
        """

        def carry_out() -> None:
            try:
                event = work()
            except BaseException as raised:
                event = crashed(self._report.fail(raised, label))
            deliver(event)

        self.run(label, carry_out, after_ms=after_ms)

    def run_steps(
        self,
        label: str,
        steps: Steps[E],
        crashed: Callable[[Exception], E],
        deliver: Callable[[E], object],
    ) -> None:
        """Run steps, and deliver the event that they return, or that `crashed` makes of their
        error: exactly one."""

        def advance(settled: Future[Any] | None) -> None:
            def deliver_or_wait(outcome: Future[Any] | tuple[E]) -> None:
                if isinstance(outcome, tuple):
                    deliver(outcome[0])
                else:
                    outcome.add_done_callback(advance)

            self.effect(
                label,
                lambda: advanced(steps, settled),
                lambda error: (crashed(error),),
                deliver_or_wait,
            )

        advance(None)

    def run(self, label: str, work: Callable[[], object], *, after_ms: float = 0) -> None:
        """Run `work` without waiting for its outcome."""
        if after_ms > 0:
            self._alarms.set(after_ms, lambda: self.run(label, work))
            return
        with self._turn:
            if self._is_ending:
                return
            self._inbox.put((label, work))
        self._add_worker()

    def _add_worker(self) -> None:
        """Start a worker if items wait for one. Where the system starts no thread now, try again
        in a second: the items wait."""
        with self._turn:
            is_enough = self._idle >= self._inbox.qsize()
            if self._is_ending or is_enough or len(self._workers) >= self._workers_max:
                return
            name = self._report.name
            thread = threading.Thread(
                target=self._run, name=f"{name}-{len(self._workers)}", daemon=True
            )
            self._workers[thread] = Work(name, self._clock)
        try:
            thread.start()
        except BaseException as raised:
            with self._turn:
                del self._workers[thread]
            self._report.fail(raised, "starting a thread")
            self._alarms.set(_AGAIN_MS, self._add_worker)

    def end(self) -> None:
        """Wait for work under way; begin nothing more."""
        with self._turn:
            self._is_ending = True
            workers = list(self._workers)
            for _ in workers:
                self._inbox.put(None)
        for thread in workers:
            with contextlib.suppress(RuntimeError):  # it could not be started
                thread.join()

    def progress(self) -> Progress:
        """See `Runtime.progress`."""
        with self._turn:
            busy_ms = max((work.busy_ms for work in self._workers.values()), default=0.0)
        return replace(self._report.progress(), busy_ms=busy_ms)

    def _run(self) -> None:
        thread = threading.current_thread()
        while True:
            try:
                if not self._take(thread):
                    return
            except BaseException as raised:  # of a wait, where the system is short of something
                self._report.fail(raised, "a worker")

    def _take(self, thread: threading.Thread) -> bool:
        """Wait for an item and carry it out. Return False if the thread ends: the last one stays,
        since the system may start no other when it is needed."""
        with self._turn:
            self._idle += 1
        item = None
        try:
            with contextlib.suppress(queue.Empty):
                item = self._inbox.get(timeout=_IDLE_THREAD_SECONDS)
        finally:
            with self._turn:
                self._idle -= 1
                is_spare = self._inbox.empty() and len(self._workers) > 1
                ends = item is None and (self._is_ending or is_spare)
                if ends:
                    del self._workers[thread]
        if ends:
            return False
        if item is not None:
            label, work = item
            if (error := self._workers[thread].do(work)) is not None:
                self._report.fail(error, label)
            else:
                self._report.trouble = ""
        return True


class Loop:
    """Repeats work in a thread of its own."""

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
        """Begin the next round at once."""
        self._wakes.set()

    def stop(self) -> None:
        """Begin no more rounds, and don't wait for the present one."""
        self._is_stopped = True
        self._wakes.set()

    def end(self) -> None:
        """Stop, and wait for the present round."""
        self.stop()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._is_stopped:
            self._wakes.clear()
            self.work.do(self._round)
            try:
                pause_ms = self._pause_ms()
                if not self._is_stopped:
                    self._wakes.wait(None if pause_ms is None else pause_ms / 1000)
            except BaseException as raised:  # see `Pool`
                self.work.fail(raised, "a pause")
        self.work.ended = True


# Timers: one thread calls functions that do not wait, at their times.


class _Alarms:
    """One thread that calls functions at their times. They must not wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.work = Work("timers", clock)
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._thread: threading.Thread | None = None

    def set(self, after_ms: float, call: Callable[[], object]) -> None:
        at_ms = self._clock.steady_ms() + after_ms
        with self._changed:
            heapq.heappush(self._due, (at_ms, next(self._numbers), call))
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="timers", daemon=True)
                try:
                    thread.start()
                    self._thread = thread
                except BaseException as raised:  # the next call tries again
                    self.work.fail(raised, "starting a thread")
            self._changed.notify()

    def _run(self) -> None:
        while True:
            try:
                call = self._next()
            except BaseException as raised:  # see `Pool`
                self.work.fail(raised, "a wait")
            else:
                self.work.do(call)

    def _next(self) -> Callable[[], object]:
        """The call that is due next, after waiting for it."""
        with self._changed:
            while True:
                while not self._due:
                    self._changed.wait()
                wait_ms = self._due[0][0] - self._clock.steady_ms()
                if wait_ms <= 0:
                    return heapq.heappop(self._due)[2]
                self._changed.wait(wait_ms / 1000)


class Timer:
    """Calls a function repeatedly."""

    def __init__(
        self, work: Work, interval_ms: float, call: Callable[[], object], alarms: _Alarms
    ) -> None:
        self.work = work
        self._interval_ms = interval_ms
        self._call = call
        self._alarms = alarms
        alarms.set(interval_ms, self._ring)

    def stop(self) -> None:
        """Stop calling the function."""
        self.work.ended = True

    def _ring(self) -> None:
        if not self.work.ended:
            self.work.do(self._call)
            self._alarms.set(self._interval_ms, self._ring)
