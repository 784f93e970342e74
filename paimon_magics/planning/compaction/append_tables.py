"""Selects the files of an append table that are rewritten together.

Without buckets any files of a partition may be: they are packed by size
(`AppendCompactCoordinator`). In buckets rows keep the order in which they were written: only files
that follow each other are (`BucketedAppendCompactManager`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paimon_magics.errors import TableDamagedError
from paimon_magics.planning.options.values import double_value, integer_value, memory_size_bytes
from paimon_magics.planning.schemas.table_schema import TableSchema

_TARGET_BYTES = 256 << 20
_FULL_FILES_MIN = 3  # BucketedAppendCompactManager.FULL_COMPACT_MIN_FILE


@dataclass(frozen=True, slots=True)
class AppendFile:
    """A data file as compaction sees it.

    `vector_file` is the index file that holds its deletion vector, None without one;
    `deleted_rows` counts the rows that the vector marks, None if unknown.
    """

    name: str
    size_bytes: int
    rows: int = 0
    min_sequence_number: int = 0
    vector_file: str | None = None
    deleted_rows: int | None = None


@dataclass(frozen=True, slots=True)
class AppendRules:
    """The table options that decide what is rewritten; a file below `small_bytes` is small."""

    target_bytes: int = _TARGET_BYTES
    small_file_ratio: float = 0.7
    open_file_cost_bytes: int = 4 << 20
    file_count_min: int = 5
    file_count_max: int = 100_000
    delete_ratio_max: float = 0.2
    has_deletion_vectors: bool = False
    rewrites_all_files: bool = False

    @classmethod
    def of(cls, schema: TableSchema) -> AppendRules:
        """The options of a table. Raises InvalidTableError for a value that can't be read."""

        return cls(
            target_bytes=schema.parsed("target-file-size", memory_size_bytes, _TARGET_BYTES),
            small_file_ratio=schema.parsed("compaction.small-file-ratio", double_value, 0.0),
            open_file_cost_bytes=schema.parsed("source.split.open-file-cost", memory_size_bytes, 0),
            file_count_min=schema.parsed("compaction.min.file-num", integer_value, 0),
            file_count_max=schema.parsed("compaction.file-num-limit", integer_value, 0),
            delete_ratio_max=schema.parsed("compaction.delete-ratio-threshold", double_value, 0.0),
            has_deletion_vectors=schema.flag("deletion-vectors.enabled"),
            rewrites_all_files=schema.flag("compaction.force-rewrite-all-files"),
        )

    @property
    def small_bytes(self) -> int:
        """`CoreOptions.compactionFileSize`."""
        return int(self.target_bytes * self.small_file_ratio)


def packed_files(files: Iterable[AppendFile], rules: AppendRules) -> list[tuple[AppendFile, ...]]:
    """The groups of a partition's files that are rewritten, each into files of the target size.

    Small files, and those that lost many rows, are packed from the smallest on until a group has
    twice the target size; too few left over stay. Files whose deletion vectors are in one index
    file go together, since their group rewrites it, and never stay. Source:
    `AppendCompactCoordinator.pack`, `.packInDeletionVectorVMode`.
    """
    chosen = [file for file in files if _is_worth_it(file, rules)][: rules.file_count_max]
    if not rules.has_deletion_vectors:
        return _packed([[file] for file in chosen], rules, rest_min=rules.file_count_min)
    by_vectors: dict[str, list[AppendFile]] = {}
    plain = []
    for file in chosen:
        if file.vector_file is None:
            plain.append(file)
        else:
            by_vectors.setdefault(file.vector_file, []).append(file)
    groups = _packed(list(by_vectors.values()), rules, rest_min=1)
    if len(plain) > 1:
        groups += _packed([[file] for file in plain], rules, rest_min=rules.file_count_min)
    return groups


def window_of_files(files: Iterable[AppendFile], rules: AppendRules) -> tuple[AppendFile, ...]:
    """The files of a bucket that a writer rewrites after a flush: from the oldest on, the first
    that are many enough and follow each other within twice the target size; () without any.

    Source: `BucketedAppendCompactManager.pickCompactBefore`.
    """
    window: list[AppendFile] = []
    size = 0
    for file in _by_age(files):
        window.append(file)
        size += file.size_bytes
        if len(window) >= rules.file_count_min:
            return tuple(window)
        if size >= 2 * rules.target_bytes:
            size -= window.pop(0).size_bytes
    return ()


def files_in_order(files: Iterable[AppendFile], rules: AppendRules) -> tuple[AppendFile, ...]:
    """The files of a bucket that a full compaction rewrites, the oldest first; () for none.

    Large files at the beginning stay, unless they have deleted rows. Without deletion vectors the
    rest stays, too, unless it is three files or more, most of them small. Source:
    `BucketedAppendCompactManager.triggerFullCompaction`, `FullCompactTask`.
    """
    ordered = _by_age(files)
    if rules.rewrites_all_files:
        return tuple(ordered)
    if not rules.has_deletion_vectors and len(ordered) < _FULL_FILES_MIN:
        return ()
    begin = 0
    while begin < len(ordered) and not (
        ordered[begin].size_bytes < rules.small_bytes or ordered[begin].vector_file is not None
    ):
        begin += 1
    rest = ordered[begin:]
    if rules.has_deletion_vectors:
        return tuple(rest)
    small = sum(file.size_bytes < rules.small_bytes for file in rest)
    return tuple(rest) if len(rest) >= _FULL_FILES_MIN and 2 * small > len(rest) else ()


def _is_worth_it(file: AppendFile, rules: AppendRules) -> bool:
    """`AppendCompactCoordinator.shouldCompact`."""
    if file.size_bytes < rules.small_bytes:
        return True
    if not rules.has_deletion_vectors or file.vector_file is None:
        return False
    return file.deleted_rows is None or file.deleted_rows > file.rows * rules.delete_ratio_max


def _packed(
    groups: Sequence[Sequence[AppendFile]], rules: AppendRules, *, rest_min: int
) -> list[tuple[AppendFile, ...]]:
    """Whole groups in bins, the smallest first; the remaining groups form a bin if they have at
    least `rest_min` files."""
    bins = []
    bin_: list[AppendFile] = []
    size = 0
    for group in sorted(groups, key=lambda g: sum(file.size_bytes for file in g)):
        bin_ += group
        size += sum(file.size_bytes + rules.open_file_cost_bytes for file in group)
        if len(bin_) > 1 and size >= 2 * rules.target_bytes:
            bins.append(tuple(bin_))
            bin_, size = [], 0
    if bin_ and len(bin_) >= rest_min:
        bins.append(tuple(bin_))
    return bins


def _by_age(files: Iterable[AppendFile]) -> list[AppendFile]:
    return sorted(files, key=lambda file: file.min_sequence_number)


# Selects the files of a data-evolution table that are rewritten together.
#
# Files that hold columns of the same rows become one, and so do small files whose rows follow each
# other: the rows keep their ids, which are counted from the first one of their file.
#
# Source: `DataEvolutionCompactCoordinator` without blob and vector files, which stay as they are.


@dataclass(frozen=True, slots=True)
class RowRangeFile:
    """A data file of some columns: the rows with the ids from `first_row_id` on. `place` is the
    caller's number of it."""

    place: int
    first_row_id: int
    rows: int
    size_bytes: int

    @property
    def next_row_id(self) -> int:
        """The id after those of its rows."""
        return self.first_row_id + self.rows


def row_range_bins(files: Iterable[RowRangeFile], rules: AppendRules) -> list[tuple[int, ...]]:
    """The places of the files of a partition that become one file each, in the order of their row
    ids.

    Files of the same rows stay together. Such groups are packed in the order of their rows, without
    a gap between them, until they have more than the target size; bins of fewer than
    `compaction.min.file-num` files stay. Raises TableDamagedError for files that share only some of
    their rows.
    """
    bins: list[list[RowRangeFile]] = []
    bin_: list[RowRangeFile] = []
    weight = 0
    for group in _groups(files):
        own = sum(max(file.size_bytes, rules.open_file_cost_bytes) for file in group)
        if bin_ and (bin_[-1].next_row_id < group[0].first_row_id or own > rules.target_bytes):
            bins.append(bin_)
            bin_, weight = [], 0
        bin_ += group
        weight += own
        if weight > rules.target_bytes:
            bins.append(bin_)
            bin_, weight = [], 0
    bins.append(bin_)
    # A single file would be rewritten unchanged.
    least = max(rules.file_count_min, 2)
    return [tuple(file.place for file in group) for group in bins if len(group) >= least]


def _groups(files: Iterable[RowRangeFile]) -> list[Sequence[RowRangeFile]]:
    """The files of the same rows, in the order of these."""
    groups: list[list[RowRangeFile]] = []
    for file in sorted(files, key=lambda each: (each.first_row_id, each.rows, each.place)):
        if not groups or file.first_row_id >= groups[-1][0].next_row_id:
            groups.append([file])
            continue
        before = groups[-1][0]
        if (before.first_row_id, before.rows) != (file.first_row_id, file.rows):
            raise TableDamagedError(
                "Two data files share some of their rows: one has the row ids "
                f"{before.first_row_id} to {before.next_row_id - 1}, the other {file.first_row_id} "
                f"to {file.next_row_id - 1}.",
                hint="Files that share rows must have all of them in common. Roll back to a "
                "snapshot without such files.",
            )
        groups[-1].append(file)
    return list(groups)
