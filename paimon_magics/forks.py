"""What a forked process must not share with its parent.

`os.fork`, which `multiprocessing` uses on Linux before Python 3.14, copies all objects and no
threads. Locks that other threads held stay locked in the child, and nobody does those threads'
work. Both processes would read the responses on one connection. An object with locks, threads or
connections registers here: the child recreates it before anything else runs there. The parent
keeps its own, and the child neither uses nor ends them.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

FORKS_WAIT = threading.Lock()
"""Forks wait while a thread holds it. `subprocess` waits for the end of a pipe until the new
program runs. A child that is forked meanwhile would keep that pipe open for its whole life."""


class Renewed(Protocol):
    """An object with locks, threads or connections of its process."""

    def after_fork(self) -> None:
        """Recreate them in the child. Acquires no lock that existed before, waits for nothing and
        sends nothing."""


_renewed: weakref.WeakSet[Renewed] = weakref.WeakSet()


def renew_after_fork(renewed: Renewed) -> None:
    """Call the object's `after_fork` in each forked child, as long as the object exists."""
    _renewed.add(renewed)


def _renew() -> None:
    for renewed in tuple(_renewed):
        renewed.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
    os.register_at_fork(
        before=FORKS_WAIT.acquire,
        after_in_parent=FORKS_WAIT.release,
        after_in_child=FORKS_WAIT.release,
    )
