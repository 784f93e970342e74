"""Pieces of bytes of different lengths, kept as one array, so that they are put together without a
loop over them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["Pieces", "big_endian", "written_side_by_side"]

Bytes = npt.NDArray[np.uint8]
Lengths = npt.NDArray[np.int64]


class Pieces:
    """Pieces one after the other in `data`; `lengths` and `ends` of each of them."""

    def __init__(self, data: Bytes, lengths: Lengths) -> None:
        self.data = data
        self.lengths = lengths
        self.ends = np.cumsum(lengths)

    def between(self, first: int, end: int) -> bytes:
        """The bytes of the pieces from `first` up to `end`."""
        start = int(self.ends[first - 1]) if first else 0
        return self.data[start : int(self.ends[end - 1]) if end else 0].tobytes()


def big_endian(numbers: npt.NDArray[np.generic]) -> Pieces:
    """Each number as a piece, highest byte first."""
    stored = np.ascontiguousarray(numbers.astype(numbers.dtype.newbyteorder(">")))
    return Pieces(stored.view(np.uint8), np.full(len(stored), stored.dtype.itemsize))


def written_side_by_side(*columns: Pieces) -> Pieces:
    """For each row the pieces of all columns, one after the other."""
    lengths: Lengths = np.zeros(len(columns[0].lengths), dtype=np.int64)
    for column in columns:
        lengths += column.lengths
    data = np.zeros(int(lengths.sum()), dtype=np.uint8)
    starts = np.cumsum(lengths) - lengths
    for column in columns:
        moved = starts - (column.ends - column.lengths)
        data[np.repeat(moved, column.lengths) + np.arange(len(column.data))] = column.data
        starts = starts + column.lengths
    return Pieces(data, lengths)
