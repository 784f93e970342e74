"""Rewrites the files of an append unit, in a Spark task or in a thread.

Light to import, because Spark's tasks load it. The rows are read with their deletion vectors and in
the form of the table's current schema, and written by one writer, as rows of a statement are. The
driver names the new files in the commit (`append_messages`).
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.clustering import hilbert_keys, row_order, z_order_keys
from paimon_magics.columnar.key_numbers import in_java_order
from paimon_magics.faults import reach
from paimon_magics.planning.compaction.sort_orders import SortOrder
from paimon_magics.planning.compaction.steps import balanced
from paimon_magics.planning.reads.splits import row_groups
from paimon_magics.tables.compaction.append_units import AppendUnit
from paimon_magics.tables.reading.data_files import FileReader
from paimon_magics.tables.reading.evolving_files import side_by_side
from paimon_magics.tables.writing.attempts import writing_attempt
from paimon_magics.tables.writing.key_value_files import KeyValueFiles, KeyValueFileWriter
from paimon_magics.tables.writing.new_files import NewFile
from paimon_magics.tables.writing.write_spec import WriteSpec, Written
from paimon_magics.tables.writing.writer import write_batches

_BUCKET = "__paimon_magics_bucket"
_GROUPS = 3  # for each slot
_SORTED_BYTES_MIN = 64 << 20  # each part of a unit is read whole by the task that sorts a share

Report = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class RewrittenUnit:
    """The result of the writer of the part `share` of the unit `number`: of the native writer and
    similar writers, or of our own writer."""

    number: int
    share: int = 0
    written: Written | None = None
    files: tuple[NewFile, ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows that were written."""
        return sum(file.rows for file in self.files) if self.written is None else self.written.rows


@dataclass(frozen=True)
class AppendRewrite:
    """Rewrites units: small and picklable. `reader` reads whole rows. With `has_buckets` the rows
    of a unit go to its bucket, which is not computed again. With `order` they are sorted. With
    `evolves` files of a unit hold columns of the same rows."""

    reader: FileReader
    output: WriteSpec | RowFiles
    has_buckets: bool
    order: SortOrder | None = None
    evolves: bool = False

    def __call__(self, unit: AppendUnit, report: Report | None = None) -> RewrittenUnit:
        """Rewrite a unit. `report` gets the rows and bytes as they are read. Raises
        TableDamagedError for a file that can't be read, and what `write_batches` raises."""
        rows = self._rows(unit, report or (lambda rows, size_bytes: None))
        if self.order is not None:
            read = partial(self._columns, unit, report or (lambda rows, size_bytes: None))
            rows = sorted_rows(SortInput(read, unit.rows, unit.share, unit.shares), self.order)
        if isinstance(self.output, RowFiles):
            files = self.output.write(unit, rows)
            return RewrittenUnit(unit.number, unit.share, files=files)
        bucket_column = _BUCKET if self.has_buckets else None
        written = write_batches(self.output, rows, bucket_column=bucket_column)
        return RewrittenUnit(unit.number, unit.share, written)

    def _columns(
        self, unit: AppendUnit, report: Report, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a unit, or some columns of them."""
        if columns is None:
            yield from self._rows(unit, lambda *read: report(*map(unit.own_part, read)))
            return
        wanted = tuple(field for field in self.reader.wanted if field.name in columns)
        reader = replace(self.reader, wanted=wanted, with_row_ids=False)
        for file in unit.files:
            yield from reader.batches(file)

    def _rows(self, unit: AppendUnit, report: Report) -> Iterator[pa.RecordBatch]:
        if self.evolves:
            # Deleted rows are written, too: the others have their ids by their places.
            files = [replace(file, deletions=None) for file in unit.files]
            for group in row_groups(files):
                for batch in side_by_side(self.reader, [group]):
                    report(batch.num_rows, 0)
                    yield batch
                report(0, sum(file.size_bytes for file in group))
            return
        for file in unit.files:
            for batch in self.reader.batches(file):
                report(batch.num_rows, 0)
                if not self.has_buckets:
                    yield batch
                    continue
                bucket = np.full(batch.num_rows, unit.bucket, dtype=np.int32)
                yield batch.append_column(_BUCKET, pa.array(bucket))
            report(0, file.size_bytes)


@dataclass(frozen=True)
class AppendUnits:
    """Units divided among the tasks of a job: one after the other in each group."""

    rewrite: AppendRewrite
    groups: tuple[tuple[AppendUnit, ...], ...]

    @classmethod
    def of(cls, rewrite: AppendRewrite, units: Sequence[AppendUnit], slots: int) -> AppendUnits:
        """A few groups of about equal read size for each of `slots`, the largest first: a slot that
        finishes early takes the next group. Large units that are sorted are divided among slots."""
        if rewrite.order is not None:
            part_bytes = sum(unit.size_bytes for unit in units) // max(slots, 1)
            part_bytes = max(part_bytes, _SORTED_BYTES_MIN)
            counts = [max(round(unit.size_bytes / part_bytes), 1) for unit in units]
            units = [
                part
                for unit, count in zip(units, counts, strict=True)
                for part in unit.parts(count)
            ]
        return cls(rewrite, balanced(units, lambda unit: unit.size_bytes, slots * _GROUPS))

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self.groups)

    def run(self, number: int, report: Report) -> list[RewrittenUnit]:
        """Rewrite the units of a group."""
        return [self.rewrite(unit, report) for unit in self.groups[number]]


# Writes the rows of an append unit into files that store the rows' ids and sequence numbers.
#
# The native writer has no such columns. Memory is bounded by a row group. If the process dies,
# files stay that no snapshot names; the transaction's attempt noted their folder, so that they are
# removed when it ends. Light to import, because Spark's tasks load it. Source: `AppendCompactTask`
# with `SpecialFields.rowTypeWithRowTracking` as the type of its writer.


@dataclass(frozen=True)
class RowFiles:
    """How files of rows with ids are written, or of rows with keys `by_level`; small and picklable.

    `partition_keys` are the table's. `stem` begins the names of new files, and `attempts_folder` is
    the stem of the tasks' notes (module `attempts`).
    """

    files: KeyValueFiles
    partition_keys: tuple[str, ...]
    stem: str
    attempts_folder: str | None
    io_options: tuple[tuple[str, str], ...] = ()
    by_level: Mapping[int, KeyValueFiles] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"RowFiles({self.stem})"  # io_options may hold credentials

    def write(self, unit: AppendUnit, batches: Iterable[pa.RecordBatch]) -> tuple[NewFile, ...]:
        """Write the rows of a unit, as one attempt.

        Raises OSError for the store's failures, JobError when the transaction has ended, and what
        `batches` raises; files are deleted then.
        """
        with writing_attempt(self.attempts_folder, self.io_options) as running:
            stem = f"{self.stem}{running.name_part}{unit.number}-{unit.share}"
            files = self.by_level.get(unit.output_level, self.files)
            writer = KeyValueFileWriter(files, unit.folder, stem)
            running.writers.append(writer)
            for count, batch in enumerate(batches):
                if running.id and not count:
                    keys = batch.select(list(self.partition_keys)).slice(0, 1)
                    running.note(keys, [unit.bucket])
                    reach("attempt.noted")
                writer.write(batch)
            return writer.finish()


# Sorts the rows that a compaction writes, so that nearby rows are in one file and bounds of files
# are tighter.
#
# Memory is bounded: rows beyond `memory_bytes` are sorted on disk. A sample of their keys gives
# the bounds of ranges. Pieces of the input are sorted, cut at the bounds and written to local
# files. Then each range is put together and sorted. Several tasks can sort one input, each some of
# the ranges: the same input has the same bounds in every task. If the process dies, the operating
# system removes its temporary files. Light to import, because Spark's tasks load it.


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
