"""The snapshots that a query reads, kept from expiring for as long as a frame of its rows exists.

A frame is lazy: each request for its rows reads its files. So the leases that were taken while the
frame was built last until the frame, the frames that were made of it (`made_of`), and the Outcomes
that hold them are gone.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from paimon_magics.coordinator.client.interface import CoordinatorClient
from paimon_magics.errors import OutdatedPlanError
from paimon_magics.planning.reads.scans import ReadPlan
from paimon_magics.session.planned_work import Reads, note_reads, reads_of
from paimon_magics.statements.statement import TableName

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame
    from paimon_magics.tables.splits.planning import PlannedSplits


class _Lease:
    """Leases that end when nothing refers to this object any more."""

    def __init__(
        self, committer: CoordinatorClient, snapshots: tuple[tuple[TableName, int], ...]
    ) -> None:
        weakref.finalize(self, _release, committer, snapshots)


class SnapshotLeases:
    """The leases of one query, as a context: those that no frame has taken end with the body."""

    def __init__(self, committer: CoordinatorClient) -> None:
        self._committer = committer
        self._snapshots: list[tuple[TableName, int]] = []
        self._of_frames: tuple[object, ...] = ()
        self.planned: list[PlannedSplits] = []
        """The plans of the query's reads."""
        self.rows_at_most: int | None = None
        """The upper bound on the query's rows, if it is known."""
        self.plan: ReadPlan | None = None
        """The plan of the one table whose rows the query selects, to change them."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _release(self._committer, tuple(self._snapshots))
        self._snapshots.clear()

    def hold(self, table: TableName, snapshot_id: int) -> bool:
        """Keep a snapshot; False if it has expired. Snapshots of branches don't expire here."""
        if table.branch is not None:
            return True
        if not self._committer.lease(table, snapshot_id):
            return False
        self._snapshots.append((table, snapshot_id))
        return True

    def require(self, table: TableName, snapshot_id: int) -> None:
        """Keep a snapshot of a table. Raises OutdatedPlanError if it has expired."""
        if not self.hold(replace(table, system_table=None), snapshot_id):
            raise OutdatedPlanError(
                f"Snapshot {snapshot_id} of `{table}` expired before it was read.",
                hint="Nothing was written. Run the statement again, or keep snapshots longer: "
                "'snapshot.num-retained.min', 'snapshot.time-retained'.",
            )

    def hold_of(self, frame: DataFrame) -> None:
        """Keep what a frame keeps that the query reads."""
        self._of_frames += reads_of(frame).leases

    def noted(self, frame: DataFrame, names: tuple[str, ...] = ()) -> DataFrame:
        """Note that the frame reads what was planned here, under `names`: it owns all leases from
        now on. Returns the frame."""
        leases = self._of_frames
        if self._snapshots:
            leases = (*leases, _Lease(self._committer, tuple(self._snapshots)))
            self._snapshots.clear()
        reads = Reads(names, tuple(self.planned), leases, self.rows_at_most, self.plan)
        return note_reads(frame, reads)


def _release(committer: CoordinatorClient, snapshots: tuple[tuple[TableName, int], ...]) -> None:
    for table, snapshot_id in snapshots:
        committer.release(table, snapshot_id)
