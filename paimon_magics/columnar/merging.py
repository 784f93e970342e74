"""Merges sorted runs of a bucket into one record for each key, a block of rows at a time.

Each run yields its rows in the order of their keys. While every run has a block of rows loaded, all
keys up to the least of the blocks' last keys are complete. The rows up to that key are cut off,
sorted once by key and sequence, and handed to the merge. So the runs' blocks limit the memory,
however large the bucket is, and the values of losing rows are only filtered, never sorted.

Sources: `SortMergeReaderWithMinHeap` and `UserDefinedSeqComparator` for the order,
`ReducerMergeFunctionWrapper` for single records, `DeduplicateMergeFunction` and
`FirstRowMergeFunction` for the winners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.key_numbers import in_java_order
from paimon_magics.planning.reads.views import SEQUENCE_NUMBER

SEQUENCE = SEQUENCE_NUMBER
KIND = "_VALUE_KIND"
PLACE = "_PLACE"  # a row's number in its file, above FILE_BITS the file's number
FILE_BITS = 40  # a file has fewer rows than 2 to the power of this
LEVEL = "_LEVEL"  # the level of a row's file

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]
_Merged = TypeVar("_Merged")


@dataclass(frozen=True)
class RunOrder:
    """The order of rows of one key: by the sequence fields, then by SEQUENCE.

    `keys` are never NULL. In sequence fields NULL comes first, even where they are `descending`.
    With `runs_in_sequence`, every row of a run follows all rows of the runs before it, so that
    SEQUENCE is not needed.
    """

    keys: tuple[str, ...]
    sequence_fields: tuple[str, ...] = ()
    descending: bool = False
    runs_in_sequence: bool = False


@dataclass(frozen=True)
class Groups:
    """Rows of several runs, grouped by key.

    `order` sorts the rows of `slices` by key and then by sequence. `starts` are the places in that
    order where the group of each key begins. `met` marks the groups that are merged although they
    have a single row left; None if there are none.
    """

    slices: tuple[pa.RecordBatch, ...]
    order: _Ints
    starts: _Ints
    met: _Bools | None = None

    @property
    def ends(self) -> _Ints:
        """Where each group ends."""
        return np.append(self.starts[1:], len(self.order))

    @property
    def stored_rows(self) -> int:
        """The number of rows in the slices, including rows that `order` leaves out."""
        return sum(batch.num_rows for batch in self.slices)

    @property
    def alone(self) -> _Bools:
        """Marks the groups of a single row, which is not merged at all."""
        alone: _Bools = self.ends - self.starts == 1
        return alone if self.met is None else alone & ~self.met

    def of_latest_levels(self) -> Groups:
        """The groups without the rows that a compaction has merged into other rows of their key.

        Of a key's rows above level 0, only the row of the lowest level counts. Drops LEVEL.
        """
        levels = np.asarray(self.column(LEVEL))[self.order]
        slices = tuple(batch.drop_columns([LEVEL]) for batch in self.slices)
        whole = replace(self, slices=slices)
        above = levels > 0
        number = np.repeat(np.arange(len(self.starts)), self.ends - self.starts)
        if (np.bincount(number[above]) < 2).all():
            return whole
        lowest = np.minimum.reduceat(
            np.where(above, levels, np.iinfo(levels.dtype).max), self.starts
        )
        counts = ~above | (levels == lowest[number])
        starts = np.searchsorted(number[counts], np.arange(len(self.starts)))
        return replace(whole, order=self.order[counts], starts=starts, met=~self.alone)

    def column(self, name: str) -> pa.Array:
        """A column of all rows, in the order of the slices."""
        parts = [batch.column(name) for batch in self.slices]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)

    def kinds(self) -> npt.NDArray[np.int8]:
        """The rows' kinds, in the order of the slices."""
        return np.asarray(self.column(KIND)).astype(np.int8, copy=False)

    def taken(self, rows: _Ints) -> pa.RecordBatch:
        """The rows with the numbers `rows`, in the order of `rows`."""
        schema = self.slices[0].schema
        if len(self.slices) == 1 and np.array_equal(rows, np.arange(self.slices[0].num_rows)):
            return self.slices[0]
        numbers = pa.array(rows)
        return pa.RecordBatch.from_arrays(
            [self.column(name).take(numbers) for name in schema.names], schema=schema
        )

    def filtered(self, rows: _Ints) -> Iterator[pa.RecordBatch]:
        """The rows with the numbers `rows`, in the order of the slices."""
        mask = np.zeros(self.stored_rows, dtype=bool)
        mask[rows] = True
        start = 0
        for batch in self.slices:
            part = mask[start : start + batch.num_rows]
            start += batch.num_rows
            if part.all():
                yield batch
            elif part.any():
                yield batch.filter(pa.array(part))


def is_retract(kinds: npt.NDArray[np.int8]) -> _Bools:
    """Marks the kinds that retract a row: -U and -D."""
    marks: _Bools = (kinds == 1) | (kinds == 3)
    return marks


def last_rows(groups: Groups, *, ignore_retracts: bool) -> _Ints:
    """The number of the row that wins in each group: the last row, or with `ignore_retracts` the
    last row that is not a retract, if any. A single row always wins."""
    last = last_places(groups, ignore_retracts=ignore_retracts)
    return groups.order[last[last >= 0]]


def last_places(groups: Groups, *, ignore_retracts: bool) -> _Ints:
    """The place of each group's winning row in the order of `groups`, as in `last_rows`; -1 if
    there is none."""
    ends = groups.ends
    if not ignore_retracts:
        return ends - 1
    adds = ~is_retract(groups.kinds())[groups.order]
    places = np.where(adds, np.arange(len(adds)), -1)
    last = np.maximum.accumulate(places)[ends - 1]
    last = np.where(groups.alone, groups.starts, last)
    return np.where(last >= groups.starts, last, -1)


def first_rows(groups: Groups) -> _Ints:
    """The number of the first row of each group."""
    return groups.order[groups.starts]


def merge_runs(
    runs: Sequence[Iterator[pa.RecordBatch]],
    order: RunOrder,
    merge: Callable[[Groups], Iterator[_Merged]],
) -> Iterator[_Merged]:
    """The merged rows of overlapping runs, in the form that `merge` returns.

    The batches of a run are in the order of `order.keys`. They have the columns that `order` names,
    SEQUENCE and KIND, and are not empty.
    """
    cursors = [cursor for cursor in (_Cursor(run, order.keys) for run in runs) if cursor.fill()]
    while cursors:
        bound = min(cursor.last_key() for cursor in cursors)
        slices = tuple(part for cursor in cursors if (part := cursor.cut(bound)).num_rows)
        yield from merge(_grouped(slices, order))
        cursors = [cursor for cursor in cursors if cursor.fill()]


class _Cursor:
    """A run with its current block of rows."""

    def __init__(self, run: Iterator[pa.RecordBatch], keys: tuple[str, ...]) -> None:
        self._run = run
        self._keys = keys
        self._block: pa.RecordBatch | None = None
        self._columns: list[pa.Array] = []

    def fill(self) -> bool:
        """Load a block if there are no rows left; return false at the end of the run."""
        while self._block is None or not self._block.num_rows:
            block = next(self._run, None)
            if block is None:
                return False
            self._set(block)
        return True

    def _set(self, block: pa.RecordBatch) -> None:
        self._block = block
        self._columns = comparable_keys(block, self._keys)

    def _key(self, row: int) -> tuple[Any, ...]:
        return tuple(column[row].as_py() for column in self._columns)

    def last_key(self) -> tuple[Any, ...]:
        """The greatest key of the current block."""
        assert self._block is not None
        return self._key(self._block.num_rows - 1)

    def cut(self, bound: tuple[Any, ...]) -> pa.RecordBatch:
        """Remove and return the rows whose key is not greater than `bound`."""
        block = self._block
        assert block is not None
        low, high = 0, block.num_rows
        if self.last_key() <= bound:
            low = high
        while low < high:
            middle = (low + high) // 2
            if self._key(middle) <= bound:
                low = middle + 1
            else:
                high = middle
        self._set(block.slice(low))
        return block.slice(0, low)


def comparable_keys(rows: pa.RecordBatch, keys: Sequence[str]) -> list[pa.Array]:
    """The key columns, as values whose Python order is Paimon's."""
    return [_comparable(rows.column(key)) for key in keys]


def _comparable(column: pa.Array) -> pa.Array:
    """Values whose Python order is Paimon's: texts by their bytes, dates and times as numbers."""
    data_type = column.type
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return column.cast(pa.large_binary())
    if pa.types.is_timestamp(data_type):
        return column.view(pa.int64())
    if pa.types.is_date32(data_type):  # Python has no dates beyond the year 9999
        return column.view(pa.int32())
    return in_java_order(column)


def _grouped(slices: tuple[pa.RecordBatch, ...], order: RunOrder) -> Groups:
    """The groups of slices of runs; no slice has a key twice."""
    if len(slices) == 1:
        rows = np.arange(slices[0].num_rows, dtype=np.int64)
        return Groups(slices, rows, rows)
    slices, in_sequence = _in_sequence(slices, order)
    by_slice = in_sequence and not order.sequence_fields  # those say otherwise where runs don't
    if by_slice and _have_same_keys(slices, order.keys):
        return _side_by_side(slices)
    return _sorted_groups(slices, order, in_sequence=in_sequence)


def _have_same_keys(slices: tuple[pa.RecordBatch, ...], keys: tuple[str, ...]) -> bool:
    first = slices[0]
    return all(
        other.num_rows == first.num_rows
        and all(
            in_java_order(other.column(key)).equals(in_java_order(first.column(key)))
            for key in keys
        )
        for other in slices[1:]
    )


def _side_by_side(slices: tuple[pa.RecordBatch, ...]) -> Groups:
    """The groups of slices that all have the same keys, each once, for example after a table was
    rewritten as a whole. Nothing is sorted or compared."""
    rows = slices[0].num_rows
    order = np.empty((rows, len(slices)), dtype=np.int64)
    for place in range(len(slices)):
        order[:, place] = np.arange(place * rows, (place + 1) * rows)
    starts = np.arange(0, order.size, len(slices), dtype=np.int64)
    return Groups(slices, order.reshape(-1), starts)


def group_rows(slices: tuple[pa.RecordBatch, ...], order: RunOrder) -> Groups:
    """The rows of some batches, grouped by key; a batch may have several rows of one key. The
    batches have the columns that `order` names, SEQUENCE and KIND, and are not empty."""
    slices, in_sequence = _in_sequence(slices, order)
    return _sorted_groups(slices, order, in_sequence=in_sequence)


def _in_sequence(
    slices: tuple[pa.RecordBatch, ...], order: RunOrder
) -> tuple[tuple[pa.RecordBatch, ...], bool]:
    """The slices, perhaps reordered, and whether rows of a key are in the order of their slices."""
    if order.runs_in_sequence:
        return slices, True
    return (slices, False) if order.sequence_fields else _by_sequence(slices)


def _sorted_groups(
    slices: tuple[pa.RecordBatch, ...], order: RunOrder, *, in_sequence: bool
) -> Groups:
    keys = [in_java_order(_joined([batch.column(key) for batch in slices])) for key in order.keys]
    places = _sorted_places(slices, keys, order, in_sequence=in_sequence)
    taken = pa.array(places)
    differ = np.zeros(max(len(places) - 1, 0), dtype=bool)
    for key in keys:
        values = _plain(key)
        if values is not None:
            in_order = values[places]
            differ |= in_order[1:] != in_order[:-1]
        else:
            ordered = key.take(taken)
            differ |= np.asarray(pc.not_equal(ordered.slice(1), ordered.slice(0, len(ordered) - 1)))
    starts = np.concatenate([[0], np.flatnonzero(differ) + 1]).astype(np.int64)
    return Groups(slices, places, starts)


def _by_sequence(slices: tuple[pa.RecordBatch, ...]) -> tuple[tuple[pa.RecordBatch, ...], bool]:
    """The slices sorted by sequence number, and whether their ranges don't overlap."""
    ranges = []
    for batch in slices:
        numbers = np.asarray(batch.column(SEQUENCE))
        ranges.append((int(numbers.min()), int(numbers.max())))
    by_first = sorted(range(len(slices)), key=lambda i: ranges[i])
    apart = all(ranges[before][1] < ranges[after][0] for before, after in pairwise(by_first))
    return tuple(slices[i] for i in by_first), apart


def _sorted_places(
    slices: tuple[pa.RecordBatch, ...],
    keys: list[pa.Array],
    order: RunOrder,
    *,
    in_sequence: bool,
) -> _Ints:
    numbers = _plain(keys[0]) if len(keys) == 1 else None
    if numbers is not None and not order.sequence_fields:
        if in_sequence:
            return np.argsort(numbers, kind="stable")  # a stable sort merges sorted parts
        sequence = np.concatenate([np.asarray(batch.column(SEQUENCE)) for batch in slices])
        return np.lexsort((sequence, numbers))
    columns = {f"k{i}": key for i, key in enumerate(keys)}
    sort_keys = [(name, "ascending", "at_end") for name in columns]
    direction = "descending" if order.descending else "ascending"
    for i, name in enumerate(order.sequence_fields):
        columns[f"s{i}"] = in_java_order(_joined([batch.column(name) for batch in slices]))
        sort_keys.append((f"s{i}", direction, "at_start"))
    if not in_sequence:
        columns["n"] = _joined([batch.column(SEQUENCE) for batch in slices])
        sort_keys.append(("n", "ascending", "at_end"))
    return _stably_sorted(pa.table(columns), sort_keys)


def _stably_sorted(table: pa.Table, sort_keys: list[tuple[str, str, str]]) -> _Ints:
    """Places in the order of the sort keys. Arrow places the NULLs of all keys alike, so a column
    with NULLs is sorted first by whether it is NULL."""
    keys = []
    for name, direction, nulls in sort_keys:
        if table.column(name).null_count:
            first = pc.is_null(table.column(name))
            table = table.append_column(f"{name}_null", first)
            keys.append((f"{name}_null", "descending" if nulls == "at_start" else "ascending"))
        keys.append((name, direction))
    places: _Ints = np.asarray(pc.sort_indices(table, sort_keys=keys)).astype(np.int64)
    return places


def _joined(parts: list[pa.Array]) -> pa.Array:
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _plain(column: pa.Array) -> npt.NDArray[Any] | None:
    """The values as numbers that sort and compare as in Paimon; None for other types."""
    data_type = column.type
    if pa.types.is_integer(data_type):
        return np.asarray(column)
    if pa.types.is_date32(data_type) or pa.types.is_time32(data_type):
        return np.asarray(column.view(pa.int32()))
    if pa.types.is_timestamp(data_type):
        return np.asarray(column.view(pa.int64()))
    return None
