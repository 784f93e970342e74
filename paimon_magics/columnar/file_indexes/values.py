"""The values of a column as file indexes store them: numbers, texts, binaries.

Dates and times become their numbers, timestamps milliseconds up to a precision of 3, else
microseconds, decimals their unscaled values. Source: the value mappers of `BitmapFileIndex`,
`BitSliceIndexBitmapFileIndex` and `KeyFactory`, and `FastHash`.

Their 64-bit hashes, a column at a time, are equal to those of `FastHash`: numbers have Thomas
Wang's hash, texts and binaries the 64-bit xxHash with seed 0. No Python code runs for each row.
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


_Hashes = npt.NDArray[np.uint64]
_Places = npt.NDArray[np.int64]

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)
_STRIPE_BYTES = 32
_LANES = (0x60EA27EEADC0B5D6, 0xC2B2AE3D27D4EB4F, 0, 0x61C8864E7A143579)


def fast_hashes(column: pa.Array) -> _Hashes:
    """The hashes of the values that are not NULL, in the order of their rows."""
    values = index_values(column.drop_null())
    if pa.types.is_large_binary(values.type):
        return _text_hashes(values)
    numbers = values.to_numpy(zero_copy_only=False)
    if numbers.dtype.kind == "f":
        numbers = np.where(np.isnan(numbers), numbers.dtype.type(np.nan), numbers)
        numbers = numbers.view(np.int32 if numbers.dtype.itemsize == 4 else np.int64)
    return _number_hashes(numbers.astype(np.int64))


def _number_hashes(keys: npt.NDArray[np.int64]) -> _Hashes:
    """`FastHash.getLongHash`, whose shifts to the right keep the sign."""
    keys = ~keys + (keys << 21)
    keys ^= keys >> 24
    keys = keys + (keys << 3) + (keys << 8)
    keys ^= keys >> 14
    keys = keys + (keys << 2) + (keys << 4)
    keys ^= keys >> 28
    keys += keys << 31
    return keys.view(np.uint64)


def _text_hashes(values: pa.Array) -> _Hashes:
    if not len(values):
        return np.zeros(0, dtype=np.uint64)
    data, offsets = bytes_in(values)
    data = data[offsets[0] : offsets[-1]]
    padded = np.concatenate([data, np.zeros(8, dtype=np.uint8)])
    # Words begin at any byte: views of the same bytes with steps of one.
    words = np.ndarray((len(data) + 1,), "<u8", padded.data, strides=(1,))
    halves = np.ndarray((len(data) + 1,), "<u4", padded.data, strides=(1,))
    lengths = np.diff(offsets)
    # Rows are sorted by length, longest first, so that every round works on the first of them.
    order = np.argsort(-lengths, kind="stable")
    left, places = lengths[order], (offsets[:-1] - offsets[0])[order]
    state = _after_stripes(words, places, left)
    state += left.astype(np.uint64)
    places = places + left // _STRIPE_BYTES * _STRIPE_BYTES
    left = left % _STRIPE_BYTES
    for number in range(3):
        rows = np.flatnonzero(left >= 8 * (number + 1))
        mixed = _round(np.uint64(0), words[places[rows] + 8 * number])
        state[rows] = _rotated(state[rows] ^ mixed, 27) * _PRIME_1 + _PRIME_4
    places, left = places + left // 8 * 8, left % 8
    rows = np.flatnonzero(left >= 4)
    mixed = halves[places[rows]].astype(np.uint64) * _PRIME_1
    state[rows] = _rotated(state[rows] ^ mixed, 23) * _PRIME_2 + _PRIME_3
    places, left = places + left // 4 * 4, left % 4
    for number in range(3):
        rows = np.flatnonzero(left > number)
        mixed = padded[places[rows] + number].astype(np.uint64) * _PRIME_5
        state[rows] = _rotated(state[rows] ^ mixed, 11) * _PRIME_1
    hashes = np.empty(len(state), dtype=np.uint64)
    hashes[order] = _avalanche(state)
    return hashes


def _after_stripes(words: _Hashes, places: _Places, lengths: _Places) -> _Hashes:
    """The state after all whole stripes of 32 bytes, before the length is added. `lengths`
    descend."""
    state = np.full(len(lengths), _PRIME_5)
    stripes = lengths // _STRIPE_BYTES
    long = int(np.count_nonzero(stripes))
    if not long:
        return state
    lanes = [np.full(long, start, dtype=np.uint64) for start in _LANES]
    for stripe in range(int(stripes[0])):
        active = int(np.searchsorted(-stripes, -stripe, side="left"))
        here = places[:active] + _STRIPE_BYTES * stripe
        for number, lane in enumerate(lanes):
            lane[:active] = _round(lane[:active], words[here + 8 * number])
    joined = sum(
        (_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)),
        np.zeros(long, dtype=np.uint64),
    )
    for lane in lanes:
        joined = (joined ^ _round(np.uint64(0), lane)) * _PRIME_1 + _PRIME_4
    state[:long] = joined
    return state


def _round(state: _Hashes | np.uint64, word: _Hashes) -> _Hashes:
    return _rotated(state + word * _PRIME_2, 31) * _PRIME_1


def _avalanche(state: _Hashes) -> _Hashes:
    state ^= state >> np.uint64(33)
    state *= _PRIME_2
    state ^= state >> np.uint64(29)
    state *= _PRIME_3
    return state ^ state >> np.uint64(32)


def _rotated(values: _Hashes, bits: int) -> _Hashes:
    return values << np.uint64(bits) | values >> np.uint64(64 - bits)
