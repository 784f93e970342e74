"""The scheduler of a simulation: greenlets that a seed picks, on a clock of their own.

Tasks run one at a time, until they wait or pause. Then a seeded random picks the next one that can
run. When none can, time advances to the next deadline. So a run is decided by its seed alone.

A *process* is a group of tasks that crash together. A crashed one never does anything again: each
call of its `finally` blocks into the world raises `Crashed`.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import greenlet

__all__ = ["Crashed", "Process", "Scheduler", "StuckError", "Task", "current"]

START_US = 1_760_000_000_000_000
_STEPS_MAX = 60_000
_THROWS_MAX = 20


class Crashed(BaseException):
    """Raised in the tasks of a process that has crashed."""


class StuckError(Exception):
    """The run can't end: nothing can run any more, or it takes too many steps."""


@dataclass(eq=False)
class Process:
    """Tasks that crash together. `wall_ahead_us` is how far its clock of the day is ahead."""

    name: str
    alive: bool = True
    wall_ahead_us: int = 0
    tasks: set[Task] = field(default_factory=set)


class Task(greenlet.greenlet):
    """One greenlet of a process."""

    def __init__(self, scheduler: Scheduler, process: Process, name: str, run: Any) -> None:
        super().__init__(run, scheduler.hub)
        self.process = process
        self.name = name
        self.number = next(scheduler.numbers)
        self.token = 0
        self.is_blocked = False
        self.was_woken = False
        self.is_done = False
        self.waiters: list[Task] = []
        self.throws = 0
        self.depth = 0  # of calls into the world
        self.thread: Any = None
        self.before_drop: Callable[[str], object] | None = None
        self.locals: dict[int, dict[str, Any]] = {}


_current: Task | None = None  # asked thousands of times in a run


def current() -> Task | None:
    """The task that runs, None outside all tasks."""
    return _current


def _enter(task: Task, *, crashes: bool = False) -> None:
    """Run a task until it leaves, from outside all tasks."""
    global _current
    _current = task
    try:
        if crashes:
            task.throw(Crashed)
        else:
            task.switch()
    finally:
        _current = None


class Scheduler:
    """See the module. `now_us` is the simulated time; `note` adds a line to the trace."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.hub = greenlet.getcurrent()
        self.numbers = itertools.count(1)
        self.now_us = START_US
        self.steps = 0
        self.trace: list[str] | None = None
        self.errors: list[tuple[str, BaseException]] = []
        self._ready: list[Task] = []
        self._timers: list[tuple[int, int, Task, int]] = []
        self._doomed: list[Task] = []
        self._abandoned: list[Task] = []

    # ---- for tasks ----

    def spawn(self, process: Process, name: str, run: Callable[[], object]) -> Task:
        """Begin a task."""
        task: Task

        def body() -> None:
            try:
                if process.alive:
                    run()
            except (Crashed, greenlet.GreenletExit):
                pass
            except BaseException as error:
                self.errors.append((f"{process.name}/{name}", error))
                self.note(f"{name} ended by {type(error).__name__}: {error}")
            finally:
                task.is_done = True
                process.tasks.discard(task)
                for waiter in task.waiters:
                    self.wake(waiter)

        task = Task(self, process, name, body)
        process.tasks.add(task)
        self._ready.append(task)
        return task

    def block(self, timeout_us: int | None = None) -> bool:
        """Wait until `wake`, or for a time; return whether it was woken."""
        task = self._running()
        task.is_blocked, task.was_woken = True, False
        task.token += 1
        if timeout_us is not None:
            at_us = self.now_us + max(0, timeout_us)
            heapq.heappush(self._timers, (at_us, next(self.numbers), task, task.token))
        self._leave(task)
        return task.was_woken

    def pause(self) -> None:
        """Let others run first, perhaps."""
        task = self._running()
        self._ready.append(task)
        self._leave(task)

    def perhaps(self, rate: float) -> None:
        """Pause now and then."""
        if rate and _current is not None and self.random.random() < rate:
            self.pause()

    def wake(self, task: Task) -> None:
        """Let a task that waits run."""
        if task.is_blocked and task.process.alive:
            task.is_blocked, task.was_woken = False, True
            task.token += 1
            self._ready.append(task)

    def check(self) -> None:
        """Raise Crashed in a task whose process has crashed."""
        task = current()
        if task is not None and not task.process.alive:
            task.throws += 1
            if task.throws > _THROWS_MAX:  # it would go on for ever
                self._abandoned.append(task)
                task.is_done = True
                self.hub.switch()
            raise Crashed

    def crash(self, process: Process) -> None:
        """End a process at once. Its own tasks get Crashed from this call."""
        if process.alive:
            process.alive = False
            self.note(f"{process.name} crashed")
            me = current()
            self._doomed += sorted(
                (t for t in process.tasks if t is not me), key=lambda t: t.number
            )
            self._ready = [t for t in self._ready if t.process.alive]
        self.check()

    def note(self, what: str) -> None:
        """Add a line to the trace, if there is one."""
        if self.trace is None:
            return
        task = current()
        name = "" if task is None else f"{task.process.name}/{task.name}"
        line = f"{(self.now_us - START_US) / 1e6:9.4f} {name:28} {what}"
        self.trace.append(line)

    def _running(self) -> Task:
        task = current()
        if task is None:
            raise StuckError("Only a task can wait.")
        self.check()
        return task

    def _leave(self, task: Task) -> None:
        self.hub.switch()
        if not task.process.alive:
            self.check()

    # ---- for the one who runs it ----

    def run(self, is_over: Callable[[], bool]) -> None:
        """Run tasks until `is_over`. Raises StuckError."""
        ready = self._ready
        while not is_over():
            while self._doomed:
                task = self._doomed.pop()
                if not task.is_done:
                    if task:  # it has begun
                        _enter(task, crashes=True)
                    else:
                        task.is_done = True
                ready = self._ready
            ready = self._ready
            if not ready:
                self._advance()
                continue
            self.steps += 1
            if self.steps > _STEPS_MAX:
                raise StuckError(f"{_STEPS_MAX:,} steps were not enough.")
            last = len(ready) - 1
            if last:
                at = int(self.random.random() * (last + 1))
                ready[at], ready[last] = ready[last], ready[at]
            task = ready.pop()
            if not task.is_done and task.process.alive:
                _enter(task)

    def _advance(self) -> None:
        timers = self._timers
        while timers:
            at_us, _, task, token = heapq.heappop(timers)
            if task.token != token or not task.is_blocked or not task.process.alive:
                continue
            self.now_us = max(self.now_us, at_us)
            task.is_blocked = False
            self._ready.append(task)
            return
        raise StuckError("Nothing can run any more.")

    def end(self, processes: list[Process]) -> None:
        """End all tasks that are left."""
        for process in processes:
            process.alive = False
            for task in sorted(process.tasks, key=lambda t: t.number):
                if not task.is_done and task:
                    _enter(task, crashes=True)
                task.is_done = True
        self._ready.clear()
        self._timers.clear()
