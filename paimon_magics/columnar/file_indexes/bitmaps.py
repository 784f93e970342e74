"""Index `bitmap`: for each value of a column the rows that have it (`BitmapFileIndex`)."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.file_indexes.packing import Pieces, big_endian, written_side_by_side
from paimon_magics.columnar.file_indexes.values import (
    DistinctValues,
    index_values,
    stored_pieces,
)
from paimon_magics.columnar.roaring import roaring_bitmap, roaring_bitmaps

__all__ = ["BitmapIndex"]

_VERSION_1 = 1
_BLOCK_HEAD_BYTES = 4
_NO_LENGTH = -1


class BitmapIndex:
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
        """The table of blocks and the blocks (`BitmapFileIndexMetaV2.serialize`). A block may be
        larger than allowed for the sake of a single value, where Java's writer fails."""
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
    """The bitmaps of groups of rows, of which each has so many, and the bitmaps' bytes."""
    if not len(rows):
        return b"", np.zeros(0, dtype=np.int64)
    return roaring_bitmaps(rows, np.cumsum(counts) - counts)
