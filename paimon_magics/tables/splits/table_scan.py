"""Plans the scan of a table: reads the manifests that it needs and makes the splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.utils.file_store_path_factory import canonical_data_file_path

from paimon_magics.planning.reads.read_points import ScanMode
from paimon_magics.planning.reads.splits import Deletions, RowRange, row_groups
from paimon_magics.tables.manifests.file_paths import file_paths
from paimon_magics.tables.manifests.live_files import ManifestCache, added_files, live_files
from paimon_magics.tables.manifests.narrowing import narrowed_files
from paimon_magics.tables.manifests.partitions import partition_values
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.schema.types import arrow_type
from paimon_magics.tables.snapshots.targets import Difference, SnapshotChanges, TableState, Target
from paimon_magics.tables.splits.file_pruning import FilePruning
from paimon_magics.tables.splits.planning import (
    FileKey,
    PlannedSplits,
    SplitPlanner,
    StoredState,
    TableScan,
)
from paimon_magics.tables.splits.stored_files import stored_files
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.table import Table


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


# Finds which files hold which rows of a data-evolution table.


def row_ranges(
    table: Table, snapshot: Any, manifests: ManifestCache | None = None
) -> tuple[RowRange, ...]:
    """The ranges of rows of a data-evolution table at `snapshot`, pypaimon's, in the order of their
    ids. `manifests` is a cache of the table's manifests.

    Deletion vectors are left out: a new file has its range's deleted rows, too. Raises
    TableDamagedError for manifests that are missing or damaged.
    """
    return ranges_of(table, live_files(manifests or ManifestCache(table.paimon), snapshot), {})


def ranges_of(
    table: Table, files: pa.Table, deletions: Mapping[FileKey, Deletions]
) -> tuple[RowRange, ...]:
    """The ranges of rows that some files (MANIFEST_ENTRIES) have, in the order of their ids.
    `files` have all that hold columns of a row, or none."""
    files = files.filter(pc.is_valid(files["first_row_id"])).combine_chunks()
    if not files.num_rows:
        return ()
    schema = table.schema
    types = [arrow_type(schema.column(key).type) for key in schema.partition_keys]

    def folder(partition: tuple[Any, ...]) -> str:
        return str(canonical_data_file_path(table.paimon, partition, 0, ""))

    paths = file_paths(files, types, folder)
    stored = stored_files(files, np.arange(files.num_rows), paths, deletions)
    values, of_files = partition_values(table.paimon, files)
    partitions = {file.path: values[at] for file, at in zip(stored, of_files, strict=True)}
    folders: Mapping[tuple[Any, ...], str] = {
        tuple(value): folder(tuple(value)).rstrip("/") for value in values
    }
    found = []
    for group in row_groups(stored):
        partition = tuple(partitions[group[0].path])
        first = group[0].first_row_id
        assert first is not None
        found.append(RowRange(first, group[0].rows, partition, folders[partition], group))
    return tuple(found)
