"""Who hears of the Spark jobs that a thread starts. Light: loads no Spark, so that a notebook can
say it before there is any.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from paimon_magics.planning.jobs.progress import Progress

__all__ = ["Listener", "listen", "listener"]

Listener = Callable[[Progress | None], None]
"""Gets what is known now and then while jobs run, and None when they have ended."""

_listener: ContextVar[Listener | None] = ContextVar("paimon_magics_progress", default=None)


def listen(listener: Listener | None) -> None:
    """From now on tell `listener` about jobs that this thread starts; None: nobody."""
    _listener.set(listener)


def listener() -> Listener | None:
    """Who is told about jobs of this thread."""
    return _listener.get()
