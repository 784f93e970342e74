"""The snapshots that a query reads, kept from expiring for as long as its frame exists.

A frame is lazy: each request for its rows reads its files. So the leases that were taken while the
frame was built last until the frame, and the Outcome that holds it, are gone.
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
        """The plans of the query's reads."""

    def hold(self, table: TableName, snapshot_id: int) -> bool:
        """Keep a snapshot; False if it has expired. Snapshots of branches don't expire here."""
        if table.branch is not None:
            return True
        if not self._committer.lease(table, snapshot_id):
            return False
        self._held.append((table, snapshot_id))
        return True

    def release_with(self, frame: DataFrame) -> None:
        """Release all leases when the frame is garbage collected."""
        weakref.finalize(frame, _release, self._committer, tuple(self._held))
        self._held.clear()

    def release(self) -> None:
        """Release all leases."""
        _release(self._committer, tuple(self._held))
        self._held.clear()


def _release(committer: CoordinatorClient, held: tuple[tuple[TableName, int], ...]) -> None:
    for table, snapshot_id in held:
        committer.release(table, snapshot_id)
