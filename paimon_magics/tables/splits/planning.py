"""Plans a read of a snapshot's files, or of changes: which files Spark scans raw, and which files
tasks merge.

Files that need no merge come out as paths; splits are made for the rest. Nothing is read here:
files come in as Arrow columns, which `table_scan` reads from the manifests.
Rules: `SnapshotReaderImpl`, `MergeTreeSplitGenerator`, `AppendOnlySplitGenerator`,
`ReadOptimizedTable`, `IncrementalDeltaStartingScanner`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.reads.splits import (
    Deletions,
    DifferenceSplit,
    PlainSplit,
    RawFiles,
    Section,
    StoredFile,
    TaskSplit,
)
from paimon_magics.planning.reads.views import RowView, ViewKind
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.manifests.columns import creation_instants
from paimon_magics.tables.manifests.file_paths import file_paths
from paimon_magics.tables.schema.types import arrow_type
from paimon_magics.tables.splits.bucket_splits import (
    BucketSplits,
    KeyRanks,
    sections_of,
    without_non_overlapping,
)
from paimon_magics.tables.splits.pruning import EntryPruning
from paimon_magics.tables.splits.pruning_steps import FilePruning, IndexedFiles, PruningStep
from paimon_magics.tables.splits.stored_files import (
    by_bucket,
    files_of_partitions,
    raw_files,
    schema_ids,
    stored_files,
    stores_elsewhere,
)

FileKey = tuple[bytes, int, str]
"""Encoded partition, bucket and name of a data file."""
_FileDeletions = Mapping[FileKey, Deletions]
_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PlannedSplits:
    """The raw files and splits of a read. `schema_ids` are the schemas of all its files.
    `stores_elsewhere` are the URI schemes of files that lie outside the table's folder. `entries`
    are the raw files' manifest entries, where the scan asks for them and all of them are known."""

    raw: tuple[RawFiles, ...] = ()
    splits: tuple[TaskSplit, ...] = ()
    schema_ids: frozenset[int] = field(default_factory=frozenset)
    pruning_steps: tuple[PruningStep, ...] = ()
    stores_elsewhere: frozenset[str] = frozenset()
    entries: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class TableScan:
    """What is read of a table. `name` is for messages, `schema` the schema that is read.

    `predicates` are conditions that rows must meet: files that can't hold matching rows are pruned.
    `unordered`: the two rows of an update need not stay together. If `partitions` (serialized) are
    given, only these are read of a state, and of a table with keys only files of `level_min` and
    above. `with_entries`: the manifest entries of raw files are wanted, too.
    """

    name: TableName
    schema: TableSchema
    view: RowView
    predicates: Sequence[ColumnPredicate] = ()
    unordered: bool = False
    partitions: frozenset[bytes] | None = None
    level_min: int = 0
    with_entries: bool = False


@dataclass(frozen=True, slots=True)
class StoredState:
    """The files of a snapshot (columns of MANIFEST_ENTRIES), and deletion vectors by file.
    `all_files` is the number of its files where `SplitPlanner.entry_pruning` has left some out."""

    files: pa.Table
    deletions: _FileDeletions = field(default_factory=dict)
    all_files: int | None = None


class SplitPlanner:
    """Plans one read. `columns` returns the columns of a schema by its id, `first_bucket_folder`
    the folder of bucket 0 of a partition by the partition's values. `opened` opens a file index
    beside its data file, on a disk if `is_local`; without it file indexes are not looked at."""

    def __init__(
        self,
        scan: TableScan,
        columns: Callable[[int], Sequence[Column]],
        first_bucket_folder: Callable[[tuple[Any, ...]], str],
        opened: Callable[[str], Any] | None = None,
        *,
        is_local: bool = False,
    ) -> None:
        schema, view = scan.schema, scan.view
        self._scan = scan
        self._schema = schema
        self._view = view
        self._first_bucket_folder = first_bucket_folder
        self._shows_kinds = view.keeps_retracts
        self._splits = BucketSplits(schema)
        # Options are looked up once, not for each of many thousand buckets.
        self._of_tasks = (
            schema.data_evolution_enabled
            or view.kind is ViewKind.ROW_TRACKING
            or bool(view.metadata)
        )
        self._by_snapshot = schema.flag("sequence.snapshot-ordering")
        bucket = schema.stored_option("scan.bucket")
        self._bucket = None if bucket is None else int(bucket)
        indexes = None
        if opened is not None:
            indexes = IndexedFiles(schema.columns, columns, self._paths, opened, is_local)
        self._pruning = FilePruning(columns, schema, view, scan.predicates, indexes)
        self._stores_elsewhere: set[str] = set()

    def entry_pruning(self) -> EntryPruning | None:
        """What can be left out of a state while its manifests are read."""
        return self._pruning.entry_pruning(whole_entries=self._scan.with_entries)

    def state(self, state: StoredState, created_after_ms: int | None = None) -> PlannedSplits:
        """Plan to read a snapshot; with `created_after_ms` only files made after it."""
        files = files_of_partitions(state.files, self._scan.partitions)
        files = self._pruning.prune(files, state.all_files)
        if created_after_ms is not None:
            created = pc.greater(creation_instants(files), created_after_ms)
            files = files.filter(pc.fill_null(created, False))
        level_min = max(self._scan.level_min, int(self._hides_level_zero()))
        if self._schema.is_primary_key_table and level_min:
            files = files.filter(pc.greater_equal(files.column("level"), level_min))
        return self._ended(self._planned(files, state.deletions, merges=True))

    def changes(self, files: pa.Table) -> PlannedSplits:
        """Plan to read the files that snapshots added: their rows as written, without a merge."""
        return self._ended(self._planned(self._pruning.prune(files), {}, merges=False))

    def difference(self, before: StoredState, after: StoredState) -> PlannedSplits:
        """Plan to read what differs between two snapshots.

        Raises UnsupportedStatementError for data evolution and for `$binlog`.
        """
        old, new = self._pruning.prune(before.files), self._pruning.prune(after.files)
        self._check_difference(old.num_rows + new.num_rows)
        added = new.filter(pc.invert(_named_in(new, old)))
        if not self._schema.is_primary_key_table:
            return self._ended(self._planned(added, after.deletions, merges=False))
        gone = old.filter(pc.invert(_named_in(old, new)))
        sides = [
            self._sections_by_bucket(gone, before.deletions),
            self._sections_by_bucket(added, after.deletions),
        ]
        buckets = dict.fromkeys([*sides[0], *sides[1]])
        splits = tuple(
            DifferenceSplit(sides[0].get(bucket, ()), sides[1].get(bucket, ()))
            for bucket in buckets
        )
        return self._ended(PlannedSplits((), splits, schema_ids(gone) | schema_ids(added)))

    def _ended(self, planned: PlannedSplits) -> PlannedSplits:
        return replace(
            planned,
            pruning_steps=tuple(self._pruning.steps),
            stores_elsewhere=frozenset(self._stores_elsewhere),
        )

    def _check_difference(self, files: int) -> None:
        evolves = self._schema.data_evolution_enabled
        if files and (evolves or self._view.kind is ViewKind.BINLOG):
            what = "a table with data evolution" if evolves else f"`{self._scan.name.table}$binlog`"
            raise UnsupportedStatementError(
                f"The difference between two states can't be read from {what}.",
                hint="Read the changes of the snapshots in between: "
                "'incremental-between-scan-mode' = 'delta' or 'changelog'.",
            )

    def _hides_level_zero(self) -> bool:
        schema = self._schema
        if (schema.option("batch-scan-mode") or "none") != "none":
            return False
        return schema.engine.keeps_first_row or (
            schema.deletion_vectors_enabled and not schema.flag("deletion-vectors.merge-on-read")
        )

    def _planned(
        self, files: pa.Table, deletions: _FileDeletions, *, merges: bool
    ) -> PlannedSplits:
        """With `merges` the rows of each key of a primary-key table are merged into one."""
        if self._bucket is not None:
            files = files.filter(pc.equal(files["bucket"], self._bucket))
        if not files.num_rows:
            return PlannedSplits()
        files, groups = by_bucket(files)
        paths = self._paths(files)
        plain = self._plain_groups(files, groups, merges=merges)
        lengths = [len(group) for group in groups]
        of_plain = np.repeat(plain, lengths)
        # Where no row hides another one, statistics of values can prune files.
        useful = np.ones(files.num_rows, dtype=bool)
        if merges and self._schema.is_primary_key_table and plain.any():
            useful = self._pruning.by_values(files, of_plain)
        in_tasks = ~plain | self._need_tasks(files, groups, deletions, merges=merges)
        of_tasks = np.repeat(in_tasks, lengths)
        raw = ~of_tasks & useful
        stored = self._stored(files, np.flatnonzero(of_tasks), paths, deletions)
        ranks = KeyRanks(files, self._schema)
        splits: list[TaskSplit] = []
        for number in np.flatnonzero(in_tasks).tolist():
            group, is_plain = groups[number], plain[number]
            members = list(islice(stored, len(group)))
            if not self._schema.is_primary_key_table:
                splits += self._splits.append(members)
            elif is_plain and merges:
                splits += self._splits.packed(members)
            else:
                splits += self._splits.keyed(members, ranks, group, merges=merges)
        stays = ~of_plain | useful
        if not stays.all():
            self._pruning.note("values", files.filter(pa.array(stays)))
        left: list[TaskSplit] = []
        promoted: list[StoredFile] = []
        for split in splits:
            rest, apart = (split, []) if self._shows_kinds else without_non_overlapping(split)
            if apart and self._view.metadata:  # a raw scan has no buckets and places
                left.append(PlainSplit(tuple(apart)))
            else:
                promoted += apart
            if rest is not None:
                left.append(rest)
        entries = None
        if self._scan.with_entries and not promoted:
            entries = files.filter(pa.array(raw))
        return PlannedSplits(
            raw_files(files, raw, paths, promoted), tuple(left), schema_ids(files), entries=entries
        )

    def _plain_groups(self, files: pa.Table, groups: Sequence[range], *, merges: bool) -> _Bools:
        """For each bucket, whether its stored rows need no merge."""
        schema = self._schema
        if not schema.is_primary_key_table or not merges:
            return np.ones(len(groups), dtype=bool)
        starts = np.array([group.start for group in groups])
        level = np.asarray(files["level"])
        deletes = np.asarray(pc.fill_null(files["delete_row_count"], -1))
        lengths = np.diff(np.append(starts, len(level)))
        merged = np.logical_and.reduceat((level > 0) & (deletes == 0), starts)
        if not (schema.deletion_vectors_enabled or schema.engine.keeps_first_row):
            merged &= np.maximum.reduceat(level, starts) == np.minimum.reduceat(level, starts)
        plain: _Bools = merged | ((lengths == 1) & (deletes[starts] == 0))
        return plain

    def _need_tasks(
        self,
        files: pa.Table,
        groups: Sequence[range],
        deletions: _FileDeletions,
        *,
        merges: bool,
    ) -> _Bools:
        """For each bucket, whether tasks must read it although its rows need no merge."""
        starts = [group.start for group in groups]
        if self._shows_kinds and self._schema.is_primary_key_table:
            if self._by_snapshot and self._view.sequence_numbers:
                return np.ones(len(groups), dtype=bool)  # a raw scan shows those that are stored
            if not merges and not self._scan.unordered:
                return np.ones(len(groups), dtype=bool)
            if not merges and self._view.kind is ViewKind.BINLOG:
                # A raw scan cuts files anywhere, also between the two rows of an update.
                retracts = np.asarray(pc.fill_null(files["delete_row_count"], -1)) != 0
                pairs: _Bools = np.logical_or.reduceat(retracts, starts)
                return pairs
        if self._of_tasks or not deletions:
            return np.full(len(groups), self._of_tasks)
        columns = (files[name].to_pylist() for name in ("partition", "bucket", "file_name"))
        deleted = np.array([key in deletions for key in zip(*columns, strict=True)])
        need_tasks: _Bools = np.logical_or.reduceat(deleted, starts)
        return need_tasks

    def _stored(
        self, files: pa.Table, rows: _Ints, paths: pa.Array, deletions: _FileDeletions
    ) -> Iterator[StoredFile]:
        return iter(stored_files(files, rows, paths, deletions, by_snapshot=self._by_snapshot))

    def _paths(self, files: pa.Table) -> pa.Array:
        self._stores_elsewhere |= stores_elsewhere(files)
        schema = self._schema
        types = [arrow_type(schema.column(key).type) for key in schema.partition_keys]
        return file_paths(files, types, self._first_bucket_folder)

    def _sections_by_bucket(
        self, files: pa.Table, deletions: _FileDeletions
    ) -> dict[tuple[bytes, int], tuple[Section, ...]]:
        if self._bucket is not None:
            files = files.filter(pc.equal(files["bucket"], self._bucket))
        if not files.num_rows:
            return {}
        files, groups = by_bucket(files)
        paths = self._paths(files)
        ranks = KeyRanks(files, self._schema)
        stored = self._stored(files, np.arange(files.num_rows), paths, deletions)
        of_row = list(zip(files["partition"].to_pylist(), files["bucket"].to_pylist(), strict=True))
        return {
            of_row[group.start]: tuple(sections_of(list(islice(stored, len(group))), ranks, group))
            for group in groups
        }


def _named_in(files: pa.Table, others: pa.Table) -> pa.Array:
    names = others["file_name"].combine_chunks()
    return pc.is_in(files["file_name"].combine_chunks(), value_set=names)
