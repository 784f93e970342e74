"""Hand answers from the owner of the queues to waiting callers, in an event loop or in a thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from concurrent.futures import Future

from paimon_magics.coordinator.inserts.queue.values import Answer

__all__ = ["Answered", "deliver", "fail"]

Answered = asyncio.Future[Answer] | Future[Answer]
"""The future in which a caller waits for an answer."""


def deliver(replies: Sequence[tuple[Answered, Answer]]) -> None:
    """Set all answers, with one call for each event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Answer], Answer]]] = {}
    for future, answer in replies:
        if isinstance(future, Future):
            if not future.done():
                future.set_result(answer)
        else:
            loops.setdefault(future.get_loop(), []).append((future, answer))
    for loop, some in loops.items():
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
            loop.call_soon_threadsafe(_set_results, some)


def _set_results(replies: Sequence[tuple[asyncio.Future[Answer], Answer]]) -> None:
    for future, answer in replies:
        if not future.done():
            future.set_result(answer)


def fail(futures: Sequence[Answered], error: Exception) -> None:
    """Set an error on every future that has no answer yet."""
    for future in futures:
        if isinstance(future, Future):
            if not future.done():
                future.set_exception(error)
        else:
            with contextlib.suppress(RuntimeError):
                future.get_loop().call_soon_threadsafe(_set_error, future, error)


def _set_error(future: asyncio.Future[Answer], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
