"""Sorts the rows that a compaction writes, so that nearby rows are in one file and bounds of files
are tighter.

Memory is bounded: rows beyond `memory_bytes` are sorted on disk. A sample of their keys gives the
bounds of ranges. Pieces of the input are sorted, cut at the bounds and written to local files. Then
each range is put together and sorted. Several tasks can sort one input, each some of the ranges:
the same input has the same bounds in every task. If the process dies, the operating system removes
its temporary files. Light to import, because Spark's tasks load it.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.clustering import hilbert_keys, row_order, z_order_keys
from paimon_magics.columnar.key_numbers import in_java_order
from paimon_magics.planning.compaction.sort_orders import SortOrder

SORT_MEMORY_BYTES = 128 << 20
"""The most that rows and their keys take which a task sorts at once; copies take as much again."""

_BATCH_ROWS = 131_072
_SAMPLED_ROWS = 200  # for each range: their sizes then differ by a tenth or so
_RANGES = 2  # for each piece of the input: then one is small enough even if the sample misleads
_RANGES_MAX = 10_000
_KEY_BYTES = 64  # a row's key, its number, and what they are made from

_Longs = npt.NDArray[np.int64]
_Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class SortInput:
    """Rows to sort: `read` gives them, all columns or those named alone, in the same order each
    time; they are `row_count`. Of `shares` parts of the sorted rows only the part `share` is
    wanted."""

    read: Callable[[Sequence[str] | None], _Batches]
    row_count: int
    share: int = 0
    shares: int = 1


def sorted_rows(
    rows: SortInput, order: SortOrder, memory_bytes: int = SORT_MEMORY_BYTES
) -> _Batches:
    """The rows sorted; rows of equal order stay as they are. Raises OSError where the machine's
    folder for temporary files is full."""
    batches = rows.read(None)
    piece = _piece(batches, memory_bytes)
    if piece is None:
        return
    following = next(batches, None)
    if following is None and rows.shares == 1:
        yield from _batches(piece.take(pa.array(row_order(_keys(piece, order)))))
        return
    batches = chain([] if following is None else [following], batches)
    pieces = rows.row_count * _weight(piece) / piece.num_rows / memory_bytes
    count = max(rows.shares, math.ceil(_RANGES * pieces))
    bounds = _bounds(rows, order, min(count, _RANGES_MAX))
    wanted = bounds.of_share(rows.share, rows.shares)
    with tempfile.TemporaryDirectory(prefix="paimon-magics-sort-") as folder:
        spilled = _Spilled(Path(folder), wanted)
        while piece is not None:
            spilled.add(piece, bounds.cut(_keys(piece, order)))
            piece = _piece(batches, memory_bytes)
        for number in wanted:
            sorted_range = spilled.range(number)
            if sorted_range is None:
                continue
            if not bounds.is_single_key[number]:
                sorted_range = sorted_range.take(pa.array(row_order(_keys(sorted_range, order))))
            yield from _batches(sorted_range)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The bounds of ranges of keys: each begins at a key of `starts`, or behind one of `ends`, the
    keys that have a range of their own."""

    starts: list[pa.Array]
    ends: list[pa.Array]
    is_single_key: tuple[bool, ...]

    def of_share(self, share: int, shares: int) -> range:
        """The ranges of a part."""
        count = len(self.is_single_key)
        return range(share * count // shares, (share + 1) * count // shares)

    def cut(self, keys: Sequence[pa.Array]) -> tuple[_Longs, _Longs]:
        """The order of rows with these keys, and where each range ends in it."""
        before, rows = len(self.starts[0]), len(keys[0])
        # The sort keeps the order of what is equal: rows lie behind starts and before ends.
        columns = [
            pa.concat_arrays(list(parts))
            for parts in zip(self.starts, keys, self.ends, strict=True)
        ]
        order = row_order(columns)
        is_row = (order >= before) & (order < before + rows)
        ends = np.cumsum(is_row)[~is_row]
        return order[is_row] - before, np.append(ends, rows)


def _bounds(rows: SortInput, order: SortOrder, count: int) -> _Bounds:
    """Bounds of about `count` ranges with as many rows each. A key that would begin several ranges
    becomes a separate range."""
    step = max(rows.row_count // (count * _SAMPLED_ROWS), 1)
    sampled, place = [], 0
    for batch in rows.read(order.columns):
        chosen = np.arange(-place % step, batch.num_rows, step)
        sampled.append(batch.take(pa.array(chosen)))
        place += batch.num_rows
    keys = _keys(pa.Table.from_batches(sampled), order)
    sorted_places = row_order(keys)
    chosen = sorted_places[np.arange(1, count) * len(sorted_places) // count]
    cuts = [key.take(pa.array(chosen)) for key in keys]
    comparable = [in_java_order(key).to_pylist() for key in cuts]
    values = list(zip(*comparable, strict=True))
    first_of = [at for at in range(len(values)) if not at or values[at] != values[at - 1]]
    repeated = [at for at, end in pairwise([*first_of, len(values)]) if end - at > 1]
    single = {at: at in repeated for at in first_of}
    is_single_key = [False]
    for at in first_of:
        is_single_key += [True, False] if single[at] else [False]
    return _Bounds(
        [key.take(pa.array(first_of, pa.int64())) for key in cuts],
        [key.take(pa.array(repeated, pa.int64())) for key in cuts],
        tuple(is_single_key),
    )


class _Spilled:
    """Sorted pieces of the input in files of `folder`, each cut into ranges, of which those in
    `wanted` are kept."""

    def __init__(self, folder: Path, wanted: range) -> None:
        self._folder = folder
        self._wanted = wanted
        self._parts: dict[int, list[tuple[Path, int]]] = {number: [] for number in wanted}
        self._count = 0

    def add(self, piece: pa.Table, cut: tuple[_Longs, _Longs]) -> None:
        order, ends = cut
        path = self._folder / str(self._count)
        self._count += 1
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        written = 0
        with (
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_file(sink, piece.schema, options=options) as writer,
        ):
            for number in self._wanted:
                start, end = int(ends[number - 1]) if number else 0, int(ends[number])
                if start == end:
                    continue
                for batch in _batches(piece.take(pa.array(order[start:end]))):
                    writer.write_batch(batch)
                    self._parts[number].append((path, written))
                    written += 1

    def range(self, number: int) -> pa.Table | None:
        """The rows of a range, piece by piece; None if it has none."""
        batches = []
        for path, place in self._parts.pop(number):
            with pa.OSFile(str(path)) as source:
                batches.append(pa.ipc.open_file(source).get_batch(place))
        return pa.Table.from_batches(batches).combine_chunks() if batches else None


def _piece(batches: _Batches, size_bytes: int) -> pa.Table | None:
    """The next rows, which take about this much memory; None if there are no more."""
    waiting: list[pa.RecordBatch] = []
    total = 0
    while total < size_bytes:
        batch = next(batches, None)
        if batch is None:
            break
        waiting.append(batch)
        total += _weight(batch)
    return pa.Table.from_batches(waiting).combine_chunks() if waiting else None


def _weight(rows: pa.Table | pa.RecordBatch) -> int:
    """The memory that rows take while they are sorted."""
    return int(rows.nbytes + _KEY_BYTES * rows.num_rows)


def _batches(rows: pa.Table) -> _Batches:
    for start in range(0, rows.num_rows, _BATCH_ROWS):
        yield from rows.slice(start, _BATCH_ROWS).combine_chunks().to_batches()


def _keys(rows: pa.Table, order: SortOrder) -> list[pa.Array]:
    """The columns by which rows are sorted."""
    columns = [_single(rows[name]) for name in order.columns]
    match order.strategy:
        case "zorder":
            return [z_order_keys(columns, var_length_bytes=order.var_length_bytes)]
        case "hilbert":
            return [hilbert_keys(columns)]
    return columns


def _single(column: pa.ChunkedArray) -> pa.Array:
    """The column in one piece. Texts have 64-bit offsets: of all pieces, since 2 GiB are too
    little."""
    if pa.types.is_string(column.type):
        column = column.cast(pa.large_string())
    elif pa.types.is_binary(column.type):
        column = column.cast(pa.large_binary())
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
