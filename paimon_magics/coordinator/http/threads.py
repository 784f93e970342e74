"""Threads for what blocks, in classes of endpoints that take no thread from each other.

Sixty requests that wait for one table must not keep a heartbeat or a commit of another table from
being answered. The guard sets the class of a request; `run_in_threadpool` runs what blocks in a
thread of that class. What waits for an event rather than for I/O waits in no thread: `settled`,
`run_steps`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from functools import partial
from typing import Any, ParamSpec, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

from paimon_magics.coordinator.runtime.steps import Steps, advanced

__all__ = ["Capacity", "Threads", "run_in_threadpool", "run_steps", "settled", "using"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Capacity(Enum):
    """A class of endpoints, with the number of its threads."""

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

_limiter: ContextVar[CapacityLimiter | None] = ContextVar("limiter", default=None)


class Threads:
    """The threads of one application."""

    def __init__(self) -> None:
        self._limiters = {one: CapacityLimiter(one.value[1]) for one in Capacity}

    def of(self, capacity: Capacity) -> CapacityLimiter:
        """The threads of a class."""
        return self._limiters[capacity]

    def of_endpoint(self, endpoint: str) -> CapacityLimiter:
        """The threads of an endpoint, by its method and path as in `authorisation.SCOPES`."""
        found = (c for pattern, c in _CLASSES if pattern.fullmatch(endpoint))
        return self._limiters[next(found, Capacity.OTHERS)]


@contextmanager
def using(limiter: CapacityLimiter) -> Iterator[None]:
    """Have `run_in_threadpool` use these threads in the `with` block."""
    before = _limiter.set(limiter)
    try:
        yield
    finally:
        _limiter.reset(before)


async def run_in_threadpool(
    action: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs
) -> _T:
    """Run what blocks in a thread of the request's class, and return its result."""
    return await anyio.to_thread.run_sync(
        partial(action, *arguments, **named), limiter=_limiter.get()
    )


async def run_steps(steps: Steps[_T]) -> _T:
    """Run steps in threads of the request's class, and return their result. Between two steps no
    thread waits. Steps that are given up end their `with` blocks."""
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
    """The result of a future, without a thread that waits for it. Raises TimeoutError after so many
    seconds; the future goes on, and whoever made it ends it."""
    return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), seconds)
