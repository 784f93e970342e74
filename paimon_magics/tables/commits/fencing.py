"""Who may publish: the epoch that a coordinator's snapshots carry, and what is checked before each.

Of two coordinators of one warehouse the newer has the higher epoch. A snapshot is published only by
creating the file of the next id, so an older one that was cut off between its check and that moment
succeeds only where the newer has published nothing on the table yet; from the newer's first
snapshot on it finds the higher epoch and stops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from paimon_magics.errors import SetupError
from paimon_magics.tables.snapshots.provenance import PREFIX

__all__ = ["EPOCH", "DeposedError", "Fence", "NotOwnerError", "epoch_of"]

EPOCH = PREFIX + "epoch"
"""The property of a snapshot that holds the epoch of the coordinator that published it."""


class NotOwnerError(SetupError):
    """Another coordinator owns the warehouse's commits; `address` is its own, "" if unknown."""

    def __init__(self, message: str, *, hint: str = "", address: str = "") -> None:
        super().__init__(message, hint=hint)
        self.address = address


class DeposedError(NotOwnerError):
    """Another coordinator has taken over from this one, which has nothing to say any more."""


@dataclass(frozen=True, slots=True)
class Fence:
    """What a coordinator brings to a publish: its epoch, and `check`, which raises DeposedError
    unless it still owns the warehouse's commits.

    `outrank` gives the fence of an epoch above the one that it is called with, or raises
    DeposedError. `looked_to` remembers for each table's location up to which snapshot no higher
    epoch was found.
    """

    epoch: int
    check: Callable[[], None]
    outrank: Callable[[int], Fence]
    looked_to: dict[str, int] = field(default_factory=dict)

    def above(self, epoch: int) -> Fence:
        """The fence to publish after a snapshot of that epoch.

        A higher one than this is a newer coordinator's, whose lease then tells. Without such a
        lease the table has come from another warehouse, or somebody has removed the leases.
        """
        return self if epoch <= self.epoch else self.outrank(epoch)


def epoch_of(properties: Mapping[str, Any] | None) -> int:
    """The epoch among a snapshot's properties; 0 where it has none."""
    text = str((properties or {}).get(EPOCH, ""))
    return int(text) if text.isascii() and text.isdigit() else 0
