"""What a forked process must not share with its parent.

`os.fork`, and by it `multiprocessing` on Linux before Python 3.14, copies all objects and none of
the threads. So locks that other threads had stay locked in the child, work that they should do is
never done, and both processes would read the answers that come on one connection. An object with
locks, threads or connections has itself renewed here: the child makes it anew before anything else
runs there. The parent keeps its own, and the child neither uses nor ends them.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

FORKS_WAIT = threading.Lock()
"""Forks wait while a thread has it. `subprocess` waits for the end of a pipe until the new program
runs; a child that is forked meanwhile would keep that open for as long as it lives."""


class Renewed(Protocol):
    """An object with locks, threads or connections of its process."""

    def after_fork(self) -> None:
        """Make them anew, in the child. Takes no lock that existed before, waits for nothing and
        sends nothing."""


_renewed: weakref.WeakSet[Renewed] = weakref.WeakSet()


def renew_after_fork(renewed: Renewed) -> None:
    """Have `after_fork` of an object called in each forked child, as long as the object lives."""
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
