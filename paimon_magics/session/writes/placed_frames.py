"""The rows of a snapshot's files with their places, as a frame that keeps the snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from paimon_magics.errors import OutdatedPlanError
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.session.connection import Connection
from paimon_magics.session.queries.held_snapshots import HeldSnapshots
from paimon_magics.spark.row_places import placed_rows
from paimon_magics.tables.row_changes.looked_up_keys import LookedUpKeys
from paimon_magics.tables.row_changes.placed_files import PlacedFiles
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = ["placed_frame"]


def placed_frame(
    connection: Connection,
    table: Table,
    snapshot_id: int,
    files: PlacedFiles | None,
    columns: Sequence[Column],
    more: Sequence[Column] = (),
    keys: LookedUpKeys | None = None,
) -> DataFrame:
    """`placed_rows` of files of a snapshot, 0 for none, which stays for as long as the frame does.
    Raises OutdatedPlanError if it has expired."""
    held = HeldSnapshots(connection.committer)
    if snapshot_id and not held.hold(replace(table.name, system_table=None), snapshot_id):
        raise OutdatedPlanError(
            f"Snapshot {snapshot_id} of `{table.name}` expired before it was read.",
            hint="Nothing was written. Run the statement again, or keep snapshots longer: "
            "'snapshot.num-retained.min', 'snapshot.time-retained'.",
        )
    try:
        rows = placed_rows(connection.spark, files, columns, more, connection.slots, keys)
        return held.noted(rows)
    finally:
        held.release()
