"""The state of a coordinator that starts again, made from the store."""

from __future__ import annotations

from dataclasses import replace

from paimon_magics.coordinator.core.effects import Effect, LookUpCommit
from paimon_magics.coordinator.core.events import Restored
from paimon_magics.coordinator.core.state import State, with_held
from paimon_magics.coordinator.core.values import Phase

__all__ = ["restored"]


def restored(state: State, event: Restored) -> tuple[State, tuple[Effect, ...]]:
    """Continue what was under way: look commits up, and give open transactions a full lease."""
    effects: list[Effect] = []
    state = replace(
        state, stopped=dict(event.stopped), pause=event.pause, ticked_at_ms=event.now_ms
    )
    for p in event.watched:
        watched = (*state.watched.get(p.location, ()), p)
        state = replace(state, watched={**state.watched, p.location: watched})
    for held in event.held:
        match held.phase:
            case Phase.ACTIVE:
                # Its owner could not renew it while the coordinator was down.
                lease = replace(held, expires_at_ms=event.now_ms + state.limits.lease_ms)
                state = with_held(state, lease)
            case Phase.COMMITTING | Phase.UNCLEAR:
                unclear = replace(held, phase=Phase.UNCLEAR)
                state = with_held(state, unclear)
                if held.location in state.running:
                    queue = (*state.queues.get(held.location, ()), held.id)
                    state = replace(state, queues={**state.queues, held.location: queue})
                else:
                    state = replace(state, running={**state.running, held.location: held.id})
                    effects.append(LookUpCommit(held.id))
            case Phase.ABORTING:
                # Its time is by the clock of before, which may have been ahead.
                due_ms = event.now_ms + state.limits.cleanup_grace_ms
                due = replace(held, expires_at_ms=min(held.expires_at_ms, due_ms))
                state = with_held(state, due)
            case Phase.COMMITTED | Phase.LOST | Phase.ABORTED | Phase.UNDETERMINED:
                raise ValueError(f"transaction {held.id} is finished: nothing is to be restored")
    return state, tuple(effects)
