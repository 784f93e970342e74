"""Fencing: the epoch in a coordinator's snapshots, and the check before each publication.

Of two coordinators of one warehouse the newer has the higher epoch. A snapshot is published only by
creating the file of the next id. So an older coordinator that stalls after its check can publish
only while the newer one has published nothing on the table. From the newer one's first snapshot on,
it finds the higher epoch and stops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from paimon_magics.errors import SetupError
from paimon_magics.tables.snapshots.provenance import PREFIX

EPOCH = PREFIX + "epoch"
"""The property of a snapshot that holds the epoch of the coordinator that published it."""


class NotOwnerError(SetupError):
    """Another coordinator owns the warehouse; `address` is its address, "" if unknown."""

    def __init__(self, message: str, *, hint: str = "", address: str = "") -> None:
        super().__init__(message, hint=hint)
        self.address = address


class DeposedError(NotOwnerError):
    """Another coordinator has taken over, so this coordinator may no longer publish."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The epoch that a coordinator publishes with, and `check`, which raises DeposedError unless
    the coordinator still owns the warehouse.

    `outrank` returns a fence whose epoch is above its argument, or raises DeposedError. `looked_to`
    has, by table location, the last snapshot up to which no higher epoch was found.
    """

    epoch: int
    check: Callable[[], None]
    outrank: Callable[[int], Fence]
    looked_to: dict[str, int] = field(default_factory=dict)

    def above(self, epoch: int) -> Fence:
        """The fence to publish with after a snapshot of that epoch.

        Raises DeposedError if the epoch is higher than this one and a newer coordinator has a lease
        for it. Without such a lease, the table came from another warehouse or the leases were
        removed; then `outrank` takes an epoch above it.
        """
        return self if epoch <= self.epoch else self.outrank(epoch)


def epoch_of(properties: Mapping[str, Any] | None) -> int:
    """The epoch among a snapshot's properties; 0 where it has none."""
    text = str((properties or {}).get(EPOCH, ""))
    return int(text) if text.isascii() and text.isdigit() else 0
