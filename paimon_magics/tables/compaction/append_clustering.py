"""Which files of the partitions of an append table are sorted where `clustering.incremental` is on.

Nothing is read but the files' columns in the manifests. Rules: `IncrementalClusterManager`.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from paimon_magics.planning.compaction.incremental_clustering import (
    ClusteringRules,
    clustered_runs,
)
from paimon_magics.planning.compaction.levels import BucketFile
from paimon_magics.tables.compaction.append_units import AppendPicks, all_append_files
from paimon_magics.tables.splits.planning import StoredState

__all__ = ["pick_clustered_files"]

_NEEDED = ["file_name", "level", "file_size", "min_sequence_number", "schema_id"]


def pick_clustered_files(
    state: StoredState,
    rules: ClusteringRules,
    *,
    is_full: bool,
    has_same_columns: Callable[[int], bool],
) -> AppendPicks:
    """The files that are sorted, a group for each partition, and the level of their result.
    `has_same_columns` tells whether a schema, by its id, sorted by the columns of today."""
    groups, levels = [], []
    for rows in all_append_files(state).groups:
        taken = state.files.select(_NEEDED).take(pa.array(rows, pa.int64())).to_pylist()
        files = {row["file_name"]: (place, row) for place, row in zip(rows, taken, strict=True)}
        runs = clustered_runs(
            BucketFile(
                name=name,
                level=row["level"],
                size_bytes=row["file_size"],
                least_key=0,
                greatest_key=0,
                min_sequence_number=row["min_sequence_number"],
            )
            for name, (_, row) in files.items()
        )
        oldest = files[runs[0].files[0].name][1]["schema_id"]
        found = rules.picked(runs, is_full=is_full, is_in_order=has_same_columns(oldest))
        if found is not None:
            groups.append(tuple(files[file.name][0] for file in found.files))
            levels.append(found.output_level)
    return AppendPicks(state.files, tuple(groups), tuple(levels))
