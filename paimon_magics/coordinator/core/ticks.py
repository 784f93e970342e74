"""What the passing of time does: leases end, removals are tried again, receipts are forgotten."""

from __future__ import annotations

from dataclasses import replace

from paimon_magics.coordinator.core import publications as watching
from paimon_magics.coordinator.core.events import Effect, ForgetFinished, RemoveFiles, Save
from paimon_magics.coordinator.core.state import State, Step, aborting, with_transaction
from paimon_magics.coordinator.core.values import Phase

STALL_MS = 5_000
"""More milliseconds than this between two ticks mean that the process stood still or the clock was
set."""

FORGET_EVERY_MS = 60_000
"""How often finished transactions are deleted after their retention, in milliseconds."""


def ticked(state: State, now_ms: int) -> Step:
    """Return the state at `now_ms`, and what must be done then."""
    effects: list[Effect] = []
    state = _without_stall(state, now_ms)
    for transaction in tuple(state.transactions.values()):
        if transaction.expires_at_ms > now_ms:
            continue
        match transaction.phase:
            case Phase.ACTIVE:
                grace_ms = state.limits.cleanup_grace_ms
                expired = aborting(transaction, "its lease expired", now_ms, grace_ms)
                state = with_transaction(state, expired)
                effects.append(Save(expired))
            case Phase.ABORTING:
                # Once in a grace period, until it succeeds.
                later = replace(transaction, expires_at_ms=now_ms + state.limits.cleanup_grace_ms)
                state = with_transaction(state, later)
                effects.append(RemoveFiles(transaction.id))
    state, checks = watching.due_checks(state, now_ms)
    effects += checks
    if now_ms - state.forgot_at_ms >= FORGET_EVERY_MS:
        state = replace(state, forgot_at_ms=now_ms)
        effects.append(ForgetFinished(now_ms))
    return state, tuple(effects)


def _without_stall(state: State, now_ms: int) -> State:
    """Extend the leases by the time for which the coordinator stood still, when nobody could renew
    them, or by which the clock was set."""
    passed_ms = now_ms - state.ticked_at_ms if state.ticked_at_ms else 0
    state = replace(state, ticked_at_ms=now_ms)
    if abs(passed_ms) < STALL_MS:
        return state
    for transaction in tuple(state.transactions.values()):
        if transaction.phase is Phase.ACTIVE:
            later = replace(transaction, expires_at_ms=transaction.expires_at_ms + passed_ms)
            state = with_transaction(state, later)
    return state
