"""Collects all file indexes of one data file, batch by batch (`DataFileIndexWriter`).

The index `range-bitmap` is in here too: the sorted distinct values of a column in chunks, and bit
slices of their numbers. Source: `RangeBitmapFileIndex`, `RangeBitmap`, `ChunkedDictionary`,
`FixedLengthChunk`, `VariableLengthChunk` and `rangebitmap.BitSliceIndexBitmap`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.file_indexes.values import (
    DistinctValues,
    Pieces,
    big_endian,
    fast_hashes,
    index_values,
    stored_pieces,
    written_side_by_side,
)
from paimon_magics.columnar.roaring import roaring_bitmap, roaring_bitmaps
from paimon_magics.planning.writes.index_rules import (
    Bitmap,
    BloomFilter,
    FileIndex,
    RangeBitmap,
)

_RANGE_VERSION = 1
_OFFSET_BYTES = 4


class RangeBitmapIndex:
    """Collects a column's values and writes its index. Its chunks take `chunk_bytes` and one
    value."""

    def __init__(self, *, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self._values = DistinctValues()

    def add(self, column: pa.Array) -> None:
        """Take the values of further rows."""
        self._values.add(index_values(column))

    def finish(self) -> bytes | None:
        """The index of all rows; None if all are NULL, because Java's reader then finds only the
        first and the last row."""
        values, places = self._values.sorted_values()
        if not len(values):
            return None
        keys = stored_pieces(values)
        is_fixed = not pa.types.is_large_binary(values.type)
        dictionary = self._dictionary(keys, is_fixed=is_fixed)
        ends = keys.between(0, 1) + keys.between(len(values) - 1, len(values))
        header = struct.pack(">bii", _RANGE_VERSION, len(places), len(values)) + ends
        header += struct.pack(">i", len(dictionary))
        slices = _bit_slices(places, len(values))
        return struct.pack(">i", len(header)) + header + dictionary + slices

    def _dictionary(self, keys: Pieces, *, is_fixed: bool) -> bytes:
        offsets, chunks, bodies = [], [], []
        chunks_bytes = bodies_bytes = first = 0
        while first < len(keys.lengths):
            end = self._end_of_chunk(keys, first, is_fixed=is_fixed)
            others = keys.between(first + 1, end)
            width = int(keys.lengths[first])
            if is_fixed:
                body, sizes = others, (len(others), width)
            else:
                starts = keys.ends[first : end - 1] - int(keys.ends[first])
                table = big_endian(starts.astype(np.int32)).data.tobytes()
                body, sizes = table + others, (len(table), len(others))
            chunk = struct.pack(">b", _RANGE_VERSION) + keys.between(first, first + 1)
            chunk += struct.pack(">iiiii", first, bodies_bytes, end - first - 1, *sizes)
            offsets.append(chunks_bytes)
            chunks.append(chunk)
            bodies.append(body)
            chunks_bytes += len(chunk)
            bodies_bytes += len(body)
            first = end
        header = struct.pack(">biii", _RANGE_VERSION, len(chunks), 4 * len(chunks), chunks_bytes)
        return b"".join(
            [
                struct.pack(">i", len(header)),
                header,
                struct.pack(f">{len(offsets)}i", *offsets),
                *chunks,
                *bodies,
            ]
        )

    def _end_of_chunk(self, keys: Pieces, first: int, *, is_fixed: bool) -> int:
        """Where the chunk that begins with the key `first` ends. Its first key is in its head."""
        ends = keys.ends
        limit = int(ends[first]) + self._chunk_bytes
        end = int(np.searchsorted(ends, limit, side="right"))
        if not is_fixed:
            end = min(end, first + 1 + self._chunk_bytes // _OFFSET_BYTES)
        return end


def _bit_slices(places: npt.NDArray[np.int32], count: int) -> bytes:
    """The bitmaps of the places' bits, and of the rows that are not NULL."""
    there = np.flatnonzero(places >= 0)
    place = places[there]
    number = max((count - 1).bit_length(), 1)
    slices = [roaring_bitmap(there[place >> bit & 1 == 1]) for bit in range(number)]
    rows = roaring_bitmap(there)
    table, offset = [], 0
    for bitmap in slices:
        table += [offset, len(bitmap)]
        offset += len(bitmap)
    header = struct.pack(">bbii", _RANGE_VERSION, number, len(rows), 4 * len(table))
    header += struct.pack(f">{len(table)}i", *table)
    return b"".join([struct.pack(">i", len(header)), header, rows, *slices])


_MARKS_PER_PASS = 2**18


_VERSION = 1
_LEAST = -(2**63)

_Longs = npt.NDArray[np.int64]


_VERSION_1 = 1
_BLOCK_HEAD_BYTES = 4
_NO_LENGTH = -1


_MAGIC = 1493475289347502

_HEAD_BYTES = 8 + 4 + 4  # magic number, version, length of the head
_NAME_BYTES_MAX = 0xFFFF

HEAD_START_BYTES = _HEAD_BYTES
"""How many bytes tell how long the head is."""


class _Index(Protocol):
    def add(self, column: pa.Array) -> None: ...

    def finish(self) -> bytes | None: ...


class IndexCollection:
    """The indexes of the rows of one data file."""

    def __init__(self, indexes: Sequence[FileIndex]) -> None:
        self._indexes = [(index, _begun(index)) for index in indexes]

    def add(self, rows: pa.RecordBatch) -> None:
        """Take further rows of the file; they have the indexed columns. Raises ValueError, with the
        column's name, for a value that an index can't hold."""
        for index, collected in self._indexes:
            column = rows.column(index.column)
            if index.map_key is not None:
                column = pc.map_lookup(column, pa.scalar(index.map_key), "first")
            try:
                collected.add(column)
            except ValueError as error:
                raise ValueError(f"column `{index.name}`: {error}") from error

    def finish(self) -> bytes | None:
        """The bytes of all indexes of the file; None if it has none after all."""
        bodies = [
            (index.name, index.kind, body)
            for index, collected in self._indexes
            if (body := collected.finish()) is not None
        ]
        return _file_index_container(bodies) if bodies else None


def _begun(index: FileIndex) -> _Index:
    rules = index.rules
    if isinstance(rules, BloomFilter):
        return _BloomFilterIndex(items=rules.items, false_positives=rules.false_positives)
    if isinstance(rules, Bitmap):
        return _BitmapIndex(version=rules.version, block_bytes=rules.block_bytes)
    if isinstance(rules, RangeBitmap):
        return RangeBitmapIndex(chunk_bytes=rules.chunk_bytes)
    return _BitSliceIndex()


# Index `bloom-filter`: a set of hashes, which identifies values that are certainly absent.
#
# Source: `BloomFilterFileIndex` and `BloomFilter64`.


class _BloomFilterIndex:
    """Collects a column's values and writes their filter, which is sized for `items` values and
    reports one in 1 / `false_positives` absent values as present."""

    def __init__(self, *, items: int, false_positives: float) -> None:
        self._bits = _bloom_filter_bits(items, false_positives)
        # Java's Math.round: halves upward.
        self._hashes = max(1, math.floor(self._bits / items * math.log(2) + 0.5))
        self._filter = np.zeros(self._bits // 8, dtype=np.uint8)

    def add(self, column: pa.Array) -> None:
        """Take the values of further rows."""
        hashes = fast_hashes(column)
        size = max(1, _MARKS_PER_PASS // self._hashes)
        for start in range(0, len(hashes), size):
            part = hashes[start : start + size]
            low = part.astype(np.uint32).view(np.int32)
            high = (part >> np.uint64(32)).astype(np.uint32).view(np.int32)
            times = np.arange(1, self._hashes + 1, dtype=np.int32)
            mixed = (low[:, None] + times * high[:, None]).reshape(-1)
            places = np.where(mixed < 0, ~mixed, mixed) % np.int32(self._bits)
            marks = np.left_shift(1, places & 7, dtype=np.uint8, casting="unsafe")
            np.bitwise_or.at(self._filter, places >> 3, marks)

    def finish(self) -> bytes:
        """The filter of all rows."""
        return self._hashes.to_bytes(4, "big") + self._filter.tobytes()


def _bloom_filter_bits(items: int, false_positives: float) -> int:
    """How many bits a filter has (`BloomFilter64`)."""
    bits = int(-items * math.log(false_positives) / (math.log(2) * math.log(2)))
    return bits + 8 - bits % 8


# Index `bsi`: for each bit of a column's numbers the rows in which it is set.
#
# Source: `BitSliceIndexBitmapFileIndex` and `BitSliceIndexRoaringBitmap`.


class _BitSliceIndex:
    """Collects a column's numbers and writes their index. Raises ValueError for numbers that it
    can't hold: the least of 64 bits, and decimals of more than 64 bits."""

    def __init__(self) -> None:
        self._numbers: list[_Longs] = []
        self._nulls: list[npt.NDArray[np.bool_]] = []

    def add(self, column: pa.Array) -> None:
        """Take the values of further rows."""
        values = index_values(column)
        numbers = pc.fill_null(values, 0).to_numpy().astype(np.int64)
        if len(numbers) and numbers.min() == _LEAST:
            raise ValueError(f"a bsi index can't hold the number {_LEAST}")
        self._numbers.append(numbers)
        self._nulls.append(np.asarray(values.is_null()))

    def finish(self) -> bytes:
        """The index of all rows."""
        numbers = np.concatenate([np.zeros(0, dtype=np.int64), *self._numbers])
        nulls = np.concatenate([np.zeros(0, dtype=bool), *self._nulls])
        positive = np.flatnonzero(~nulls & (numbers >= 0))
        negative = np.flatnonzero(numbers < 0)
        return b"".join(
            [
                struct.pack(">bi", _VERSION, len(numbers)),
                _slices(positive, numbers[positive]),
                _slices(negative, -numbers[negative]),
            ]
        )


def _slices(rows: _Longs, numbers: _Longs) -> bytes:
    """Whether there are rows, and if so, their bitmaps. The least number is always written as 0."""
    if not len(rows):
        return b"\0"
    greatest = int(numbers.max())
    count = greatest.bit_length()
    return b"".join(
        [
            struct.pack(">?bqq", True, _VERSION, 0, greatest),
            roaring_bitmap(rows),
            struct.pack(">i", count),
            *(roaring_bitmap(rows[numbers >> bit & 1 == 1]) for bit in range(count)),
        ]
    )


# Index `bitmap`: for each value of a column the rows that have it (`BitmapFileIndex`).


class _BitmapIndex:
    """Collects a column's values and writes its index.

    Values are written in ascending order; Java's writer orders bitmaps as a hash table does.
    Version 2 keeps the values in blocks of `block_bytes`.
    """

    def __init__(self, *, version: int, block_bytes: int) -> None:
        self._version = version
        self._block_bytes = block_bytes
        self._values = DistinctValues()

    def add(self, column: pa.Array) -> None:
        """Take the values of further rows."""
        self._values.add(index_values(column))

    def finish(self) -> bytes:
        """The index of all rows."""
        values, places = self._values.sorted_values()
        nulls = np.flatnonzero(places < 0)
        null_bitmap = roaring_bitmap(nulls)
        rows = np.argsort(places, kind="stable")[len(nulls) :]
        counts = np.bincount(places[rows], minlength=len(values))
        several = counts > 1
        bodies, sizes = _bitmaps(rows[np.repeat(several, counts)], counts[several])
        if len(nulls) > 1:
            bodies = null_bitmap + bodies
        offsets = np.empty(len(values), dtype=np.int32)
        offsets[~several] = -1 - rows[np.repeat(~several, counts)]  # the row itself
        offsets[several] = np.cumsum(sizes) - sizes + (len(null_bitmap) if len(nulls) > 1 else 0)
        lengths = np.full(len(values), _NO_LENGTH, dtype=np.int32)
        lengths[several] = sizes
        head = struct.pack(">bii?", self._version, len(places), len(values), bool(len(nulls)))
        null_offset = -1 - int(nulls[0]) if len(nulls) == 1 else 0
        keys = stored_pieces(values)
        if self._version == _VERSION_1:
            if len(nulls):
                head += struct.pack(">i", null_offset)
            entries = written_side_by_side(keys, big_endian(offsets)).data.tobytes()
        else:
            if len(nulls):
                head += struct.pack(">ii", null_offset, len(null_bitmap))
            entries = self._blocks(keys, offsets, lengths)
        return head + entries + bodies

    def _blocks(
        self, keys: Pieces, offsets: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32]
    ) -> bytes:
        """The table of blocks and the blocks (`BitmapFileIndexMetaV2.serialize`). A block may
        exceed the limit because of a single value; Java's writer fails there."""
        entries = written_side_by_side(keys, big_endian(offsets), big_endian(lengths))
        ends = entries.ends
        table, blocks, place, first = [], [], 0, 0
        while first < len(ends):
            before = int(ends[first - 1]) if first else 0
            limit = before + self._block_bytes - _BLOCK_HEAD_BYTES
            end = max(int(np.searchsorted(ends, limit, side="right")), first + 1)
            block = struct.pack(">i", end - first) + entries.between(first, end)
            table.append(keys.between(first, first + 1) + struct.pack(">i", place))
            blocks.append(block)
            place, first = place + len(block), end
        return b"".join([struct.pack(">i", len(table)), *table, struct.pack(">i", place), *blocks])


def _bitmaps(
    rows: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> tuple[bytes, npt.NDArray[np.int64]]:
    """The bitmaps of groups of rows, each of `counts` rows, and the length of each bitmap."""
    if not len(rows):
        return b"", np.zeros(0, dtype=np.int64)
    return roaring_bitmaps(rows, np.cumsum(counts) - counts)


# The container of a file's indexes: their columns, kinds and bytes (`FileIndexFormat`).


def _file_index_container(indexes: Iterable[tuple[str, str, bytes]]) -> bytes:
    """The bytes of a file index. Each of `indexes` has the column, or the MAP column with a key as
    `column[key]`, the index's type, and its bytes."""
    columns: dict[str, dict[str, bytes]] = {}
    for column, kind, body in indexes:
        columns.setdefault(column, {})[kind] = body
    names = {name: _java_text(name) for name in columns}
    kinds = {kind: _java_text(kind) for column in columns.values() for kind in column}
    length = _HEAD_BYTES + 4 + 4
    for name, indexes_of in columns.items():
        length += len(names[name]) + 4 + sum(len(kinds[kind]) + 8 for kind in indexes_of)
    parts = [struct.pack(">qiii", _MAGIC, _VERSION, length, len(columns))]
    bodies: list[bytes] = []
    place = length
    for name, indexes_of in columns.items():
        parts += [names[name], struct.pack(">i", len(indexes_of))]
        for kind, body in indexes_of.items():
            parts += [kinds[kind], struct.pack(">ii", place, len(body))]
            bodies.append(body)
            place += len(body)
    return b"".join([*parts, struct.pack(">i", 0), *bodies])


def head_bytes(start: bytes) -> int | None:
    """The length of the head of a file index, from its first HEAD_START_BYTES; None if it is not a
    file index of a known version."""
    if len(start) < _HEAD_BYTES:
        return None
    magic, version, length = struct.unpack_from(">qii", start)
    return length if (magic, version) == (_MAGIC, _VERSION) and length > _HEAD_BYTES else None


def indexes_in(head: bytes) -> dict[tuple[bytes, str], tuple[int, int]]:
    """Where in the file index with that head each index lies: its place and its length, by the
    column's name as `stored_name` spells it, and the kind. Raises ValueError for a damaged head."""
    places = {}
    place = _HEAD_BYTES
    try:
        (columns,) = struct.unpack_from(">i", head, place)
        place += 4
        for _ in range(columns):
            name, place = _text_at(head, place)
            (kinds,) = struct.unpack_from(">i", head, place)
            place += 4
            for _ in range(kinds):
                kind, place = _text_at(head, place)
                start, length = struct.unpack_from(">ii", head, place)
                places[name, kind.decode("ascii", "replace")] = start, length
                place += 8
    except struct.error as error:
        raise ValueError("the head of a file index is damaged") from error
    return places


def stored_name(column: str) -> bytes:
    """How a file index spells the name of a column."""
    return _java_text(column)[2:]


def _text_at(head: bytes, place: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">H", head, place)
    end = place + 2 + length
    return head[place + 2 : end], end


def _java_text(text: str) -> bytes:
    """A text as `DataOutput.writeUTF` writes it: NUL in two bytes, surrogates one by one."""
    units = text.encode("utf-16-be", "surrogatepass")
    stored = b"".join(
        b"\xc0\x80"
        if unit == b"\0\0"
        else unit.decode("utf-16-be", "surrogatepass").encode("utf-8", "surrogatepass")
        for unit in (units[place : place + 2] for place in range(0, len(units), 2))
    )
    if len(stored) > _NAME_BYTES_MAX:
        raise ValueError(f"`{text[:40]}…` is too long for the name of an indexed column")
    return struct.pack(">H", len(stored)) + stored
