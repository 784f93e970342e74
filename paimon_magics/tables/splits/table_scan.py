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
from paimon_magics.tables.manifests.columns import MANIFEST_ENTRIES
from paimon_magics.tables.manifests.file_paths import file_paths
from paimon_magics.tables.manifests.live_files import (
    FEW_ENTRIES,
    ManifestCache,
    added_files,
    live_files,
    undeleted,
)
from paimon_magics.tables.manifests.partitions import partition_values
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.schema.types import arrow_type
from paimon_magics.tables.snapshots.targets import Difference, SnapshotChanges, TableState, Target
from paimon_magics.tables.splits.planning import (
    FileKey,
    PlannedSplits,
    SplitPlanner,
    StoredState,
    TableScan,
)
from paimon_magics.tables.splits.pruning import EntryPruning
from paimon_magics.tables.splits.pruning_steps import FilePruning
from paimon_magics.tables.splits.stored_files import COMMIT, stored_files
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.table import Table


@dataclass(frozen=True, slots=True)
class _Paths:
    """The attributes of a table that `canonical_data_file_path` needs, which creates a factory for
    each path."""

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
            files, all_files = _pruned_files(manifests, snapshot, planner.entry_pruning())
            deletions = manifests.deletions(snapshot.index_manifest)
            return planner.state(StoredState(files, deletions, all_files), created_after_ms)
        case SnapshotChanges(mode=mode, snapshots=snapshots):
            lists = [
                snapshot.delta_manifest_list
                if mode is ScanMode.DELTA
                else snapshot.changelog_manifest_list
                for snapshot in snapshots
            ]
            if not (scan.view.keeps_retracts and scan.view.metadata and snapshots):
                return planner.changes(added_files(manifests, lists))
            by_commit = (
                _of_commit(added_files(manifests, [name]), snapshot)
                for name, snapshot in zip(lists, snapshots, strict=True)
            )
            return planner.changes(pa.concat_tables(by_commit).combine_chunks())
        case Difference(before=before, after=after):
            return planner.difference(_state(manifests, before), _state(manifests, after))


def _of_commit(files: pa.Table, snapshot: Any) -> pa.Table:
    commits = [[snapshot.id, snapshot.time_millis]] * files.num_rows
    return files.append_column(COMMIT, pa.array(commits, pa.list_(pa.int64())))


def files_seen(pruning: FilePruning, manifests: ManifestCache, snapshot: Any) -> pa.Table:
    """The files of a snapshot, pypaimon's, as `FilePruning.prune` returns them."""
    return pruning.prune(*_pruned_files(manifests, snapshot, pruning.entry_pruning()))


def _pruned_files(
    manifests: ManifestCache, snapshot: Any, pruning: EntryPruning | None
) -> tuple[pa.Table, int | None]:
    """The files of a snapshot in the order in which they were added, and their number where some
    were left out: those that `pruning` rules out, if there are more than FEW_ENTRIES. (With few
    entries, this keeps the sums of each pruning step known.)

    Manifests whose partitions a condition rules out are not opened, and of other manifests only the
    remaining entries are held. So time and memory depend on the remaining entries, not on the
    table. Rules: Paimon's `AbstractFileStoreScan.filterManifestFileMeta` and `filterByStats`.
    """
    if pruning is None:
        return live_files(manifests, snapshot), None
    if manifests.count_entries(snapshot) <= FEW_ENTRIES:
        return manifests.few_files(snapshot), None
    lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
    metas = pa.concat_tables([manifests.columns.files(name) for name in lists if name])
    added, deleted = (
        pc.sum(metas[name]).as_py() or 0 for name in ("num_added_files", "num_deleted_files")
    )
    left = metas.filter(pa.array(pruning.manifests(metas)))["file_name"].to_pylist()
    parts = [pruning.entries(manifests.columns.entries([name])) for name in left]
    entries = pa.concat_tables([MANIFEST_ENTRIES.empty_table(), *parts]).combine_chunks()
    return undeleted(entries), added - deleted


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
    ranges = []
    for group in row_groups(stored):
        partition = tuple(partitions[group[0].path])
        first = group[0].first_row_id
        assert first is not None
        ranges.append(RowRange(first, group[0].rows, partition, folders[partition], group))
    return tuple(ranges)
