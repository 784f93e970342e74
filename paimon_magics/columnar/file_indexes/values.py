"""The values of a column as file indexes store them: numbers, texts, binaries.

Dates and times become their numbers, timestamps milliseconds up to a precision of 3, else
microseconds, decimals their unscaled values. Source: the value mappers of `BitmapFileIndex`,
`BitSliceIndexBitmapFileIndex` and `KeyFactory`, and `FastHash`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.buffers import (
    Bytes,
    Ints,
    bytes_in,
    decimal_words,
    is_bytes,
    stored_numbers,
)
from paimon_magics.columnar.key_numbers import from_java_order, in_java_order

_LONG_DIGITS = 18


def index_values(column: pa.Array) -> pa.Array:
    """The values as whole numbers of their own width, flags as 0 and 1, texts and binaries as
    binaries, floating-point numbers as they are."""
    data_type = column.type
    if is_bytes(data_type):
        return column.cast(pa.large_binary())
    if pa.types.is_decimal(data_type):
        return _unscaled_longs(column)
    numbers = stored_numbers(column)
    if pa.types.is_timestamp(data_type) and data_type.unit == "ns":
        return _floor_divided(numbers, 1000)
    return numbers


def _unscaled_longs(column: pa.Array) -> pa.Array:
    """The unscaled values of decimals. Raises ValueError for one of more than 64 bits."""
    words = decimal_words(column)
    nulls = np.asarray(column.is_null())
    fits = words[:, 1] == words[:, 0] >> 63
    if column.type.precision > _LONG_DIGITS and not np.all(fits | nulls):
        raise ValueError("a bsi index can't hold decimals of more than 64 bits")
    return pa.array(words[:, 0], mask=nulls)


def stored_pieces(values: pa.Array) -> Pieces:
    """The stored form of each value in an index; no value is NULL.

    Numbers are big-endian. Texts follow their length. Source:
    `BitmapFileIndexMeta.getValueWriter`, `KeyFactory.KeySerializer`.
    """
    if not pa.types.is_large_binary(values.type):
        return big_endian(values.to_numpy(zero_copy_only=False))
    data, offsets = bytes_in(values)
    texts = Pieces(data[offsets[0] : offsets[-1]], np.diff(offsets))
    return written_side_by_side(big_endian(texts.lengths.astype(np.int32)), texts)


class DistinctValues:
    """Collects the distinct values of a column, and the value of each row."""

    def __init__(self) -> None:
        self._chunks: list[pa.DictionaryArray] = []
        self._type: pa.DataType | None = None

    def add(self, values: pa.Array) -> None:
        """Take the values of further rows (of `index_values`)."""
        self._type = values.type
        self._chunks.append(in_java_order(values).dictionary_encode())

    def sorted_values(self) -> tuple[pa.Array, npt.NDArray[np.int32]]:
        """The distinct values in ascending order, and for each row the place of its value among
        them, or -1 for NULL."""
        if not self._chunks:
            return pa.array([], pa.int32()), np.zeros(0, dtype=np.int32)
        unified = pa.chunked_array(self._chunks).unify_dictionaries()
        values = unified.chunk(0).dictionary
        order = pc.array_sort_indices(values).to_numpy()
        ranks = np.empty(len(order) + 1, dtype=np.int32)
        ranks[order] = np.arange(len(order), dtype=np.int32)
        ranks[-1] = -1  # where the code of NULL leads
        codes = [pc.fill_null(chunk.indices, -1).to_numpy() for chunk in unified.chunks]
        return from_java_order(values.take(pa.array(order)), self._type), ranks[
            np.concatenate(codes)
        ]


def _floor_divided(numbers: pa.Array, by: int) -> pa.Array:
    nulls = np.asarray(numbers.is_null())
    floored = np.floor_divide(pc.fill_null(numbers, 0).to_numpy(), by)
    return pa.array(floored, mask=nulls)


# Pieces of bytes of different lengths, kept as one array, so that they are put together without a
# loop over them.


class Pieces:
    """Pieces one after the other in `data`; `lengths` and `ends` of each of them."""

    def __init__(self, data: Bytes, lengths: Ints) -> None:
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
    lengths: Ints = np.zeros(len(columns[0].lengths), dtype=np.int64)
    for column in columns:
        lengths += column.lengths
    data = np.zeros(int(lengths.sum()), dtype=np.uint8)
    starts = np.cumsum(lengths) - lengths
    for column in columns:
        moved = starts - (column.ends - column.lengths)
        data[np.repeat(moved, column.lengths) + np.arange(len(column.data))] = column.data
        starts = starts + column.lengths
    return Pieces(data, lengths)
