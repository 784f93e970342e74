"""Python's `threading`, `queue`, `time`, `uuid`, `random` and `concurrent.futures`, simulated.

Objects of the same names and methods as the real ones, whose waits are those of a scheduler. Code
outside of all tasks never waits: it may use them while nobody else does.
"""

from __future__ import annotations

import contextlib
import math
import queue as real_queue
import random as real_random
import time as real_time
import uuid as real_uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future as RealFuture
from typing import Any

from tests.simulation.scheduler import Crashed, Scheduler, Task, current

__all__ = ["Primitives"]


class Primitives:
    """The simulated modules of one run: `threading`, `queue`, `time`, `uuid`, `random`, and the
    classes `Future` and `ThreadPoolExecutor`. `lock_pauses` is how often a lock's taker pauses."""

    def __init__(self, scheduler: Scheduler, seed: int, lock_pauses: float = 0.0) -> None:
        self.scheduler = scheduler
        self.ids = real_random.Random(seed ^ 0x5EED)
        self.jitter = real_random.Random(seed ^ 0xD1CE)
        self.lock_pauses = lock_pauses
        self.threading = _Threading(self)
        self.queue = _Queues(self)
        self.time = _Time(self)
        self.uuid = _Uuid(self)
        self.random = _Random(self)
        self.Future = _future_class(self)

    def future(self) -> RealFuture[Any]:
        """A future whose waits are simulated."""
        made: RealFuture[Any] = self.Future()
        return made


def _us(seconds: float) -> int:
    """Microseconds, rounded up: who waits for the rest of a time must not wake before its end."""
    return math.ceil(seconds * 1e6)


class _Waiting:
    """Tasks that wait for something."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._tasks: deque[Task] = deque()

    def wait(self, timeout: float | None) -> bool:
        task = current()
        if task is not None:
            self._tasks.append(task)
        try:
            return self._scheduler.block(None if timeout is None else _us(timeout))
        finally:
            with contextlib.suppress(ValueError):
                self._tasks.remove(task)  # type: ignore[arg-type]

    def wake(self, count: int | None = None) -> None:
        while self._tasks and count != 0:
            self._scheduler.wake(self._tasks.popleft())
            count = None if count is None else count - 1


class Lock:
    def __init__(self, primitives: Primitives, *, again: bool = False) -> None:
        self._primitives = primitives
        self._again = again
        self._waiting = _Waiting(primitives.scheduler)
        self._holder: object = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = self._primitives.scheduler
        scheduler.check()
        me = current() or scheduler
        if self._again and self._holder is me:
            self._count += 1
            return True
        if blocking:
            scheduler.perhaps(self._primitives.lock_pauses)
        until_us = None if timeout < 0 else scheduler.now_us + _us(timeout)
        while self._holder is not None:
            if not blocking:
                return False
            left = None if until_us is None else (until_us - scheduler.now_us) / 1e6
            if left is not None and left <= 0:
                return False
            self._waiting.wait(left)
        self._holder, self._count = me, 1
        return True

    def release(self) -> None:
        if self._holder is None:
            raise RuntimeError("release unlocked lock")
        self._count -= 1
        if not self._count:
            self._holder = None
            self._waiting.wake(1)

    def locked(self) -> bool:
        return self._holder is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def is_mine(self) -> bool:
        return self._holder is (current() or self._primitives.scheduler)

    def all_released(self) -> int:
        count, self._count = self._count, 1
        self.release()
        return count

    def taken_again(self, count: int) -> None:
        self.acquire()
        self._count = count


class Condition:
    def __init__(self, primitives: Primitives, lock: Lock | None = None) -> None:
        self._lock = Lock(primitives, again=True) if lock is None else lock
        self._scheduler = primitives.scheduler
        self._waiting = _Waiting(primitives.scheduler)
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        count = self._lock.all_released()
        try:
            return self._waiting.wait(timeout)
        finally:
            try:
                self._lock.taken_again(count)
            except Crashed:
                self._lock._holder, self._lock._count = current(), count
                raise

    def wait_for(self, predicate: Callable[[], object], timeout: float | None = None) -> object:
        until_us = None if timeout is None else self._scheduler.now_us + _us(timeout)
        while not (result := predicate()):
            left = None if until_us is None else (until_us - self._scheduler.now_us) / 1e6
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        self._waiting.wake(n)

    def notify_all(self) -> None:
        self._waiting.wake()


class Event:
    def __init__(self, primitives: Primitives) -> None:
        self._scheduler = primitives.scheduler
        self._waiting = _Waiting(primitives.scheduler)
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._waiting.wake()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        self._scheduler.check()
        if self._is_set:
            return True
        until_us = None if timeout is None else self._scheduler.now_us + _us(timeout)
        while not self._is_set:
            left = None if until_us is None else (until_us - self._scheduler.now_us) / 1e6
            if left is not None and left <= 0:
                return False
            self._waiting.wait(left)
        return True


class Thread:
    def __init__(
        self,
        primitives: Primitives,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self._primitives = primitives
        self._target = target
        self._args, self._kwargs = tuple(args), kwargs or {}
        self.name = name or "thread"
        self.daemon = daemon
        self._task: Task | None = None

    @property
    def ident(self) -> int | None:
        return None if self._task is None else self._task.number

    def start(self) -> None:
        me = current()
        assert me is not None, "a thread outside all processes"
        scheduler = self._primitives.scheduler
        scheduler.check()
        target = self._target
        assert target is not None
        self._task = scheduler.spawn(
            me.process, self.name, lambda: target(*self._args, **self._kwargs)
        )
        self._task.thread = self

    def join(self, timeout: float | None = None) -> None:
        scheduler = self._primitives.scheduler
        scheduler.check()
        task, me = self._task, current()
        assert task is not None
        if not task.is_done and me is not None:
            task.waiters.append(me)
            scheduler.block(None if timeout is None else _us(timeout))

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.is_done


class Local:
    def _values(self) -> dict[str, Any]:
        task = current()
        return self.__dict__ if task is None else task.locals.setdefault(id(self), {})

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values()[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._values()[name] = value

    def __delattr__(self, name: str) -> None:
        del self._values()[name]


class _Threading:
    def __init__(self, primitives: Primitives) -> None:
        self._main = Thread(primitives, name="main")
        self.Lock = lambda: Lock(primitives)
        self.RLock = lambda: Lock(primitives, again=True)
        self.Condition = lambda lock=None: Condition(primitives, lock)
        self.Event = lambda: Event(primitives)
        self.Thread = lambda *args, **kwargs: Thread(primitives, *args, **kwargs)
        self.local = Local

    def current_thread(self) -> Any:
        task = current()
        return self._main if task is None or task.thread is None else task.thread

    def get_ident(self) -> int:
        task = current()
        return 0 if task is None else task.number


class SimpleQueue:
    def __init__(self, primitives: Primitives, maxsize: int = 0) -> None:
        assert not maxsize, "no bounded queues here"
        self._scheduler = primitives.scheduler
        self._waiting = _Waiting(primitives.scheduler)
        self._items: deque[Any] = deque()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        self._scheduler.check()
        self._items.append(item)
        self._waiting.wake(1)

    put_nowait = put

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        self._scheduler.check()
        until_us = None if timeout is None else self._scheduler.now_us + _us(timeout)
        while not self._items:
            left = None if until_us is None else (until_us - self._scheduler.now_us) / 1e6
            if not block or (left is not None and left <= 0):
                raise real_queue.Empty
            self._waiting.wait(left)
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class _Queues:
    Empty, Full = real_queue.Empty, real_queue.Full

    def __init__(self, primitives: Primitives) -> None:
        self.SimpleQueue = self.Queue = lambda maxsize=0: SimpleQueue(primitives, maxsize)


class _Time:
    CLOCK_MONOTONIC, CLOCK_BOOTTIME = 1, 7

    def __init__(self, primitives: Primitives) -> None:
        self._scheduler = primitives.scheduler

    def __getattr__(self, name: str) -> Any:
        return getattr(real_time, name)

    def time_ns(self) -> int:
        task = current()
        ahead_us = 0 if task is None else task.process.wall_ahead_us
        return (self._scheduler.now_us + ahead_us) * 1000

    def time(self) -> float:
        return self.time_ns() / 1e9

    def monotonic_ns(self) -> int:
        return self._scheduler.now_us * 1000

    def monotonic(self) -> float:
        return self._scheduler.now_us / 1e6

    perf_counter, perf_counter_ns = monotonic, monotonic_ns

    def clock_gettime(self, which: int) -> float:
        return self.monotonic()

    def sleep(self, seconds: float) -> None:
        self._scheduler.block(_us(seconds))


class UniqueTime(_Time):
    """A clock that is never asked twice within the same milliseconds: tables that are created at
    once can be told apart by it."""

    _last_ns = 0

    def time_ns(self) -> int:
        self._last_ns = max(super().time_ns(), self._last_ns + 5_000_000)
        return self._last_ns


class _Uuid:
    def __init__(self, primitives: Primitives) -> None:
        self._ids = primitives.ids

    def __getattr__(self, name: str) -> Any:
        return getattr(real_uuid, name)

    def uuid4(self) -> real_uuid.UUID:
        return real_uuid.UUID(int=self._ids.getrandbits(128), version=4)


class _Random:
    def __init__(self, primitives: Primitives) -> None:
        self._random = primitives.jitter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._random, name) if name != "Random" else real_random.Random


def _future_class(primitives: Primitives) -> type[RealFuture[Any]]:
    class Future(RealFuture[Any]):
        def __init__(self) -> None:
            super().__init__()
            self._condition = Condition(primitives)  # type: ignore[assignment]

        def __class_getitem__(cls, _: object) -> Any:
            return cls

    return Future


class Executor:
    """A pool of simulated threads."""

    def __init__(
        self, primitives: Primitives, max_workers: int | None = None, *_: Any, **named: Any
    ) -> None:
        self._primitives = primitives
        self._workers_max = max_workers or 8
        self._name = named.get("thread_name_prefix") or "pool"
        self._work: deque[tuple[RealFuture[Any], Callable[[], object]]] = deque()
        self._running: list[Task] = []

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> RealFuture[Any]:
        me, scheduler = current(), self._primitives.scheduler
        scheduler.check()
        future = self._primitives.future()
        work = lambda: call(*args, **kwargs)  # noqa: E731
        if me is None:
            _carry_out(future, work)
            return future
        self._work.append((future, work))
        self._running = [task for task in self._running if not task.is_done]
        if len(self._running) < self._workers_max:
            self._running.append(scheduler.spawn(me.process, self._name, self._run))
        return future

    def map(self, call: Callable[..., Any], *items: Iterable[Any], **_: Any) -> Iterator[Any]:
        futures = [self.submit(call, *item) for item in zip(*items, strict=False)]
        return iter([future.result() for future in futures])

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        me = current()
        for task in self._running if wait and me is not None else ():
            while not task.is_done:
                task.waiters.append(me)  # type: ignore[arg-type]
                self._primitives.scheduler.block()

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _run(self) -> None:
        while self._work:
            _carry_out(*self._work.popleft())


class InlineExecutor(Executor):
    """A pool that does its work at once."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> RealFuture[Any]:
        future = self._primitives.future()
        _carry_out(future, lambda: call(*args, **kwargs))
        return future


def _carry_out(future: RealFuture[Any], work: Callable[[], object]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        found = work()
    except Crashed:
        raise
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(found)
