"""Which files of an append table are sorted where `clustering.incremental` is on.

Nothing is read but the files' columns in the manifests. Rules: `IncrementalClusterManager`,
`HistoryPartitionCluster`, `BucketedAppendClusterManager`.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.planning.compaction.incremental_clustering import (
    ClusteringRules,
    clustered_runs,
)
from paimon_magics.planning.compaction.levels import BucketFile
from paimon_magics.tables.compaction.append_units import AppendPicks, all_append_files
from paimon_magics.tables.splits.planning import StoredState

__all__ = ["history_partitions", "pick_clustered_files"]

_NEEDED = ["partition", "file_name", "level", "file_size", "min_sequence_number", "schema_id"]


def pick_clustered_files(
    state: StoredState,
    rules: ClusteringRules,
    *,
    is_full: Callable[[bytes], bool],
    has_same_columns: Callable[[int], bool],
) -> AppendPicks:
    """The files that are sorted, a group for each partition or bucket, and the level of their
    result. `is_full` tells of a partition, serialised, whether all of its files are sorted;
    `has_same_columns` of a schema, by its id, whether it sorted by the columns of today."""
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
        found = rules.picked(
            runs, is_full=is_full(taken[0]["partition"]), is_in_order=has_same_columns(oldest)
        )
        if found is not None:
            groups.append(tuple(files[file.name][0] for file in found.files))
            levels.append(found.output_level)
    return AppendPicks(state.files, tuple(groups), tuple(levels))


def history_partitions(
    files: pa.Table, rules: ClusteringRules, chosen: frozenset[bytes], now_ms: int
) -> frozenset[bytes]:
    """The partitions, serialised, that are sorted wholly although they are not among the `chosen`:
    those with files below the greatest level, of which the newest is old enough; the oldest first,
    where these are more than the limit.

    `files` are all files of the snapshot. `now_ms` is the wall-clock time here as if it were UTC,
    as creation times are stored.
    """
    idle_ms = rules.history_idle_ms
    if idle_ms is None:
        return frozenset()
    fresh = files.filter(pc.less(files["level"], rules.max_level))
    fresh = fresh.select(["partition"]).append_column(
        "created", pc.fill_null(fresh["creation_time"].cast(pa.int64()), 0)
    )
    newest = fresh.group_by("partition").aggregate([("created", "max")])
    ages = zip(newest["created_max"].to_pylist(), newest["partition"].to_pylist(), strict=True)
    old = sorted(
        (created, partition)
        for created, partition in ages
        if created < now_ms - idle_ms and partition not in chosen
    )
    return frozenset(partition for _, partition in old[: rules.history_limit])
