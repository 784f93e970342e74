"""Index `bsi`: for each bit of a column's numbers the rows in which it is set.

Source: `BitSliceIndexBitmapFileIndex` and `BitSliceIndexRoaringBitmap`.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.file_indexes.values import index_values
from paimon_magics.columnar.roaring import roaring_bitmap

__all__ = ["BitSliceIndex"]

_VERSION = 1
_LEAST = -(2**63)

_Longs = npt.NDArray[np.int64]


class BitSliceIndex:
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
    """Whether there are rows, and if so, their bitmaps. The least number is always told as 0."""
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
