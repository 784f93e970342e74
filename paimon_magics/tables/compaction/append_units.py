"""Which files of an append table are rewritten, as units that a task can take each.

The files come as Arrow columns. Only those in partitions and buckets with possible work become
objects, so that a table with nothing to do is planned in milliseconds. The rules themselves are in
`planning.compaction.append_tables`. Nothing is read or written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.planning.compaction.append_tables import (
    AppendFile,
    AppendRules,
    RowRangeFile,
    files_in_order,
    packed_files,
    row_range_bins,
    window_of_files,
)
from paimon_magics.planning.reads.splits import Deletions, StoredFile
from paimon_magics.tables.splits.planning import FileKey, StoredState

_Bools = npt.NDArray[np.bool_]
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AppendUnit:
    """Files that one task rewrites in this order. `number` is the unit's place in the plan,
    `bucket` that of the new files, `folder` the bucket's folder if rows have ids. If `shares` tasks
    sort the same files, each writes a part of the rows."""

    number: int
    bucket: int
    files: tuple[StoredFile, ...]
    folder: str = ""
    output_level: int = 0
    share: int = 0
    shares: int = 1

    def parts(self, count: int) -> list[AppendUnit]:
        """The unit divided among some tasks."""
        return [replace(self, share=share, shares=count) for share in range(count)]

    def own_part(self, count: int) -> int:
        """The task's part of a number: together the tasks have all of it."""
        return (self.share + 1) * count // self.shares - self.share * count // self.shares

    @property
    def size_bytes(self) -> int:
        """The size of the files that are read, or of a task's part of them."""
        return self.own_part(sum(file.size_bytes for file in self.files))

    @property
    def rows(self) -> int:
        """The rows that are read, deleted ones among them."""
        return sum(file.rows for file in self.files)

    @property
    def distinct_rows(self) -> int:
        """The rows that the files of a data-evolution table hold columns of: their ids are
        consecutive."""
        ends = [(file.first_row_id or 0) + file.rows for file in self.files]
        return max(ends) - min(file.first_row_id or 0 for file in self.files)


@dataclass(frozen=True, slots=True)
class AppendPicks:
    """The files that are rewritten together, each group as rows of `files` (MANIFEST_ENTRIES), and
    the level of each group's result where that is not 0."""

    files: pa.Table
    groups: tuple[tuple[int, ...], ...] = ()
    levels: tuple[int, ...] = ()


def pick_append_files(
    state: StoredState, rules: AppendRules, *, has_buckets: bool, full: bool
) -> AppendPicks:
    """The files of a snapshot that a compaction rewrites.

    With `has_buckets` rows keep their order within a bucket: with `full` all files of a bucket are
    taken, else what a writer would take after a flush. Without buckets small files of a partition
    are always packed, as by Paimon's `CALL sys.compact`.
    """
    columns = _Columns.of(state, rules)
    if not columns.files.num_rows:
        return AppendPicks(columns.files)
    groups = _bucket_groups(columns, rules, full=full) if has_buckets else _packs(columns, rules)
    return AppendPicks(columns.files, tuple(groups))


def all_append_files(state: StoredState) -> AppendPicks:
    """All files, those of a partition and bucket together."""
    group = _groups(state.files)
    order = np.argsort(group, kind="stable")
    bounds = np.flatnonzero(np.diff(group[order])) + 1
    parts = np.split(order, bounds) if len(order) else []
    return AppendPicks(state.files, tuple(tuple(part.tolist()) for part in parts))


def pick_evolving_files(state: StoredState, rules: AppendRules) -> AppendPicks:
    """The files of a data-evolution table that a compaction rewrites. Raises TableDamagedError for
    files that share only some of their rows."""
    files = state.files
    names = ["file_name", "first_row_id", "row_count", "file_size"]
    parts: dict[int, list[RowRangeFile]] = {}
    columns = [files[name].to_pylist() for name in names]
    for place, (group, name, first, rows, size) in enumerate(
        zip(_groups(files).tolist(), *columns, strict=True)
    ):
        if first is not None and not (name.endswith(".blob") or ".vector." in name):
            parts.setdefault(group, []).append(RowRangeFile(place, first, rows, size))
    bins = (bin_ for part in parts.values() for bin_ in row_range_bins(part, rules))
    return AppendPicks(files, tuple(bins))


@dataclass(frozen=True, slots=True)
class _Columns:
    """Files as columns: group (partition and bucket), size, and what deletion vectors say."""

    files: pa.Table
    group: _Ints
    size_bytes: _Ints
    small: _Bools
    vectors: Sequence[Deletions | None]
    has_vector: _Bools

    @classmethod
    def of(cls, state: StoredState, rules: AppendRules) -> _Columns:
        files = state.files
        size_bytes = np.asarray(files["file_size"]).astype(np.int64)
        vectors = _vectors(files, state.deletions)
        return cls(
            files=files,
            group=_groups(files),
            size_bytes=size_bytes,
            small=size_bytes < rules.small_bytes,
            vectors=vectors,
            has_vector=np.array([vector is not None for vector in vectors], dtype=bool)
            if vectors
            else np.zeros(files.num_rows, dtype=bool),
        )

    def of_groups(self, chosen: _Bools, rows: _Ints) -> Iterator[list[tuple[int, AppendFile]]]:
        """For each of the groups `chosen`: those of its files that are among `rows`, with their
        positions, in their order."""
        rows = rows[chosen[self.group[rows]]]
        rows = rows[np.argsort(self.group[rows], kind="stable")]
        if not len(rows):
            return
        bounds = np.flatnonzero(np.diff(self.group[rows])) + 1
        taken = self.files.select(_NEEDED).take(pa.array(rows)).to_pydict()
        members = []
        for row, name, size, count, least in zip(
            rows.tolist(), *(taken[column] for column in _NEEDED), strict=True
        ):
            vector = self.vectors[row] if self.vectors else None
            file = AppendFile(name, size, count, least)
            if vector is not None:
                file = replace(file, vector_file=vector.path, deleted_rows=vector.rows)
            members.append((row, file))
        for start, stop in pairwise([0, *bounds.tolist(), len(rows)]):
            yield members[start:stop]


_NEEDED = ["file_name", "file_size", "row_count", "min_sequence_number"]


def _packs(columns: _Columns, rules: AppendRules) -> Iterator[tuple[int, ...]]:
    """The groups of files of tables without buckets: `AppendCompactCoordinator`."""
    candidates = columns.small.copy()
    if rules.has_deletion_vectors:
        rows = columns.files["row_count"].to_pylist()
        for place in np.flatnonzero(columns.has_vector).tolist():
            vector = columns.vectors[place]
            assert vector is not None
            lost = vector.rows
            candidates[place] |= lost is None or lost > rows[place] * rules.delete_ratio_max
    # Java looks at the first so many candidates of all partitions.
    chosen = np.flatnonzero(candidates)[: rules.file_count_max]
    number = int(columns.group.max()) + 1
    plain = chosen[~columns.has_vector[chosen]] if rules.has_deletion_vectors else chosen
    counts = np.bincount(columns.group[plain], minlength=number)
    weights = columns.size_bytes[plain] + rules.open_file_cost_bytes
    totals = np.bincount(columns.group[plain], weights=weights, minlength=number)
    useful = (counts >= rules.file_count_min) | ((counts > 1) & (totals >= 2 * rules.target_bytes))
    if rules.has_deletion_vectors:
        marked = chosen[columns.has_vector[chosen]]
        useful |= np.bincount(columns.group[marked], minlength=number) > 0
    for members in columns.of_groups(useful, chosen):
        places = {file.name: row for row, file in members}
        for group in packed_files((file for _, file in members), rules):
            yield tuple(places[file.name] for file in group)


def _bucket_groups(
    columns: _Columns, rules: AppendRules, *, full: bool
) -> Iterator[tuple[int, ...]]:
    """The files of buckets: `BucketedAppendCompactManager`."""
    number = int(columns.group.max()) + 1
    counts = np.bincount(columns.group, minlength=number)
    small = np.bincount(columns.group, weights=columns.small, minlength=number)
    marked = np.bincount(columns.group, weights=columns.has_vector, minlength=number)
    if not full:
        useful = counts >= rules.file_count_min
    elif rules.rewrites_all_files:
        useful = counts > 0
    elif rules.has_deletion_vectors:
        useful = (small > 0) | (marked > 0)
    else:
        useful = (counts > 2) & (small > 1)  # at least three files, of which more than half small
    pick = files_in_order if full else window_of_files
    for members in columns.of_groups(useful, np.arange(len(columns.group))):
        places = {file.name: row for row, file in members}
        group = pick((file for _, file in members), rules)
        if group:
            yield tuple(places[file.name] for file in group)


def _groups(files: pa.Table) -> _Ints:
    """A number for each file, equal for files of one partition and bucket."""
    if not files.num_rows:
        return np.zeros(0, dtype=np.int64)
    partition = files["partition"].combine_chunks().dictionary_encode()
    bucket = np.asarray(files["bucket"]).astype(np.int64)
    least = int(bucket.min())
    span = int(bucket.max()) - least + 1
    codes = np.asarray(partition.indices).astype(np.int64) * span + (bucket - least)
    groups: _Ints = np.unique(codes, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return groups


def _vectors(files: pa.Table, deletions: Mapping[FileKey, Deletions]) -> list[Deletions | None]:
    """The deletion vector of each file; [] where the snapshot has none."""
    if not deletions:
        return []
    columns: list[Any] = [files[name].to_pylist() for name in ("partition", "bucket", "file_name")]
    return [deletions.get(key) for key in zip(*columns, strict=True)]
