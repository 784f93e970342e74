"""Decides which files of a bucket are read together, and which files need a merge.

The rules are those of Paimon's `MergeTreeSplitGenerator`, `AppendOnlySplitGenerator` and
`IntervalPartition`. Keys are given as ranks: numbers that compare as the keys do.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Deletions:
    """Where a file's deletion vector is stored: `length` bytes at `offset`, by its metadata.

    `rows` counts the deleted rows, None if its writer did not record it.
    """

    path: str
    offset: int
    length: int
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A data file as a task reads it.

    `deleted_rows` counts the stored rows with the kinds -U and -D, None if its writer did not
    record it. `first_row_id` and `write_columns` are set in tables with row tracking and data
    evolution. `sequence_number` replaces the stored numbers of all its rows
    (`sequence.snapshot-ordering`); None keeps them. `bucket` is set where it is shown.
    `commit` is the number of the snapshot that added the file, and its time in milliseconds, where
    these are shown.
    """

    path: str
    format: str
    schema_id: int
    rows: int
    size_bytes: int
    deleted_rows: int | None = None
    level: int = 0
    min_sequence_number: int = 0
    max_sequence_number: int = 0
    first_row_id: int | None = None
    write_columns: tuple[str, ...] | None = None
    deletions: Deletions | None = None
    sequence_number: int | None = None
    bucket: int = 0
    commit: tuple[int, int] | None = None

    @property
    def is_dedicated(self) -> bool:
        """Whether it has one column of some rows only: a blob file or a vector file
        (`BlobFileFormat.isBlobFile`, `VectorType.isVectorStoreFile`)."""
        return self.format == "blob" or ".vector." in self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class RawFiles:
    """Files of one schema and format whose rows are the table's as they are stored."""

    schema_id: int
    format: str
    paths: tuple[str, ...]
    row_counts: tuple[int, ...]
    sizes_bytes: tuple[int, ...]


Section = tuple[tuple[StoredFile, ...], ...]  # sorted runs, whose keys may overlap


@dataclass(frozen=True, slots=True)
class MergeSplit:
    """Sections of one bucket, each merged by key."""

    sections: tuple[Section, ...]

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """The files of all sections."""
        return tuple(file for section in self.sections for run in section for file in run)


@dataclass(frozen=True, slots=True)
class PlainSplit:
    """Files that are read one after the other, without a merge."""

    files: tuple[StoredFile, ...]


@dataclass(frozen=True, slots=True)
class DifferenceSplit:
    """The files of one bucket that only one of two states has: the earlier or the later."""

    before: tuple[Section, ...]
    after: tuple[Section, ...]

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """The files of both sides."""
        return MergeSplit(self.before + self.after).files


@dataclass(frozen=True, slots=True)
class ColumnsSplit:
    """Groups of files that hold different columns of the same rows (data evolution)."""

    groups: tuple[tuple[StoredFile, ...], ...]

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """The files of all groups."""
        return tuple(file for group in self.groups for file in group)


TaskSplit = MergeSplit | PlainSplit | DifferenceSplit | ColumnsSplit


def file_splits(split: TaskSplit) -> tuple[PlainSplit, ...] | None:
    """The split as splits of one file each; None if its rows are put together from several files,
    so that no single file has them. Files of sections need not be merged if they are alone."""
    groups: list[tuple[StoredFile, ...]]
    match split:
        case PlainSplit(files=files):
            groups = [(file,) for file in files]
        case ColumnsSplit(groups=columns):
            groups = list(columns)
        case MergeSplit(sections=sections):
            groups = [tuple(file for run in section for file in run) for section in sections]
            if any(file.deleted_rows != 0 for group in groups for file in group):
                return None
        case DifferenceSplit():
            return None
    if any(len(group) > 1 for group in groups):
        return None
    return tuple(PlainSplit(group) for group in groups)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The least and the greatest key of file number `file`, as ranks."""

    file: int
    least: int
    greatest: int


def sections(files: Sequence[KeyRange]) -> list[list[list[int]]]:
    """Divide the files of a bucket into sections of sorted runs of file numbers.

    Files of two sections share no key. The files of a run do not overlap and are in the order of
    their keys. The runs are in the order in which Java's priority queue holds them, which decides
    the order of rows where runs are read one after the other.
    """
    divided: list[list[list[int]]] = []
    section: list[KeyRange] = []
    bound = 0
    for file in sorted(files, key=lambda f: (f.least, f.greatest)):
        if section and file.least > bound:
            divided.append(_runs(section))
            section = []
        bound = max(bound, file.greatest) if section else file.greatest
        section.append(file)
    if section:
        divided.append(_runs(section))
    return divided


def row_groups(files: Sequence[StoredFile]) -> list[tuple[StoredFile, ...]]:
    """Group files with row ids by the rows that they share, the newest file of a group first, and
    files of single columns (`is_dedicated`) last.

    Source: `DataEvolutionSplitGenerator`, `DataEvolutionSplitRead.mergeRangesAndSort`.
    """
    groups: list[list[StoredFile]] = []
    end = 0
    for file in sorted(files, key=lambda f: (f.first_row_id or 0, -f.max_sequence_number)):
        first = file.first_row_id or 0
        if groups and first < end:
            groups[-1].append(file)
        else:
            groups.append([file])
            end = first
        end = max(end, first + file.rows)
    return [
        tuple(sorted(group, key=lambda f: (f.is_dedicated, -f.max_sequence_number)))
        for group in groups
    ]


def pack_in_order(
    items: Sequence[_T], weight: Callable[[_T], int], capacity: int
) -> list[list[_T]]:
    """Pack items in their order into bins of at most `capacity`. A heavier item gets its own bin.

    Source: `BinPacking.packForOrdered`.
    """
    bins: list[list[_T]] = []
    bin_: list[_T] = []
    full = 0
    for item in items:
        heavy = weight(item)
        if bin_ and full + heavy > capacity:
            bins.append(bin_)
            bin_, full = [], 0
        bin_.append(item)
        full += heavy
    if bin_:
        bins.append(bin_)
    return bins


class _Run:
    """A run in Java's priority queue, ordered by the greatest key so far."""

    def __init__(self, first: KeyRange) -> None:
        self.files = [first]

    def __lt__(self, other: _Run) -> bool:
        return self.files[-1].greatest < other.files[-1].greatest


def _runs(section: Sequence[KeyRange]) -> list[list[int]]:
    queue = [_Run(section[0])]
    for file_range in section[1:]:
        top = _poll(queue)
        if file_range.least > top.files[-1].greatest:
            top.files.append(file_range)
        else:
            _offer(queue, _Run(file_range))
        _offer(queue, top)
    return [[file.file for file in run.files] for run in queue]


def _offer(queue: list[_Run], run: _Run) -> None:
    """`PriorityQueue.siftUp`: the same as heapq's, which also stops at an equal run."""
    heapq.heappush(queue, run)


def _poll(queue: list[_Run]) -> _Run:
    """`PriorityQueue.siftDown`: stops at the first right place, while heapq goes down to a leaf."""
    top = queue[0]
    last = queue.pop()
    if not queue:
        return top
    place = 0
    while (child := 2 * place + 1) < len(queue):
        if child + 1 < len(queue) and queue[child + 1] < queue[child]:
            child += 1
        if not queue[child] < last:
            break
        queue[place] = queue[child]
        place = child
    queue[place] = last
    return top


# The rows of a data-evolution table by the files that hold their columns.


@dataclass(frozen=True, slots=True)
class RowRange:
    """The rows with the ids from `first_row_id` on, and the `files` that hold columns of all of
    them, as `row_groups` orders these. `partition` are the values of the partition columns,
    `folder` is where further files of these rows lie."""

    first_row_id: int
    rows: int
    partition: tuple[Any, ...]
    folder: str
    files: tuple[StoredFile, ...]

    @property
    def next_row_id(self) -> int:
        """The id after those of its rows."""
        return self.first_row_id + self.rows
