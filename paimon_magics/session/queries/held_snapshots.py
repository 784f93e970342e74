"""The snapshots that a query reads, kept from expiring while its frame is there.

A frame is lazy: its files are read when somebody asks for its rows, and again when they ask again.
So the leases that were taken while it was put together last until the frame is gone, and with it
the Outcome that holds it.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from paimon_magics.coordinator.client.interface import CoordinatorClient
from paimon_magics.statements.statement import TableName

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame
    from paimon_magics.tables.splits.planning import PlannedSplits

__all__ = ["HeldSnapshots"]


class HeldSnapshots:
    """The leases of one query."""

    def __init__(self, committer: CoordinatorClient) -> None:
        self._committer = committer
        self._held: list[tuple[TableName, int]] = []
        self.planned: list[PlannedSplits] = []
        """The plans of what is read."""

    def hold(self, table: TableName, snapshot_id: int) -> bool:
        """Keep a snapshot; False when it has expired. Those of branches don't expire here."""
        if table.branch is not None:
            return True
        if not self._committer.lease(table, snapshot_id):
            return False
        self._held.append((table, snapshot_id))
        return True

    def release_with(self, frame: DataFrame) -> None:
        """Keep them until the frame is gone."""
        weakref.finalize(frame, _release, self._committer, tuple(self._held))
        self._held.clear()

    def release(self) -> None:
        """Give them up."""
        _release(self._committer, tuple(self._held))
        self._held.clear()


def _release(committer: CoordinatorClient, held: tuple[tuple[TableName, int], ...]) -> None:
    for table, snapshot_id in held:
        committer.release(table, snapshot_id)
