"""How much of a coordinator one client may use, and the threads of each class of endpoints.

A client is a verified name, or an address if there is no name. A request over the limit is answered
429 before it is read, with the time after which it may be sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
from anyio import CapacityLimiter

from paimon_magics.coordinator.runtime.work import Steps, advanced
from paimon_magics.coordinator.service.health import Fact
from paimon_magics.errors import SetupError
from paimon_magics.statements.statement import TableName

REQUEST_BYTES_MAX = 16 * 2**20
"""The largest accepted request, unless the coordinator is started with another limit."""

_CLIENTS_MAX = 10_000  # that are remembered
_BURST_SECONDS = 2.0
_WAIT_SECONDS = 1.0  # for a client whose requests in flight are too many
_TABLE_PART = 4  # the share of a class's threads for one table
_TABLE_WAIT_SECONDS = 30.0  # for a thread; clients wait longer
_REQUEST_SECONDS_MAX = 60.0  # after which health reports it

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The limits of each client; 0 means no limit. `rate_max` is in requests per second; a burst
    may have the requests of two seconds.
    """

    in_flight_max: int = 0
    rate_max: int = 0
    streams_max: int = 0

    @property
    def are_any(self) -> bool:
        """Whether anything is limited."""
        return bool(self.in_flight_max or self.rate_max or self.streams_max)


@dataclass(slots=True)
class _Client:
    requests: int = 0
    streams: int = 0
    budget: float = 0.0
    counted_at: float = 0.0


class Turnstile:
    """Counts what clients do. For one thread, the server's. `clock` is in seconds."""

    def __init__(self, limits: ClientLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._clients: OrderedDict[str, _Client] = OrderedDict()

    def enter(self, name: str, *, is_stream: bool = False) -> float:
        """Admit a request until `leave`, and return 0. Or return how many seconds the client must
        wait; such a request is not counted.
        """
        limits, now = self._limits, self._clock()
        client = self._of(name, now)
        if is_stream:
            if 0 < limits.streams_max <= client.streams:
                return _WAIT_SECONDS
            client.streams += 1
            return 0.0
        if 0 < limits.in_flight_max <= client.requests:
            return _WAIT_SECONDS
        if limits.rate_max:
            earned = (now - client.counted_at) * limits.rate_max
            client.budget = min(client.budget + earned, limits.rate_max * _BURST_SECONDS)
            client.counted_at = now
            if client.budget < 1:
                return (1 - client.budget) / limits.rate_max
            client.budget -= 1
        client.requests += 1
        return 0.0

    def leave(self, name: str, *, is_stream: bool = False) -> None:
        """End a request that was let in."""
        client = self._clients[name]
        if is_stream:
            client.streams -= 1
        else:
            client.requests -= 1

    def _of(self, name: str, now: float) -> _Client:
        client = self._clients.get(name)
        if client is None:
            client = _Client(budget=self._limits.rate_max * _BURST_SECONDS, counted_at=now)
            self._clients[name] = client
            self._forget_idle()
        else:
            self._clients.move_to_end(name)
        return client

    def _forget_idle(self) -> None:
        """Forget the client that was idle longest, if there are many clients. Forget one at a time,
        so that the cost of a request does not depend on their number.
        """
        if len(self._clients) <= _CLIENTS_MAX:
            return
        name, client = next(iter(self._clients.items()))
        if client.requests or client.streams:
            self._clients.move_to_end(name)
        else:
            del self._clients[name]


class Capacity(Enum):
    """A class of endpoints, with the number of its threads. No class takes a thread from another:
    sixty requests that wait for one table must not keep a heartbeat or a commit of another table
    from being answered.

    The guard sets the class of a request. `run_in_threadpool` runs blocking work in a thread of
    that class. Waiting for an event rather than for I/O needs no thread: `settled`, `run_steps`.
    """

    HEALTH = "health", 4
    IDENTITY = "identity", 8
    HEARTBEATS = "heartbeats", 16
    BEGINS = "begins", 40
    COMMITS = "commits", 40
    INSERTS = "inserts", 40
    DEFINITIONS = "definitions", 40
    OTHERS = "others", 40


_TABLE = r"/v1/paimon/databases/\{database\}/tables/\{table\}"
_CLASSES = tuple(
    (re.compile(pattern), capacity)
    for pattern, capacity in (
        (r"GET /(health/\w+|metrics)", Capacity.HEALTH),
        (r"POST /v1/(transactions/\{id\}/heartbeat|leases)", Capacity.HEARTBEATS),
        (r"POST /v1/transactions", Capacity.BEGINS),
        (r"POST /v1/transactions/\{id\}/\w+", Capacity.COMMITS),
        (rf"POST {_TABLE}/commit", Capacity.COMMITS),
        (r"\w+ /v1/inserts.*", Capacity.INSERTS),
        (r"(POST|DELETE) /v1/(changes|paimon|tables)/?.*", Capacity.DEFINITIONS),
    )
)

_lane: ContextVar[_Lane | None] = ContextVar("lane", default=None)


class Lanes:
    """The threads of a class of endpoints. Requests about one table have a quarter of them at most:
    a table whose files can't be read for a while delays no other table."""

    def __init__(self, threads: int) -> None:
        self._threads = CapacityLimiter(threads)
        self._table_threads = max(1, threads // _TABLE_PART)
        self._tables: WeakValueDictionary[str, CapacityLimiter] = WeakValueDictionary()
        self._running: dict[object, tuple[float, str]] = {}
        self._of_no_table = _Lane(self._threads, None, "", self._running)

    def of(self, table: str = "") -> _Lane:
        """The threads that a request uses; `table` names its table, "" for none."""
        if not table:
            return self._of_no_table
        limiter = self._tables.get(table)
        if limiter is None:
            limiter = self._tables[table] = CapacityLimiter(self._table_threads)
        return _Lane(self._threads, limiter, table, self._running)

    def oldest(self) -> tuple[float, str] | None:
        """How many seconds the oldest request has had a thread, and its table ("" for none). None
        without requests. For any thread.
        """
        began = min(self._running.copy().values(), default=None)
        return None if began is None else (time.monotonic() - began[0], began[1])


@dataclass(frozen=True, slots=True)
class _Lane:
    """The threads that one request uses, in turn; see `Lanes`."""

    _threads: CapacityLimiter
    _of_table: CapacityLimiter | None
    _table: str
    _running: dict[object, tuple[float, str]]

    async def run(self, action: Callable[[], _T]) -> _T:
        """Run blocking work in a thread. Raises SetupError if others occupy the threads of its
        table for too long.
        """
        request = object()
        if self._of_table is None:
            return await self._run(action, request)
        try:
            with anyio.fail_after(_TABLE_WAIT_SECONDS):
                await self._of_table.acquire_on_behalf_of(request)
        except TimeoutError as error:
            raise SetupError(
                f"Requests about `{self._table}` have waited for the warehouse's store for "
                f"{_TABLE_WAIT_SECONDS:.0f} s.",
                hint="Check that the table's files can be read, then send the request again.",
            ) from error
        try:
            return await self._run(action, request)
        finally:
            self._of_table.release_on_behalf_of(request)

    async def _run(self, action: Callable[[], _T], request: object) -> _T:
        def noted() -> _T:
            self._running[request] = (time.monotonic(), self._table)
            try:
                return action()
            finally:
                del self._running[request]

        return await anyio.to_thread.run_sync(noted, limiter=self._threads)


class Threads:
    """The threads of one application."""

    def __init__(self) -> None:
        self._lanes = {capacity: Lanes(capacity.value[1]) for capacity in Capacity}

    def of(self, capacity: Capacity) -> Lanes:
        """The threads of a class."""
        return self._lanes[capacity]

    def of_endpoint(self, endpoint: str) -> Lanes:
        """The threads of an endpoint, by its method and path as in `authorisation.SCOPES`."""
        classes = (capacity for pattern, capacity in _CLASSES if pattern.fullmatch(endpoint))
        return self._lanes[next(classes, Capacity.OTHERS)]

    def facts(self) -> Iterator[Fact]:
        """How long requests have been in their threads."""
        for capacity, lanes in self._lanes.items():
            seconds, table = lanes.oldest() or (0.0, "")
            about = f" about `{table}`" if table else ""
            database, _, name = table.partition(".")
            problem = f"A request{about} has waited {seconds:.0f} s for the warehouse or the store."
            yield Fact(
                "request_seconds",
                seconds,
                problem if seconds > _REQUEST_SECONDS_MAX else "",
                subject=capacity.value[0],
                table=TableName(name, database) if name else None,
            )


class Using:
    """Has `run_in_threadpool` use these threads in a `with` block, for a request about `table`
    (`database.table`), "" for none. Each request enters two: a generator would cost it more."""

    __slots__ = ("_lane", "_token")

    def __init__(self, lanes: Lanes, table: str = "") -> None:
        self._lane = lanes.of(table)

    def __enter__(self) -> None:
        self._token = _lane.set(self._lane)

    def __exit__(self, *_: object) -> None:
        _lane.reset(self._token)


async def run_in_threadpool(
    action: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs
) -> _T:
    """Run blocking work in a thread of the request's class, and return its result. Raises
    SetupError if the request's table gets no thread for too long.
    """
    lane = _lane.get()
    blocking = partial(action, *arguments, **named)
    return await (anyio.to_thread.run_sync(blocking) if lane is None else lane.run(blocking))


async def run_steps(steps: Steps[_T]) -> _T:
    """Run steps in threads of the request's class, and return their result. Between two steps no
    thread waits. Abandoned steps end their `with` blocks.
    """
    settled_future: Future[Any] | None = None
    try:
        while True:
            outcome = await run_in_threadpool(advanced, steps, settled_future)
            if isinstance(outcome, tuple):
                return outcome[0]
            settled_future = outcome
            with contextlib.suppress(Exception):  # it is raised where it was yielded
                await asyncio.shield(asyncio.wrap_future(outcome))
    finally:
        steps.close()


async def settled(future: Future[_T], seconds: float) -> _T:
    """The result of a future, without a thread that waits for it. Raises TimeoutError after the
    given seconds. The future continues, and its creator must end it.
    """
    return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), seconds)
