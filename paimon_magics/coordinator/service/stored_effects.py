"""Writes the core's effects to the store."""

from __future__ import annotations

from paimon_magics.coordinator.core import (
    CutPublications,
    DropPublication,
    Effect,
    ForgetFinished,
    ForgetPublications,
    LookUpCommit,
    Republish,
    RunCommit,
    SavePause,
    SavePublication,
    SaveStopped,
)
from paimon_magics.coordinator.store.state_store import StateStore

__all__ = ["store_effect"]


def store_effect(store: StateStore, effect: Effect, now_ms: int) -> None:
    """Write an effect to the store, if it changes the store. `Save` is not written here: it needs
    the event."""
    match effect:
        case RunCommit(id=id) | LookUpCommit(id=id):
            store.transactions.begin_run(id)
        case ForgetFinished(until_ms=until_ms):
            store.forget_finished(until_ms)
        case SavePublication(publication=publication, watched=watched):
            store.publications.save(publication, watched)
        case DropPublication(id=id):
            store.publications.drop(id)
        case ForgetPublications(location=location):
            store.publications.drop_all(location)
        case CutPublications(location=location, branch=branch, above=above):
            store.publications.drop_above(location, branch, above)
        case Republish(publication=publication):
            store.publications.begin_repetition(publication, now_ms)
        case SaveStopped(location=location, stopped=stopped):
            store.halts.save_stopped(location, stopped)
        case SavePause(pause=pause):
            store.halts.save_pause(pause)
        case _:
            pass
