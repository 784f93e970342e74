"""Who waits for a table that takes one transaction at a time: they take turns as they came.

A waiter says again and again that it is there; one that has said nothing for a while is passed
over. Nothing of it is stored: after a restart the waiters come again.
"""

from __future__ import annotations

from dataclasses import replace

from paimon_magics.coordinator.core.state import State, without
from paimon_magics.coordinator.core.values import Occupied, Phase, TransactionState, Waiter

__all__ = ["WAITER_MS", "in_turn", "leave", "waits"]

WAITER_MS = 5_000
"""How long a waiter that has said nothing keeps its place, in milliseconds: many times the pause
between two of its questions, and no long wait for those behind one that died."""


def in_turn(state: State, location: str, id: str, now_ms: int) -> tuple[State, Occupied | None]:
    """Whether the next transaction on the table may be the one that `id` waits for; if not, what
    is before it. From then on it is in the line, and keeps its place there by asking again.

    Whoever has no `id` ("") is in no line, and has to do with a moment in which nobody writes.
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
    """Whether somebody is in a line under this id."""
    return any(waiter.id == id for line in state.lines.values() for waiter in line)


def leave(state: State, id: str) -> State:
    """Without the one who waits under this id."""
    lines = state.lines
    for location, line in lines.items():
        left = tuple(waiter for waiter in line if waiter.id != id)
        if len(left) != len(line):
            return replace(
                state, lines={**lines, location: left} if left else without(lines, location)
            )
    return state


def _holder(state: State, location: str) -> TransactionState | None:
    """The transaction that keeps a table to itself, as long as it may still commit."""
    ended = (Phase.ABORTING, Phase.ABORTED)
    return next(
        (
            h
            for h in state.held.values()
            if h.exclusive and h.location == location and h.phase not in ended
        ),
        None,
    )
