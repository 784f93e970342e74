"""Merges sections of a rewrite, with the rows above them that it looks up.

Rows of overlapping files above the output level join a merge as further runs (`columnar`'s
compaction kernels). They are read only as far as the section's own rows go. If their values don't
matter, only their keys are read. Light to import, because Spark's tasks load it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.compaction import Compacted, CompactionRule, compacted
from paimon_magics.columnar.deletion_vectors import united_rows
from paimon_magics.columnar.merging import FILE_BITS, LEVEL, comparable_keys, merge_runs
from paimon_magics.columnar.python_values import beyond_years
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.reads.splits import Section, StoredFile
from paimon_magics.tables.reading.data_files import FileReader

_BLOCK_BYTES = 48 * 2**20  # what the blocks of all runs of a merge hold together
_BLOCK_ROWS_MIN = 4 * 1024
_BLOCK_ROWS_MAX = 256 * 1024
_GROWTH = 4  # how much larger rows are in memory than in files, about
_KEYS_MAX = 100  # so many keys are compared with the bounds of each row group
_ROW = (1 << FILE_BITS) - 1


Key = tuple[Any, ...]


@dataclass
class Marks:
    """Rows of files that are deleted, by the files' names."""

    _parts: dict[str, list[npt.NDArray[np.int64]]] = field(default_factory=dict)

    def add(self, places: npt.NDArray[np.int64], files: Sequence[StoredFile]) -> None:
        """Add ascending PLACEs, whose file numbers are those of `files`."""
        numbers = places >> FILE_BITS
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        for low, high in pairwise([*starts.tolist(), len(places)]):
            name = files[int(numbers[low])].path.rpartition("/")[2]
            self._parts.setdefault(name, []).append(places[low:high] & _ROW)

    def rows(self) -> Mapping[str, npt.NDArray[np.int64]]:
        """The rows of each file, ascending."""
        return {name: united_rows(parts) for name, parts in self._parts.items()}


@dataclass(frozen=True)
class SectionReader:
    """Reads and merges the sections of one rewrite within `bounds`.

    `files` reads all columns with their kinds and sequence numbers.
    """

    files: FileReader
    rule: CompactionRule
    bounds: KeyBounds

    def compacted(self, section: Section, above: Section, marks: Marks) -> Iterator[Compacted]:
        """The compacted rows of a section, in key order. `above` are the runs that are looked up;
        rows of them that are deleted now go to `marks`."""
        rule = self.rule
        reader = replace(self.files, batch_rows=_block_rows((*section, *above)))
        leveled = rule.looks_up or rule.changelog.compacts_fully or rule.merge.looks_up
        runs = [self._run(reader, run, leveled=leveled) for run in section]
        if len(runs) == 1 and not leveled:
            for rows in runs[0]:
                yield Compacted(rule.written(rows))
            return
        stored = tuple(chain.from_iterable(above))
        own = _Own(runs, section, rule.merge.order.keys)
        parts = merge_runs(
            [*own.runs, *self._runs_above(above, own)],
            rule.merge.order,
            lambda groups: compacted(groups, rule),
        )
        for part in parts:
            if part.deleted is not None and len(part.deleted):
                marks.add(part.deleted, stored)
            yield part

    def _runs_above(self, above: Section, own: _Own) -> Iterator[Iterator[pa.RecordBatch]]:
        if not above:
            return
        key = next(f for f in self.files.wanted if f.name == self.rule.merge.order.keys[0])
        reader = replace(
            self.files,
            batch_rows=_block_rows(above),
            conditions=tuple((key, condition) for condition in own.conditions()),
        )
        if not self.rule.looks_up_values:
            names = self.rule.merge.order.keys
            reader = replace(
                reader,
                wanted=tuple(field for field in reader.wanted if field.name in names),
            )
        number = 0
        for run in above:
            yield self._run_above(reader, run, number, own)
            number += len(run)

    def _run_above(
        self, reader: FileReader, run: Sequence[StoredFile], number: int, own: _Own
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a run that is looked up, while there are rows to look up."""
        keys = self.rule.merge.order.keys
        bounds = KeyBounds(own.first, self.bounds.end)
        for place, file in enumerate(run, number):
            placed = replace(reader, first_place=place << FILE_BITS)
            for rows in placed.batches(file):
                if own.is_over:
                    return
                within = _rows_within(rows, keys, bounds)
                if within.num_rows:
                    yield _with_level(within, file)

    def _run(
        self, reader: FileReader, run: Sequence[StoredFile], *, leveled: bool
    ) -> Iterator[pa.RecordBatch]:
        for file in run:
            for rows in reader.batches(file):
                within = _rows_within(rows, self.rule.merge.order.keys, self.bounds)
                if within.num_rows:
                    yield _with_level(within, file) if leveled else within


class _Own:
    """The runs of a section. `first` is their first key, None without any; `is_over` tells that all
    of their rows have been read."""

    def __init__(
        self, runs: Sequence[Iterator[pa.RecordBatch]], section: Section, keys: Sequence[str]
    ) -> None:
        begun = [(next(run, None), run) for run in runs]
        heads = [(head, run) for head, run in begun if head is not None]
        self.first = min((_first_key(head, keys) for head, _ in heads), default=None)
        self.runs = [self._counted(head, run) for head, run in heads]
        self._left = len(self.runs)
        # Whether the first batches are all rows there are.
        self._is_small = all(
            len(files) == 1 and head is not None and head.num_rows == files[0].rows
            for files, (head, _) in zip(section, begun, strict=True)
        )
        self._key = keys[0]
        self._values = [head.column(keys[0]) for head, _ in heads]

    def conditions(self) -> list[ColumnPredicate]:
        """Conditions on the first key column that all rows of these keys meet; none where Python
        has no such values."""
        if not self._values or not _has_simple_order(self._values[0].type):
            return []
        if any(beyond_years(values) is not None for values in self._values):
            return []
        least = min(values[0].as_py() for values in self._values)
        conditions = [ColumnPredicate(self._key, ">=", (least,))]
        if self._is_small:
            greatest = max(values[-1].as_py() for values in self._values)
            conditions.append(ColumnPredicate(self._key, "<=", (greatest,)))
            each = pc.unique(pa.chunked_array(self._values))
            if len(each) <= _KEYS_MAX:
                conditions.append(ColumnPredicate(self._key, "in", tuple(each.to_pylist())))
        return conditions

    @property
    def is_over(self) -> bool:
        return self._left == 0

    def _counted(
        self, head: pa.RecordBatch, run: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        yield head
        yield from run
        self._left -= 1


def _has_simple_order(data_type: pa.DataType) -> bool:
    """Whether statistics and Python order values as Paimon does. Texts are compared by characters
    in Python, which is the order of their bytes in UTF-8."""
    return bool(
        pa.types.is_integer(data_type)
        or pa.types.is_date32(data_type)
        or pa.types.is_string(data_type)
    )


def _with_level(rows: pa.RecordBatch, file: StoredFile) -> pa.RecordBatch:
    level = np.full(rows.num_rows, file.level, dtype=np.int8)
    return rows.append_column(LEVEL, pa.array(level))


def _block_rows(section: Section) -> int:
    """The rows of a block of each run, so that all blocks together have about `_BLOCK_BYTES`."""
    rows = sum(file.rows for run in section for file in run)
    size_bytes = sum(file.size_bytes for run in section for file in run)
    row_bytes = max(size_bytes * _GROWTH // max(rows, 1), 1)
    wanted = _BLOCK_BYTES // row_bytes // max(len(section), 1)
    return int(min(max(wanted, _BLOCK_ROWS_MIN), _BLOCK_ROWS_MAX))


# Ranges of keys by which one bucket is divided among several tasks.
#
# A range begins with its first key and ends before the first key of the next one. Keys compare as
# Paimon's do. Light to import, because Spark's tasks load it.


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """Keys from `first` on, before `end`; None is no bound."""

    first: Key | None = None
    end: Key | None = None


ALL_KEYS = KeyBounds()
"""No bounds."""


def _first_key(rows: pa.RecordBatch, keys: Sequence[str]) -> Key:
    """The key of the first row."""
    return tuple(column[0].as_py() for column in comparable_keys(rows.slice(0, 1), keys))


def _rows_within(rows: pa.RecordBatch, keys: Sequence[str], bounds: KeyBounds) -> pa.RecordBatch:
    """The rows, sorted by `keys`, that lie within the bounds."""
    if bounds.first is None and bounds.end is None:
        return rows
    columns = comparable_keys(rows, keys)
    low = 0 if bounds.first is None else _place(columns, rows.num_rows, bounds.first)
    high = rows.num_rows if bounds.end is None else _place(columns, rows.num_rows, bounds.end)
    return rows.slice(low, max(high - low, 0))


def section_cuts(files: FileReader, keys: Sequence[str], section: Section, count: int) -> list[Key]:
    """Keys that divide the section's rows into about `count` ranges of one size: fewer where rows
    share a key. They come from the largest run, of which the key columns are read."""
    if count < 2:
        return []
    run = max(section, key=lambda files: sum(file.rows for file in files))
    total = sum(file.rows for file in run)
    wanted = [total * i // count for i in range(1, count)]
    cuts: list[Key] = []
    start = 0
    for file in run:
        places = [place - start for place in wanted if start <= place < start + file.rows]
        if places:
            cuts += list(_keys_at(files, keys, file, places))
        start += file.rows
    return sorted(set(cuts))


def _keys_at(
    files: FileReader, keys: Sequence[str], file: StoredFile, places: Sequence[int]
) -> Iterator[Key]:
    start = 0
    left = list(places)
    for rows in files.batches(file):
        columns = comparable_keys(rows, keys)
        while left and left[0] < start + rows.num_rows:
            place = left.pop(0) - start
            yield tuple(column[place].as_py() for column in columns)
        if not left:
            return
        start += rows.num_rows


def _place(columns: Sequence[pa.Array], rows: int, key: Key) -> int:
    """How many of the rows come before `key`."""
    return bisect_left(
        range(rows), key, key=lambda row: tuple(column[row].as_py() for column in columns)
    )
