"""The snapshots that a query reads, kept from expiring for as long as a frame of its rows exists.

A frame is lazy: each request for its rows reads its files. So the leases that were taken while the
frame was built last until the frame, the frames that were made of it (`made_of`), and the Outcomes
that hold them are gone.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from paimon_magics.coordinator.client.interface import CoordinatorClient
from paimon_magics.planning.reads.scans import ReadPlan
from paimon_magics.session.planned_work import Reads, note_reads, reads_of
from paimon_magics.statements.statement import TableName

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame
    from paimon_magics.tables.splits.planning import PlannedSplits

__all__ = ["HeldSnapshots"]


class _Leases:
    """Leases that end when nothing refers to this object any more."""

    def __init__(
        self, committer: CoordinatorClient, held: tuple[tuple[TableName, int], ...]
    ) -> None:
        weakref.finalize(self, _release, committer, held)


class HeldSnapshots:
    """The leases of one query."""

    def __init__(self, committer: CoordinatorClient) -> None:
        self._committer = committer
        self._held: list[tuple[TableName, int]] = []
        self._of_frames: tuple[object, ...] = ()
        self.planned: list[PlannedSplits] = []
        """The plans of the query's reads."""
        self.rows_at_most: int | None = None
        """How many rows the query has at most, where that is known."""
        self.plan: ReadPlan | None = None
        """The plan of the one table whose rows the query selects, to change them."""

    def hold(self, table: TableName, snapshot_id: int) -> bool:
        """Keep a snapshot; False if it has expired. Snapshots of branches don't expire here."""
        if table.branch is not None:
            return True
        if not self._committer.lease(table, snapshot_id):
            return False
        self._held.append((table, snapshot_id))
        return True

    def hold_of(self, frame: DataFrame) -> None:
        """Keep what a frame keeps that the query reads."""
        self._of_frames += reads_of(frame).leases

    def noted(self, frame: DataFrame, names: tuple[str, ...] = ()) -> DataFrame:
        """Note that the frame reads what was planned here, under `names`: all leases are its now.
        Returns the frame."""
        leases = self._of_frames
        if self._held:
            leases = (*leases, _Leases(self._committer, tuple(self._held)))
            self._held.clear()
        reads = Reads(names, tuple(self.planned), leases, self.rows_at_most, self.plan)
        return note_reads(frame, reads)

    def release(self) -> None:
        """Release all leases."""
        _release(self._committer, tuple(self._held))
        self._held.clear()


def _release(committer: CoordinatorClient, held: tuple[tuple[TableName, int], ...]) -> None:
    for table, snapshot_id in held:
        committer.release(table, snapshot_id)
