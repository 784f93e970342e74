"""Index `range-bitmap`: the sorted distinct values of a column in chunks, and bit slices of their
numbers.

Source: `RangeBitmapFileIndex`, `RangeBitmap`, `ChunkedDictionary`, `FixedLengthChunk`,
`VariableLengthChunk` and `rangebitmap.BitSliceIndexBitmap`.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.file_indexes.values import (
    DistinctValues,
    Pieces,
    big_endian,
    index_values,
    stored_pieces,
)
from paimon_magics.columnar.roaring import roaring_bitmap

_VERSION = 1
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
        header = struct.pack(">bii", _VERSION, len(places), len(values)) + ends
        header += struct.pack(">i", len(dictionary))
        slices = _slices(places, len(values))
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
            chunk = struct.pack(">b", _VERSION) + keys.between(first, first + 1)
            chunk += struct.pack(">iiiii", first, bodies_bytes, end - first - 1, *sizes)
            offsets.append(chunks_bytes)
            chunks.append(chunk)
            bodies.append(body)
            chunks_bytes += len(chunk)
            bodies_bytes += len(body)
            first = end
        header = struct.pack(">biii", _VERSION, len(chunks), 4 * len(chunks), chunks_bytes)
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


def _slices(places: npt.NDArray[np.int32], count: int) -> bytes:
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
    header = struct.pack(">bbii", _VERSION, number, len(rows), 4 * len(table))
    header += struct.pack(f">{len(table)}i", *table)
    return b"".join([struct.pack(">i", len(header)), header, rows, *slices])
