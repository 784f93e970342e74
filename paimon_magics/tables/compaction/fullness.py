"""How near a table's buckets are to their triggers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.planning.compaction.append_tables import AppendRules
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.table import Table

__all__ = ["fullest_bucket"]

_PLACE = ["partition", "bucket"]


def fullest_bucket(table: Table, manifests: ManifestCache) -> int:
    """The most sorted runs that a bucket of the table's latest snapshot has; of a table without a
    key, the most small files of a bucket, or of a partition without buckets."""
    snapshot = latest_snapshot(table.paimon)
    if snapshot is None:
        return 0
    files = live_files(manifests, snapshot)
    if table.schema.is_primary_key_table:
        # A file of level 0 is a run of its own, those of another level are one together.
        numbers = pa.array(np.arange(1, files.num_rows + 1))
        run = pc.if_else(pc.equal(files["level"], 0), numbers, pc.negate(files["level"]))
        runs = files.select(_PLACE).append_column("run", run).group_by([*_PLACE, "run"])
        files = runs.aggregate([])
    else:
        small = AppendRules.of(table.schema).small_bytes
        files = files.filter(pc.less(files["file_size"], small))
    counts = files.group_by(_PLACE).aggregate([([], "count_all")])["count_all"]
    return int(pc.max(counts).as_py() or 0)
