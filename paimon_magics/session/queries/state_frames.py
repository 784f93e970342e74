"""Frames of whole states of a table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from paimon_magics.errors import OutdatedPlanError
from paimon_magics.session.connection import Connection
from paimon_magics.session.queries.held_snapshots import HeldSnapshots
from paimon_magics.session.queries.plans import plan_of
from paimon_magics.spark.reading import read_frame
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.reading.data_read import ReadRequest, plan_data_read
from paimon_magics.tables.snapshots.targets import TableState
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = ["frame_of_state"]

# Also of tables that show level 0 only after a compaction.
_ALL_LEVELS = {"batch-scan-mode": "compact"}


def frame_of_state(
    connection: Connection, table: Table, snapshot: Any, partitions: frozenset[bytes] | None
) -> DataFrame:
    """All rows of a snapshot, in the columns of the table's schema, merged whatever their level;
    of `partitions` (serialised) only, if given. The snapshot does not expire while the frame is
    there. Raises OutdatedPlanError if it has expired."""
    held = HeldSnapshots(connection.committer)
    try:
        if not held.hold(replace(table.name, system_table=None), int(snapshot.id)):
            raise OutdatedPlanError(
                f"Snapshot {snapshot.id} of `{table.name}` expired before it was read.",
                hint="Nothing was written. Run the statement again.",
            )
        read = plan_data_read(
            table,
            ReadRequest(options=_ALL_LEVELS, zone=connection.zone, partitions=partitions),
            target=TableState(snapshot),
            manifests=connection.manifests(table.location, lambda: ManifestCache(table.paimon)),
            batch_rows=connection.settings.batch_rows,
        )
        plan = plan_of(connection, read)
        frame = read_frame(connection.spark, plan, read.schema.columns, read.reader)
        held.planned.append(read.planned)
        return held.noted(frame, (table.name.object_name,))
    finally:
        held.release()
