"""The line of clients that wait for a table that takes one transaction at a time.

They take turns in the order in which they came. A waiter keeps its place by asking again; one that
has been silent for a while loses it. The line is not stored: after a restart the waiters ask again.
"""

from __future__ import annotations

from dataclasses import replace

from paimon_magics.coordinator.core.state import State, without
from paimon_magics.coordinator.core.values import Occupied, Phase, TransactionState, Waiter

__all__ = ["WAITER_MS", "in_turn", "leave", "waits"]

WAITER_MS = 5_000
"""How long a silent waiter keeps its place, in milliseconds: many times the pause between two of
its questions, and still short for those who wait behind one that died."""


def in_turn(state: State, location: str, id: str, now_ms: int) -> tuple[State, Occupied | None]:
    """Return None when it is the turn of `id`, otherwise what comes before it. From now on `id` is
    in the line, and keeps its place by asking again.

    Without an `id` ("") nobody is put in line: the answer is None only while no exclusive
    transaction is open on the table.
    """
    holder = _holder(state, location)
    if not id:
        return state, None if holder is None else Occupied(holder, 0)
    line = [
        w for w in state.lines.get(location, ()) if w.seen_ms > now_ms - WAITER_MS or w.id == id
    ]
    if not any(waiter.id == id for waiter in line):
        line.append(Waiter(id, now_ms))
    line = [replace(w, seen_ms=now_ms) if w.id == id else w for w in line]
    state = replace(state, lines={**state.lines, location: tuple(line)})
    ahead = next(position for position, waiter in enumerate(line) if waiter.id == id)
    if holder is None and not ahead:
        return state, None
    return state, Occupied(holder, ahead)


def waits(state: State, id: str) -> bool:
    """Whether this id is in a line."""
    return any(waiter.id == id for line in state.lines.values() for waiter in line)


def leave(state: State, id: str) -> State:
    """Remove this id from its line."""
    lines = state.lines
    for location, line in lines.items():
        left = tuple(waiter for waiter in line if waiter.id != id)
        if len(left) != len(line):
            return replace(
                state, lines={**lines, location: left} if left else without(lines, location)
            )
    return state


def _holder(state: State, location: str) -> TransactionState | None:
    """The exclusive transaction of a table that may still commit, None without one."""
    ended = (Phase.ABORTING, Phase.ABORTED)
    return next(
        (
            h
            for h in state.held.values()
            if h.exclusive and h.location == location and h.phase not in ended
        ),
        None,
    )
