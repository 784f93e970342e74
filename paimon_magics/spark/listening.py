"""The listener to the progress of the Spark jobs that a thread starts. Loads no Spark, so that a
notebook can set the listener before Spark starts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from paimon_magics.planning.job_progress import Progress

Listener = Callable[[Progress | None], None]
"""Called with the progress now and then while jobs run, and with None when they have ended."""

_listener: ContextVar[Listener | None] = ContextVar("paimon_magics_progress", default=None)


def listen(listener: Listener | None) -> None:
    """From now on call `listener` about jobs that this thread starts; None stops that."""
    _listener.set(listener)


def listener() -> Listener | None:
    """The listener to the jobs of this thread, or None."""
    return _listener.get()
