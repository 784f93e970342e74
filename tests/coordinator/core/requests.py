"""Requests of clients, as events of the core."""

from __future__ import annotations

from paimon_magics.coordinator.core.events import Adopted, BeginRequested
from paimon_magics.coordinator.core.values import TransactionState


def begin(
    id: str,
    location: str,
    owner: str,
    now_ms: int,
    ask: int,
    *,
    exclusive: bool = False,
    waits: bool = False,
) -> BeginRequested:
    transaction = TransactionState(id, location, owner=owner, exclusive=exclusive)
    return BeginRequested(transaction, now_ms, ask, waits=waits)


def adopt(
    id: str, location: str, owner: str, digest: str | None, epoch: int, now_ms: int, ask: int
) -> Adopted:
    transaction = TransactionState(id, location, owner=owner, adopted=epoch)
    return Adopted(transaction, digest, now_ms, ask)
