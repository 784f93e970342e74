"""The number of a table's partitions, if few manifest entries are enough to count them, and the
limit for writing without a shuffle."""

from __future__ import annotations

import pyarrow.compute as pc

from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.table import Table

__all__ = ["partitions_max"]

_ENTRIES_MAX = 2000  # some milliseconds


def partitions_max(table: Table, snapshot_id: int, manifests: ManifestCache) -> int | None:
    """The largest number of partitions for which rows are written without a shuffle: somewhat more
    than the table has at a snapshot. `manifests` is a cache of the table's manifests.

    None if the table has no partition keys, if buckets decide which task writes a row, or if the
    number of partitions is unknown.
    """
    schema = table.schema
    if schema.bucket_mode != "BUCKET_UNAWARE" or not schema.is_partitioned:
        return None
    known = _partition_count(table, snapshot_id, manifests)
    return None if not known else known + max(2, known // 2)


def _partition_count(table: Table, snapshot_id: int, manifests: ManifestCache) -> int | None:
    """The number of partitions with files at a snapshot; None if it would take reading more than
    `_ENTRIES_MAX` manifest entries, or if there is no such snapshot."""
    snapshot = read_snapshot(table.paimon, snapshot_id) if snapshot_id else None
    if snapshot is None:
        return None
    entries = 0
    for manifest_list in (snapshot.base_manifest_list, snapshot.delta_manifest_list):
        listed = manifests.columns.files(manifest_list)
        for name in ("num_added_files", "num_deleted_files"):
            entries += pc.sum(listed.column(name)).as_py() or 0
    if entries > _ENTRIES_MAX:
        return None
    return len(pc.unique(live_files(manifests, snapshot).column("partition")))
