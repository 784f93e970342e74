"""Plans the scan of a table: reads the manifests that it needs and makes the splits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pypaimon.utils.file_store_path_factory import canonical_data_file_path

from paimon_magics.planning.reads.read_points import ScanMode
from paimon_magics.tables.manifests.live_files import ManifestCache, added_files, live_files
from paimon_magics.tables.manifests.narrowing import narrowed_files
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.snapshots.targets import Difference, SnapshotChanges, TableState, Target
from paimon_magics.tables.splits.file_pruning import FilePruning
from paimon_magics.tables.splits.planning import (
    PlannedSplits,
    SplitPlanner,
    StoredState,
    TableScan,
)
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.table import Table

__all__ = ["files_seen", "plan_splits"]


@dataclass(frozen=True, slots=True)
class _Paths:
    """What `canonical_data_file_path` takes of a table, which makes a factory for each path."""

    factory: Any

    def path_factory(self) -> Any:
        return self.factory


def plan_splits(
    table: Table, scan: TableScan, target: Target, manifests: ManifestCache, schemas: TableSchemas
) -> PlannedSplits:
    """Plan the raw files and the splits of `target`. Raises TableDamagedError for manifests that
    are missing or damaged."""

    paths = _Paths(table.paimon.path_factory())

    def first_bucket_folder(partition: tuple[Any, ...]) -> str:
        return str(canonical_data_file_path(paths, partition, 0, ""))

    planner = SplitPlanner(
        scan,
        schemas.columns,
        first_bucket_folder,
        lambda path: table.paimon.file_io.new_input_stream(path),
        is_local=local_path(table.location) is not None,
    )
    match target:
        case TableState(snapshot=None):
            return PlannedSplits()
        case TableState(snapshot=snapshot, created_after_ms=created_after_ms):
            found = narrowed_files(manifests, snapshot, planner.narrowing())
            deletions = manifests.deletions(snapshot.index_manifest)
            state = StoredState(found.files, deletions, found.all_files)
            return planner.state(state, created_after_ms)
        case SnapshotChanges(mode=mode, snapshots=snapshots):
            lists = [
                snapshot.delta_manifest_list
                if mode is ScanMode.DELTA
                else snapshot.changelog_manifest_list
                for snapshot in snapshots
            ]
            return planner.changes(added_files(manifests, lists))
        case Difference(before=before, after=after):
            return planner.difference(_state(manifests, before), _state(manifests, after))


def files_seen(pruning: FilePruning, manifests: ManifestCache, snapshot: Any) -> pa.Table:
    """The files of a snapshot, pypaimon's, as `FilePruning.seen` returns them."""
    found = narrowed_files(manifests, snapshot, pruning.narrowing())
    return pruning.seen(found.files, found.all_files)


def _state(manifests: ManifestCache, snapshot: Any) -> StoredState:
    files = live_files(manifests, snapshot)
    return StoredState(files, manifests.deletions(snapshot.index_manifest))
