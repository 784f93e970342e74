"""The slots of tables: a statement that drops or renames a table has it for itself.

It gets the table once no commit is under way there, nor unclear; commits wait until it has ended.
"""

from __future__ import annotations

from dataclasses import replace

from paimon_magics.coordinator.core.effects import Effect
from paimon_magics.coordinator.core.events import SlotAsked, SlotEnded
from paimon_magics.coordinator.core.state import State, give_slot, next_job, slot_name, without

__all__ = ["slot_step"]


def slot_step(state: State, event: SlotAsked | SlotEnded) -> tuple[State, tuple[Effect, ...]]:
    """Return the next state and the effects of a statement that asks for a table, or has ended."""
    match event:
        case SlotAsked():
            return _ask_slot(state, event)
        case SlotEnded():
            return _end_slot(state, event)


def _ask_slot(state: State, event: SlotAsked) -> tuple[State, tuple[Effect, ...]]:
    asks = (*state.slot_asks.get(event.location, ()), event.ask)
    if event.location not in state.running:
        return give_slot(state, event.location, asks)
    return replace(state, slot_asks={**state.slot_asks, event.location: asks}), ()


def _end_slot(state: State, event: SlotEnded) -> tuple[State, tuple[Effect, ...]]:
    """Go on with what waits for the table; or with others, where the statement waited itself."""
    location = event.location
    if state.running.get(location) == slot_name(event.slot):
        return next_job(state, location)
    asks = tuple(ask for ask in state.slot_asks.get(location, ()) if ask != event.slot)
    others = without(state.slot_asks, location)
    return replace(state, slot_asks={**others, location: asks} if asks else others), ()
