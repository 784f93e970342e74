"""From the files of a state, or of changes, to what Spark scans and what tasks merge.

Files that need no merge are only counted here and come out as paths; splits are made for the rest.
Rules: `SnapshotReaderImpl`, `MergeTreeSplitGenerator`, `AppendOnlySplitGenerator`,
`ReadOptimizedTable`, `IncrementalDeltaStartingScanner`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.utils.file_store_path_factory import canonical_data_file_path

from paimon_magics.columnar.binary_rows import decode_rows
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.definitions import Column, TableDefinition
from paimon_magics.planning.option_values import memory_size_bytes
from paimon_magics.planning.predicates import ColumnPredicate
from paimon_magics.planning.read_points import ScanMode
from paimon_magics.planning.splits import (
    ColumnsSplit,
    Deletions,
    DifferenceSplit,
    KeyRange,
    MergeSplit,
    PlainSplit,
    RawFiles,
    Section,
    StoredFile,
    TaskSplit,
    pack_in_order,
    row_groups,
    sections,
)
from paimon_magics.planning.views import RowView, ViewKind
from paimon_magics.tables.catalog import Table
from paimon_magics.tables.live_files import ManifestFolder, added_files, live_files
from paimon_magics.tables.pruning import (
    in_buckets,
    in_key_ranges,
    in_partitions,
    in_value_ranges,
)
from paimon_magics.tables.schema_changes import definition_of
from paimon_magics.tables.time_travel import Changes, Difference, State, Target
from paimon_magics.tables.types import arrow_type

__all__ = ["FunnelStep", "PlannedSplits", "plan_splits"]

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """How many files, of how many buckets and bytes, are left after `step`."""

    step: str
    files: int
    buckets: int
    size_bytes: int


@dataclass(frozen=True)
class PlannedSplits:
    """What a read consists of. `schema_ids` are those of all files. `funnel` is what was left after
    each step of leaving files out."""

    raw: tuple[RawFiles, ...] = ()
    splits: tuple[TaskSplit, ...] = ()
    schema_ids: frozenset[int] = field(default_factory=frozenset)
    funnel: tuple[FunnelStep, ...] = ()


def plan_splits(
    table: Table,
    definition: TableDefinition,
    target: Target,
    view: RowView,
    folder: ManifestFolder,
    predicates: Sequence[ColumnPredicate] = (),
) -> PlannedSplits:
    """The raw files and the splits of `target`; `definition` is the schema that is read.

    `predicates` are conditions that rows must meet to be of use: files that can't hold such rows
    are left out.
    """
    planner = _Planner(table, definition, view, folder, predicates)
    match target:
        case State():
            found = planner.state(target)
        case Changes():
            found = planner.changes(target)
        case Difference():
            found = planner.difference(target)
    return replace(found, funnel=tuple(planner.funnel))


class _Planner:
    def __init__(
        self,
        table: Table,
        definition: TableDefinition,
        view: RowView,
        folder: ManifestFolder,
        predicates: Sequence[ColumnPredicate],
    ) -> None:
        self._paimon = table.paimon
        self._name = table.name
        self._definition = definition
        self._view = view
        self._folder = folder
        # Arrays of `$binlog` are no values that statistics speak of.
        self._predicates = () if view.kind is ViewKind.BINLOG else tuple(predicates)
        self._shows_kinds = view.keeps_retracts
        self.funnel: list[FunnelStep] = []
        self._target_bytes = self._memory("source.split.target-size")
        self._open_bytes = self._memory("source.split.open-file-cost")

    def _memory(self, key: str) -> int:
        return memory_size_bytes(key, self._definition.option(key) or "")

    def state(self, target: State) -> PlannedSplits:
        if target.snapshot is None:
            return PlannedSplits()
        files = self._seen(live_files(self._folder, target.snapshot))
        if target.created_after_ms is not None:
            created = pc.greater(
                files.column("creation_time").cast(pa.int64()), target.created_after_ms
            )
            files = files.filter(pc.fill_null(created, False))
        if self._definition.is_primary_key_table and self._hides_level_zero():
            files = files.filter(pc.greater(files.column("level"), 0))
        deletions = self._deletions(target.snapshot)
        return self._planned(files, deletions, merges=True)

    def _hides_level_zero(self) -> bool:
        definition = self._definition
        if (definition.option("batch-scan-mode") or "none") != "none":
            return False
        return definition.merge_engine == "first-row" or (
            definition.deletion_vectors_enabled
            and not definition.flag("deletion-vectors.merge-on-read")
        )

    def changes(self, target: Changes) -> PlannedSplits:
        delta = target.mode is ScanMode.DELTA
        lists = [
            snapshot.delta_manifest_list if delta else snapshot.changelog_manifest_list
            for snapshot in target.snapshots
        ]
        files = self._seen(added_files(self._folder, [one for one in lists if one]))
        return self._planned(files, {}, merges=False)

    def difference(self, target: Difference) -> PlannedSplits:
        before = self._seen(live_files(self._folder, target.before))
        after = self._seen(live_files(self._folder, target.after))
        evolves = self._definition.data_evolution_enabled
        if before.num_rows + after.num_rows and (evolves or self._view.kind is ViewKind.BINLOG):
            what = "a table with data evolution" if evolves else f"`{self._name.table}$binlog`"
            raise UnsupportedStatementError(
                f"The difference between two states can't be read from {what}.",
                hint="Read the changes of the snapshots in between: "
                "'incremental-between-scan-mode' = 'delta' or 'changelog'.",
            )
        new = after.filter(pc.invert(_named_in(after, before)))
        if not self._definition.is_primary_key_table:
            return self._planned(new, self._deletions(target.after), merges=False)
        gone = before.filter(pc.invert(_named_in(before, after)))
        sides = [
            self._sections_by_bucket(files, self._deletions(snapshot))
            for files, snapshot in ((gone, target.before), (new, target.after))
        ]
        buckets = dict.fromkeys([*sides[0], *sides[1]])
        splits = tuple(
            DifferenceSplit(sides[0].get(bucket, ()), sides[1].get(bucket, ()))
            for bucket in buckets
        )
        return PlannedSplits((), splits, _schema_ids(gone) | _schema_ids(new))

    def _seen(self, files: pa.Table) -> pa.Table:
        """The files that can hold rows of use; without rows that wait for their bucket, and for
        `$ro` the top level alone."""
        definition, predicates = self._definition, self._predicates
        self._tell("all files", files)
        files = files.filter(pc.greater_equal(files["bucket"], 0))
        if self._view.kind is ViewKind.READ_OPTIMIZED and definition.is_primary_key_table:
            files = files.filter(pc.equal(files["level"], self._top_level()))
            self._tell("the top level", files)
        if not predicates:
            return files
        files = self._kept("partitions", files, in_partitions(files, definition, predicates))
        files = self._kept("buckets", files, in_buckets(files, definition, predicates))
        if definition.is_primary_key_table:
            return self._kept("keys", files, in_key_ranges(files, definition, predicates))
        if definition.data_evolution_enabled:
            return files  # a file has only some columns of its rows
        return self._kept("values", files, self._in_value_ranges(files))

    def _top_level(self) -> int:
        levels = self._definition.option("num-levels")
        trigger = self._definition.option("num-sorted-run.compaction-trigger")
        return int(levels) - 1 if levels else int(trigger or 5)

    def _in_value_ranges(self, files: pa.Table) -> npt.NDArray[np.bool_]:
        definition = self._definition

        def columns_of(schema_id: int) -> Sequence[Column]:
            if schema_id == definition.schema_id:
                return definition.columns
            return definition_of(self._paimon.schema_manager.get_schema(schema_id)).columns

        return in_value_ranges(files, columns_of, definition.columns, self._predicates)

    def _kept(self, step: str, files: pa.Table, kept: npt.NDArray[np.bool_]) -> pa.Table:
        if kept.all():
            return files
        files = files.filter(pa.array(kept))
        self._tell(step, files)
        return files

    def _tell(self, step: str, files: pa.Table) -> None:
        partitions = files["partition"].combine_chunks().dictionary_encode().indices
        buckets = np.asarray(partitions).astype(np.int64) << 32 | np.asarray(files["bucket"])
        size = pc.sum(files["file_size"]).as_py() or 0
        self.funnel.append(FunnelStep(step, files.num_rows, len(np.unique(buckets)), size))

    def _deletions(self, snapshot: Any) -> dict[tuple[bytes, int, str], Deletions]:
        return self._folder.deletions(snapshot.index_manifest)

    def _planned(
        self,
        files: pa.Table,
        deletions: Mapping[tuple[bytes, int, str], Deletions],
        *,
        merges: bool,
    ) -> PlannedSplits:
        """`merges`: rows of one key become one, where the table has a key."""
        if not files.num_rows:
            return PlannedSplits()
        files, groups = _by_bucket(files)
        paths = self._paths(files, groups)
        plain = self._plain_groups(files, groups, merges=merges)
        raw = np.zeros(files.num_rows, dtype=bool)
        # Where no row hides another one, values tell which files are of use.
        useful = np.ones(files.num_rows, dtype=bool)
        if merges and self._definition.is_primary_key_table and plain.any():
            useful = self._in_value_ranges(files)
        splits: list[TaskSplit] = []
        for group, is_plain in zip(groups, plain, strict=True):
            rows = np.arange(group.start, group.stop)
            if is_plain and not self._needs_tasks(files, group, deletions):
                raw[rows] = useful[rows]
                continue
            stored = _stored_files(files, rows, paths, deletions)
            if not self._definition.is_primary_key_table:
                splits += self._append_splits(
                    stored, np.asarray(files["min_sequence_number"])[rows]
                )
            elif is_plain and merges:
                splits += self._packed(stored)
            else:
                splits += self._merge_splits(files, rows, stored, merges=merges)
        kept: list[TaskSplit] = []
        promoted: list[StoredFile] = []
        for split in splits:
            file = None if self._shows_kinds else _alone_without_deletes(split)
            if file is None:
                kept.append(split)
            else:
                promoted.append(file)
        return PlannedSplits(
            _raw_files(files, raw, paths, promoted), tuple(kept), _schema_ids(files)
        )

    def _plain_groups(
        self, files: pa.Table, groups: Sequence[range], *, merges: bool
    ) -> npt.NDArray[np.bool_]:
        """For each bucket, whether its rows are the table's as they are stored."""
        definition = self._definition
        if not definition.is_primary_key_table or not merges:
            return np.ones(len(groups), dtype=bool)
        if self._shows_kinds:
            return np.zeros(len(groups), dtype=bool)
        starts = np.array([group.start for group in groups])
        level = np.asarray(files["level"])
        deletes = np.asarray(pc.fill_null(files["delete_row_count"], -1))
        merged = np.logical_and.reduceat((level > 0) & (deletes == 0), starts)
        if definition.deletion_vectors_enabled or definition.merge_engine == "first-row":
            return merged
        one_level = np.maximum.reduceat(level, starts) == np.minimum.reduceat(level, starts)
        found: npt.NDArray[np.bool_] = merged & one_level
        return found

    def _needs_tasks(
        self,
        files: pa.Table,
        group: range,
        deletions: Mapping[tuple[bytes, int, str], Deletions],
    ) -> bool:
        """Whether rows that need no merge must be read in tasks all the same."""
        if self._shows_kinds and self._definition.is_primary_key_table:
            return True
        if self._definition.data_evolution_enabled or self._view.kind is ViewKind.ROW_TRACKING:
            return True
        if not deletions:
            return False
        partition = files["partition"][group.start].as_py()
        bucket = files["bucket"][group.start].as_py()
        names = files["file_name"].slice(group.start, len(group)).to_pylist()
        return any((partition, bucket, name) in deletions for name in names)

    def _append_splits(self, stored: list[StoredFile], sequence: _Ints) -> Iterator[TaskSplit]:
        if self._definition.data_evolution_enabled:
            yield from self._evolving_splits(stored)
            return
        in_order = [stored[i] for i in np.argsort(sequence, kind="stable")]
        yield from self._packed(in_order)

    def _evolving_splits(self, stored: list[StoredFile]) -> Iterator[TaskSplit]:
        weights = {}
        groups = row_groups(stored)
        for group in groups:
            weights[id(group)] = max(sum(file.size_bytes for file in group), self._open_bytes)
        for part in pack_in_order(groups, lambda group: weights[id(group)], self._target_bytes):
            yield ColumnsSplit(tuple(part))

    def _packed(self, stored: Sequence[StoredFile]) -> Iterator[TaskSplit]:
        for part in pack_in_order(stored, self._weight, self._target_bytes):
            yield PlainSplit(tuple(part))

    def _merge_splits(
        self, files: pa.Table, rows: _Ints, stored: list[StoredFile], *, merges: bool
    ) -> Iterator[TaskSplit]:
        level = np.asarray(files["level"])[rows]
        deletes = np.asarray(pc.fill_null(files["delete_row_count"], 0))[rows]
        fast = self._definition.deletion_vectors_enabled or (
            self._definition.merge_engine == "first-row"
        )
        if ((level > 0) & (deletes == 0)).all() and (fast or len(set(level.tolist())) == 1):
            if merges:
                for part in pack_in_order(stored, self._weight, self._target_bytes):
                    yield MergeSplit(tuple(((file,),) for file in part))
            else:
                yield from self._packed(stored)
            return
        found = self._sections(files, rows, stored)
        weights = {id(one): _section_bytes(one) for one in found}
        for bin_ in pack_in_order(
            found, lambda one: max(weights[id(one)], self._open_bytes), self._target_bytes
        ):
            if merges:
                yield MergeSplit(tuple(bin_))
            else:
                yield PlainSplit(tuple(file for one in bin_ for run in one for file in run))

    def _weight(self, file: StoredFile) -> int:
        return max(file.size_bytes, self._open_bytes)

    def _sections(
        self, files: pa.Table, rows: _Ints, stored: Sequence[StoredFile]
    ) -> list[Section]:
        least, greatest = _key_ranks(files, rows, self._definition)
        ranges = [
            KeyRange(i, int(low), int(high))
            for i, (low, high) in enumerate(zip(least, greatest, strict=True))
        ]
        return [
            tuple(tuple(stored[i] for i in run) for run in section) for section in sections(ranges)
        ]

    def _sections_by_bucket(
        self, files: pa.Table, deletions: Mapping[tuple[bytes, int, str], Deletions]
    ) -> dict[tuple[bytes, int], tuple[Section, ...]]:
        if not files.num_rows:
            return {}
        files, groups = _by_bucket(files)
        paths = self._paths(files, groups)
        found = {}
        for group in groups:
            rows = np.arange(group.start, group.stop)
            stored = _stored_files(files, rows, paths, deletions)
            key = files["partition"][group.start].as_py(), files["bucket"][group.start].as_py()
            found[key] = tuple(self._sections(files, rows, stored))
        return found

    def _paths(self, files: pa.Table, groups: Sequence[range]) -> list[str]:
        partitions = self._partition_values(files, groups)
        names = files["file_name"].to_pylist()
        external = files["external_path"].to_pylist()
        paths: list[str] = []
        for group, partition in zip(groups, partitions, strict=True):
            bucket = files["bucket"][group.start].as_py()
            folder = canonical_data_file_path(self._paimon, partition, bucket, "")
            folder = str(folder).rstrip("/")
            paths += [external[i] or f"{folder}/{names[i]}" for i in group]
        return paths

    def _partition_values(self, files: pa.Table, groups: Sequence[range]) -> list[tuple[Any, ...]]:
        types = [
            arrow_type(self._definition.column(key).type) for key in self._definition.partition_keys
        ]
        firsts = pa.array([group.start for group in groups])
        columns = decode_rows(files["partition"].combine_chunks().take(firsts), types)
        if not columns:
            return [()] * len(groups)
        return list(zip(*(column.to_pylist() for column in columns), strict=True))


def _named_in(files: pa.Table, others: pa.Table) -> pa.Array:
    names = others["file_name"].combine_chunks()
    return pc.is_in(files["file_name"].combine_chunks(), value_set=names)


def _by_bucket(files: pa.Table) -> tuple[pa.Table, list[range]]:
    """The files ordered by partition and bucket, otherwise as they were, and the range of each."""
    partition = files["partition"].combine_chunks().dictionary_encode().indices
    codes = np.asarray(partition).astype(np.int64)
    bucket = np.asarray(files["bucket"]).astype(np.int64)
    order = np.lexsort((bucket, codes))
    codes, bucket = codes[order], bucket[order]
    changes = np.flatnonzero((np.diff(codes) != 0) | (np.diff(bucket) != 0)) + 1
    bounds = [0, *changes.tolist(), len(order)]
    ordered = files.take(pa.array(order)).combine_chunks()
    return ordered, [range(a, b) for a, b in pairwise(bounds)]


def _key_ranks(files: pa.Table, rows: _Ints, definition: TableDefinition) -> tuple[_Ints, _Ints]:
    """The least and greatest keys of files as numbers that compare as the keys do."""
    types = [arrow_type(definition.column(key).type) for key in definition.trimmed_primary_keys]
    taken = pa.array(rows)
    ends = [files[name].combine_chunks().take(taken) for name in ("min_key", "max_key")]
    columns = [
        pa.concat_arrays(list(pair))
        for pair in zip(*(decode_rows(end, types) for end in ends), strict=True)
    ]
    table = pa.table({f"k{i}": column for i, column in enumerate(columns)})
    keys = [(name, "ascending") for name in table.column_names]
    order = np.asarray(pc.sort_indices(table, sort_keys=keys)).astype(np.int64)
    ordered = table.take(pa.array(order))
    differ = np.zeros(len(order), dtype=bool)
    for name in table.column_names:
        column = ordered[name].combine_chunks()
        differ[1:] |= np.asarray(pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)))
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.cumsum(differ)
    return ranks[: len(rows)], ranks[len(rows) :]


def _stored_files(
    files: pa.Table,
    rows: _Ints,
    paths: Sequence[str],
    deletions: Mapping[tuple[bytes, int, str], Deletions],
) -> list[StoredFile]:
    taken = files.slice(int(rows[0]), len(rows))
    columns = [
        taken[name].to_pylist()
        for name in (
            "partition", "bucket", "file_name", "schema_id", "row_count", "file_size",
            "delete_row_count", "max_sequence_number", "first_row_id", "write_cols",
        )
    ]  # fmt: skip
    found = []
    for place, row in enumerate(zip(*columns, strict=True)):
        partition, bucket, name, schema_id, count, size, deleted, sequence, first, written = row
        found.append(
            StoredFile(
                path=paths[int(rows[place])],
                format=_format_of(name),
                schema_id=schema_id,
                rows=count,
                size_bytes=size,
                deleted_rows=deleted,
                max_sequence_number=sequence,
                first_row_id=first,
                write_columns=None if written is None else tuple(written),
                deletions=deletions.get((partition, bucket, name)),
            )
        )
    return found


def _raw_files(
    files: pa.Table, raw: npt.NDArray[np.bool_], paths: Sequence[str], more: Sequence[StoredFile]
) -> tuple[RawFiles, ...]:
    found: dict[tuple[int, str], list[tuple[str, int, int]]] = {}
    places = np.flatnonzero(raw)
    taken = files.filter(pa.array(raw))
    for place, name, schema_id, rows, size in zip(
        places.tolist(),
        taken["file_name"].to_pylist(),
        taken["schema_id"].to_pylist(),
        taken["row_count"].to_pylist(),
        taken["file_size"].to_pylist(),
        strict=True,
    ):
        found.setdefault((schema_id, _format_of(name)), []).append((paths[place], rows, size))
    for file in more:
        found.setdefault((file.schema_id, file.format), []).append(
            (file.path, file.rows, file.size_bytes)
        )
    return tuple(
        RawFiles(
            schema_id=schema_id,
            format=file_format,
            paths=tuple(path for path, _, _ in members),
            row_counts=tuple(rows for _, rows, _ in members),
            sizes_bytes=tuple(size for _, _, size in members),
        )
        for (schema_id, file_format), members in found.items()
    )


def _format_of(name: str) -> str:
    return name.rsplit(".", 1)[-1].lower()


def _section_bytes(section: Section) -> int:
    return sum(file.size_bytes for run in section for file in run)


def _schema_ids(files: pa.Table) -> frozenset[int]:
    return frozenset(pc.unique(files["schema_id"]).to_pylist())


def _alone_without_deletes(split: TaskSplit) -> StoredFile | None:
    """The file of a split that has only one, whose rows are the table's as they are."""
    if not isinstance(split, MergeSplit) or len(split.sections) != 1:
        return None
    ((run, *others),) = split.sections
    if others or len(run) != 1:
        return None
    file = run[0]
    return file if file.deleted_rows == 0 and file.deletions is None else None
