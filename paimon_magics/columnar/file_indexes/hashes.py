"""64-bit hashes of values, a column at a time and equal to those of Paimon's `FastHash`.

Numbers have Thomas Wang's hash, texts and binaries the 64-bit xxHash with seed 0. No Python code
runs for each row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.buffers import bytes_in
from paimon_magics.columnar.file_indexes.values import index_values

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
