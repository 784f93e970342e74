"""A compaction of an append table: planned on one snapshot, run unit by unit, returned as messages.

    plan = plan_append_compaction(table, snapshot, CompactionScope(is_full=True))
    rewrite = plan.rewrite(transaction, slots=2, settings=settings)
    rewritten = [rewrite(unit) for unit in plan.units]  # in tasks or threads, in any order
    messages = plan.messages(rewritten, transaction)

Rules: `AppendCompactCoordinator`, `AppendCompactTask`, `BucketedAppendCompactManager`,
`DataEvolutionCompactCoordinator`, `DataEvolutionNormalCompactTask`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.compaction.append_tables import AppendRules
from paimon_magics.planning.compaction.keyed_tables import BucketFile
from paimon_magics.planning.compaction.sort_orders import (
    ClusteringRules,
    SortOrder,
    clustered_runs,
)
from paimon_magics.planning.reads.scans import OWN_PREFIXES
from paimon_magics.planning.reads.splits import Deletions, StoredFile
from paimon_magics.planning.schemas.table_schema import column_list
from paimon_magics.planning.writes.inserts import check_writable
from paimon_magics.settings import Settings
from paimon_magics.tables.compaction.append_messages import (
    append_messages,
    moved_vectors,
    put_vectors,
)
from paimon_magics.tables.compaction.append_rewriting import AppendRewrite, RewrittenUnit, RowFiles
from paimon_magics.tables.compaction.append_units import (
    AppendPicks,
    AppendUnit,
    all_append_files,
    pick_append_files,
    pick_evolving_files,
)
from paimon_magics.tables.compaction.planning import (
    CompactionScope,
    files_of_scope,
    folder_of,
)
from paimon_magics.tables.manifests.columns import creation_instants
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.reading.table_files import data_paths, files_reader
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.splits.planning import FileKey, StoredState
from paimon_magics.tables.splits.stored_files import stored_files
from paimon_magics.tables.stores.s3_access import io_options
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.columns_files import columns_files, stored_columns
from paimon_magics.tables.writing.commit_messages import BucketKey
from paimon_magics.tables.writing.key_value_files import KeyValueFiles, level_files
from paimon_magics.tables.writing.table_write import write_spec

_NEEDED = ["partition", "file_name", "level", "file_size", "min_sequence_number", "schema_id"]


@dataclass(frozen=True)
class AppendCompaction:
    """The units of a compaction of `snapshot`, pypaimon's. `files` are the entries
    (MANIFEST_ENTRIES) of their files, one unit after the other."""

    table: Table
    snapshot: Any
    units: tuple[AppendUnit, ...]
    files: pa.Table
    order: SortOrder | None = None

    @property
    def snapshot_id(self) -> int:
        """The snapshot that was planned on."""
        return int(self.snapshot.id)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compact."""
        return not self.units

    @property
    def read_bytes(self) -> int:
        """The size of all files that are read and written again."""
        return sum(self.unit_bytes())

    rewritten_bytes = read_bytes

    def unit_bytes(self) -> list[int]:
        """The size of the files of each unit."""
        return [unit.size_bytes for unit in self.units]

    def unit_keys(self) -> list[BucketKey]:
        """The partition, serialized, and bucket of each unit; several may have the same."""
        starts = np.cumsum([0, *(len(unit.files) for unit in self.units)])[:-1]
        firsts = self.files.select(["partition", "bucket"]).take(pa.array(starts, pa.int64()))
        return list(zip(*(column.to_pylist() for column in firsts.columns), strict=True))

    def only(self, places: Sequence[int]) -> AppendCompaction:
        """The plan of the units at these places."""
        ends = np.cumsum([len(unit.files) for unit in self.units])
        rows = [
            np.arange(ends[at] - len(self.units[at].files), ends[at], dtype=np.int64)
            for at in places
        ]
        units = tuple(replace(self.units[at], number=n) for n, at in enumerate(places))
        files = self.files.take(pa.array(np.concatenate(rows) if rows else [], pa.int64()))
        return replace(self, units=units, files=files.combine_chunks())

    def rewrite(self, transaction: Transaction, *, slots: int, settings: Settings) -> AppendRewrite:
        """The callable that rewrites a unit for the transaction; `slots` units are rewritten at
        once.

        Raises UnsupportedStatementError for files whose types can't be read as the table's.
        """
        tracks_rows = self.table.schema.row_tracking_enabled
        evolves = self.table.schema.data_evolution_enabled
        with_row_ids = tracks_rows and not evolves
        reader = files_reader(self.table, self.files, with_row_ids=with_row_ids)
        if evolves:
            columns = stored_columns(self.table.schema)
            wanted = tuple(f for f in reader.wanted if f.name in columns)
            files = columns_files(self.table, columns)
            output = rows_of_files(self.table, transaction, files)
            return AppendRewrite(replace(reader, wanted=wanted), output, False, evolves=True)
        if tracks_rows:
            return AppendRewrite(reader, row_files(self.table, transaction), False, self.order)
        # The files replace others: their sequence numbers follow from those.
        spec = write_spec(
            _with_own_options(self.table), transaction, overwrite=True, slots=slots,
            settings=settings, gives_buckets=True, rewrites=True,
        )  # fmt: skip
        spec = replace(spec, bucket_rule=None)
        return AppendRewrite(reader, spec, _has_buckets(self.table), self.order)

    def messages(
        self, rewritten: Iterable[RewrittenUnit], transaction: Transaction
    ) -> list[CommitMessage]:
        """The commit messages of all units, one for each partition and bucket. Writes the deletion
        vectors that are left in index files that lose some.

        Raises TableDamagedError for units that are missing or have other rows than they must.
        """
        messages = append_messages(self.table, self.units, self.files, rewritten)
        if any(file.deletions is not None for unit in self.units for file in unit.files):
            moved = moved_vectors(messages) if self.table.schema.data_evolution_enabled else {}
            put_vectors(self.table, self.snapshot, transaction, messages, moved)
        return messages


def plan_append_compaction(
    table: Table,
    snapshot: Any,
    scope: CompactionScope,
    manifests: ManifestCache | None = None,
) -> AppendCompaction:
    """Plan the compaction of a table without a primary key on `snapshot`, pypaimon's. `manifests`
    is a cache of the table's manifests.

    Raises UnsupportedStatementError for a table that is not compacted here, TableDamagedError for
    manifests that are missing or damaged.
    """
    check_compactable(table)
    manifests = manifests or ManifestCache(table.paimon)
    deletions = manifests.deletions(snapshot.index_manifest)
    picks, order = _picks(table, StoredState(live_files(manifests, snapshot), deletions), scope)
    rows = list(chain.from_iterable(picks.groups))
    if not rows:
        return AppendCompaction(table, snapshot, (), picks.files.slice(0, 0))
    files = picks.files.take(pa.array(rows, pa.int64())).combine_chunks()
    stored = iter(stored_files_of(table, files, deletions))
    buckets = files["bucket"].to_pylist()
    units: list[AppendUnit] = []
    first = 0
    for group in picks.groups:
        members = tuple(next(stored) for _ in group)
        folder = ""
        if table.schema.row_tracking_enabled:
            folder = folder_of(table, files.slice(first, 1))
        level = picks.levels[len(units)] if picks.levels else 0
        units.append(AppendUnit(len(units), buckets[first], members, folder, level))
        first += len(group)
    return AppendCompaction(table, snapshot, tuple(units), files, order)


def _picks(
    table: Table, whole: StoredState, scope: CompactionScope
) -> tuple[AppendPicks, SortOrder | None]:
    """The files of a snapshot to rewrite, and how they are sorted."""
    schema = table.schema
    state = replace(whole, files=files_of_scope(whole.files, scope))
    if schema.data_evolution_enabled:
        return pick_evolving_files(state, AppendRules.of(schema)), None
    if scope.order is not None:
        return all_append_files(state), scope.order
    if not schema.flag("clustering.incremental"):
        rules = AppendRules.of(schema)
        has_buckets = _has_buckets(table)
        return pick_append_files(state, rules, has_buckets=has_buckets, full=scope.is_full), None
    clustering = ClusteringRules.of(schema)
    schemas = TableSchemas(table.paimon)

    def has_same_columns(schema_id: int) -> bool:
        options = schemas.schema(schema_id).options
        return column_list(options.get("clustering.columns")) == clustering.order.columns

    history: frozenset[bytes] = frozenset()
    if scope.partitions is not None:
        now_ms = int(time.time() * 1000)
        history = _history_partitions(whole.files, clustering, scope.partitions, now_ms)
        wider = replace(scope, partitions=scope.partitions | history)
        state = replace(whole, files=files_of_scope(whole.files, wider))
    picks = _pick_clustered_files(
        state,
        clustering,
        is_full=lambda partition: scope.is_full or partition in history,
        has_same_columns=has_same_columns,
    )
    return picks, clustering.order


def check_compactable(table: Table) -> None:
    """Raise UnsupportedStatementError for an append table that is not compacted here."""
    check_writable(table.name, table.schema, writes_blobs=False)


def _has_buckets(table: Table) -> bool:
    return table.schema.bucket_mode != "BUCKET_UNAWARE"


def row_files(table: Table, transaction: Transaction, *, keeps_numbers: bool = True) -> RowFiles:
    """How files of rows with ids are written; without `keeps_numbers` some rows have no sequence
    number."""
    files = replace(
        level_files(table, 0),
        target_bytes=AppendRules.of(table.schema).target_bytes,
        system="row ids",
        may_lack_numbers=not keeps_numbers,
    )
    return rows_of_files(table, transaction, files)


def rows_of_files(table: Table, transaction: Transaction, files: KeyValueFiles) -> RowFiles:
    """How files of rows with ids are written."""
    return RowFiles(
        files=files,
        partition_keys=table.schema.partition_keys,
        stem=transaction.file_prefix + OWN_PREFIXES["data-file.prefix"],
        attempts_folder=transaction.attempts_folder,
        io_options=io_options(table.paimon),
    )


def _with_own_options(table: Table) -> Table:
    """The table whose writers see the options that were given beside its stored ones."""
    stored = table.paimon.table_schema.options
    own = {key: value for key, value in table.schema.options if str(stored.get(key)) != value}
    return replace(table, paimon=table.paimon.copy(own)) if own else table


def stored_files_of(
    table: Table, files: pa.Table, deletions: Mapping[FileKey, Deletions]
) -> list[StoredFile]:
    """Manifest entries as the files that tasks read, in their order."""
    return stored_files(files, np.arange(files.num_rows), data_paths(table, files), deletions)


# Which files of an append table are sorted where `clustering.incremental` is on.
#
# Nothing is read but the files' columns in the manifests. Rules: `IncrementalClusterManager`,
# `HistoryPartitionCluster`, `BucketedAppendClusterManager`.


def _pick_clustered_files(
    state: StoredState,
    rules: ClusteringRules,
    *,
    is_full: Callable[[bytes], bool],
    has_same_columns: Callable[[int], bool],
) -> AppendPicks:
    """The files that are sorted, a group for each partition or bucket, and the level of their
    result. `is_full` returns whether all files of a serialized partition are sorted.
    `has_same_columns` returns whether the schema with an id sorted by the current columns."""
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
        pick = rules.picked(
            runs, is_full=is_full(taken[0]["partition"]), is_in_order=has_same_columns(oldest)
        )
        if pick is not None:
            groups.append(tuple(files[file.name][0] for file in pick.files))
            levels.append(pick.output_level)
    return AppendPicks(state.files, tuple(groups), tuple(levels))


def _history_partitions(
    files: pa.Table, rules: ClusteringRules, chosen: frozenset[bytes], now_ms: int
) -> frozenset[bytes]:
    """The serialized partitions that are fully sorted although they are not among the `chosen`:
    partitions with files below the greatest level whose newest file is old enough. If they exceed
    the limit, the oldest partitions come first.

    `files` are all files of the snapshot. `now_ms` are the milliseconds since 1970 UTC.
    """
    idle_ms = rules.history_idle_ms
    if idle_ms is None:
        return frozenset()
    fresh = files.filter(pc.less(files["level"], rules.max_level))
    created = creation_instants(fresh)
    fresh = fresh.select(["partition"]).append_column("created", pc.fill_null(created, 0))
    newest = fresh.group_by("partition").aggregate([("created", "max")])
    ages = zip(newest["created_max"].to_pylist(), newest["partition"].to_pylist(), strict=True)
    old = sorted(
        (created, partition)
        for created, partition in ages
        if created < now_ms - idle_ms and partition not in chosen
    )
    return frozenset(partition for _, partition in old[: rules.history_limit])
