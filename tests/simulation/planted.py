"""Faults to plant into our code for the time of a run: the simulation must find each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from paimon_magics.coordinator.inserts.loading import flush
from paimon_magics.coordinator.inserts.log.database import DatabaseLog

__all__ = ["PLANTED", "planted"]

Call = Callable[..., Any]


def _forgetting(method: Call) -> Call:
    """The log says that it has appended, and has not: acknowledged before it is durable."""

    def append(self: DatabaseLog, groups: Sequence[Any]) -> None:
        if any(group.segment.first % 3 == 2 for group in groups):
            return
        method(self, groups)

    return append


def _without_labels(method: Call) -> Call:
    """Labels are forgotten at once."""

    def remembered(self: DatabaseLog, identity: str, keys: Sequence[str]) -> dict[str, Any]:
        return {}

    return remembered


def _without_looking(method: Call) -> Call:
    """A batch whose commit got no clear answer is loaded again without a look at the table."""

    def outcome(self: flush.Flushing, *_: Any) -> None:
        return None

    return outcome


def _dropping_events(method: Call) -> Call:
    """The note that a batch is in the table gets lost, for every second batch."""
    calls = [0]

    def publish(self: DatabaseLog, *args: Any, **named: Any) -> None:
        calls[0] += 1
        if calls[0] % 2:
            method(self, *args, **named)

    return publish


PLANTED: dict[str, tuple[type, str, Callable[[Call], Call]]] = {
    "appends get lost": (DatabaseLog, "append", _forgetting),
    "labels are forgotten": (DatabaseLog, "remembered", _without_labels),
    "outcomes are not looked up": (flush.Flushing, "_outcome", _without_looking),
    "publications are not noted": (DatabaseLog, "publish", _dropping_events),
}
"""The planted faults: class, method, and what becomes of it."""


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a fault for the `with` block."""
    owner, method, change = PLANTED[name]
    before = getattr(owner, method)
    setattr(owner, method, change(before))
    try:
        yield
    finally:
        setattr(owner, method, before)
