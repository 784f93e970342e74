"""Lets another thread stop the work of a thread, as an interrupt stops the main thread.

A view's button runs a statement in a thread of its own, which no signal reaches. That thread
registers its `Stop` with `stoppable`; Spark jobs and waits of the thread check it. Loads no Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Stop:
    """A request to stop, which any thread may make once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_asked = False
        self._calls: list[Callable[[], object]] = []

    @property
    def is_asked(self) -> bool:
        """Whether a stop was requested."""
        return self._is_asked

    def ask(self) -> None:
        """Request a stop: running jobs are cancelled now, and no new work starts."""
        with self._lock:
            self._is_asked = True
            calls = tuple(self._calls)
        for call in calls:
            call()

    @contextmanager
    def heard_by(self, call: Callable[[], object]) -> Iterator[None]:
        """Call `call`, from the requesting thread, when a stop is requested during the body.

        Raises KeyboardInterrupt if a stop was requested before.
        """
        with self._lock:
            if self._is_asked:
                raise KeyboardInterrupt
            self._calls.append(call)
        try:
            yield
        finally:
            with self._lock:
                self._calls.remove(call)


_stop: ContextVar[Stop | None] = ContextVar("paimon_magics_stop", default=None)


@contextmanager
def stoppable(stop: Stop) -> Iterator[None]:
    """`stop` ends what the body runs in this thread, by a KeyboardInterrupt."""
    token = _stop.set(stop)
    try:
        yield
    finally:
        _stop.reset(token)


def stop_of_thread() -> Stop | None:
    """The `Stop` of this thread, or None if only an interrupt can stop it."""
    return _stop.get()


def raise_if_stopped() -> None:
    """Raise KeyboardInterrupt if a stop of this thread was requested."""
    stop = _stop.get()
    if stop is not None and stop.is_asked:
        raise KeyboardInterrupt
