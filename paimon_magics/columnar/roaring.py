"""Roaring bitmaps in the portable format of the Roaring project's specification.

What is written is byte for byte what Java's `RoaringBitmap` serialises after `runOptimize`, as
Paimon's `RoaringBitmap32` does. A container holds the numbers that share their upper 16 bits:
as runs where these are smaller, else as an array of up to 4,096 numbers, else as bits.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

__all__ = ["numbers_at", "roaring_bitmap"]

_COOKIE_WITHOUT_RUNS = 12346
_COOKIE_WITH_RUNS = 12347
_NO_OFFSETS_MAX = 4
_ARRAY_MAX = 4096
_BITS_BYTES = 8192
_LARGEST = 0xFFFF_FFFF

Numbers = npt.NDArray[np.int64]


def roaring_bitmap(numbers: npt.NDArray[np.integer]) -> bytes:
    """The bitmap of `numbers`, which ascend without repeating, from 0 to 2**32 - 1.

    Raises ValueError for numbers that don't.
    """
    if not len(numbers):
        return struct.pack("<II", _COOKIE_WITHOUT_RUNS, 0)
    numbers = numbers.astype(np.int64, copy=False)
    steps = np.diff(numbers)
    if numbers[0] < 0 or numbers[-1] > _LARGEST or (len(steps) and steps.min() <= 0):
        raise ValueError("a bitmap's numbers ascend without repeating, from 0 to 2**32 - 1")
    high = numbers >> 16
    starts = np.flatnonzero(np.diff(high, prepend=-1))
    counts = np.diff(starts, append=len(numbers))
    begins_run = np.ones(len(numbers), dtype=bool)
    begins_run[1:] = steps != 1
    begins_run[starts] = True
    run_counts = np.add.reduceat(begins_run.astype(np.int64), starts)
    plain_bytes = np.where(counts <= _ARRAY_MAX, 2 * counts, _BITS_BYTES)
    as_runs = plain_bytes > 2 + 4 * run_counts
    low = (numbers & 0xFFFF).astype("<u2")
    bodies = [
        _container(low[start : start + count], begins_run[start : start + count], runs)
        for start, count, runs in zip(
            starts.tolist(), counts.tolist(), as_runs.tolist(), strict=True
        )
    ]
    header = _header(high[starts], counts, as_runs, [len(body) for body in bodies])
    return b"".join([header, *bodies])


def _container(low: npt.NDArray[np.uint16], begins_run: npt.NDArray[np.bool_], runs: bool) -> bytes:
    if runs:
        firsts = np.flatnonzero(begins_run)
        more = np.diff(firsts, append=len(low)) - 1
        pairs = np.stack([low[firsts], more.astype("<u2")], axis=1)
        return struct.pack("<H", len(firsts)) + pairs.tobytes()
    if len(low) <= _ARRAY_MAX:
        return low.tobytes()
    bits = np.zeros(8 * _BITS_BYTES, dtype=np.uint8)
    bits[low] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def _header(
    high: Numbers, counts: Numbers, as_runs: npt.NDArray[np.bool_], body_bytes: list[int]
) -> bytes:
    """What stands before the containers."""
    if as_runs.any():
        begin = struct.pack("<I", _COOKIE_WITH_RUNS | (len(high) - 1) << 16)
        begin += np.packbits(as_runs, bitorder="little").tobytes()
    else:
        begin = struct.pack("<II", _COOKIE_WITHOUT_RUNS, len(high))
    begin += np.stack([high, counts - 1], axis=1).astype("<u2").tobytes()
    if as_runs.any() and len(high) < _NO_OFFSETS_MAX:
        return begin
    first = len(begin) + 4 * len(high)
    offsets = first + np.cumsum([0, *body_bytes[:-1]])
    return begin + offsets.astype("<u4").tobytes()


def numbers_at(data: bytes, position: int) -> tuple[Numbers, int]:
    """The numbers of the bitmap at a position, ascending, and where it ends.

    Raises ValueError for bytes that are no bitmap.
    """
    (cookie,) = struct.unpack_from("<I", data, position)
    position += 4
    runs = np.zeros(0, dtype=np.uint8)
    if cookie & 0xFFFF == _COOKIE_WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = (count + 7) // 8
        marks = np.frombuffer(data, np.uint8, flags, position)
        runs = np.unpackbits(marks, bitorder="little")[:count]
        position += flags
    elif cookie == _COOKIE_WITHOUT_RUNS:
        (count,) = struct.unpack_from("<I", data, position)
        position += 4
    else:
        raise ValueError("its bitmap is in an unknown format")
    headers = np.frombuffer(data, "<u2", 2 * count, position).reshape(count, 2)
    position += 4 * count
    if not len(runs) or count >= _NO_OFFSETS_MAX:
        position += 4 * count  # the containers' offsets, not needed: they follow each other
    parts = []
    for index in range(count):
        base = int(headers[index, 0]) << 16
        cardinality = int(headers[index, 1]) + 1
        is_runs = bool(len(runs)) and bool(runs[index])
        low, position = _numbers_of_container(data, position, cardinality, is_runs)
        parts.append(low + base)
    return (np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)), position


def _numbers_of_container(
    data: bytes, position: int, cardinality: int, is_runs: bool
) -> tuple[Numbers, int]:
    if is_runs:
        (count,) = struct.unpack_from("<H", data, position)
        pairs = np.frombuffer(data, "<u2", 2 * count, position + 2).reshape(count, 2)
        firsts, lengths = pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64) + 1
        before = np.cumsum(lengths) - lengths
        low = np.arange(lengths.sum()) + np.repeat(firsts - before, lengths)
        return low, position + 2 + 4 * count
    if cardinality > _ARRAY_MAX:
        bits = np.frombuffer(data, np.uint8, _BITS_BYTES, position)
        low = np.flatnonzero(np.unpackbits(bits, bitorder="little")).astype(np.int64)
        return low, position + _BITS_BYTES
    low = np.frombuffer(data, "<u2", cardinality, position).astype(np.int64)
    return low, position + 2 * cardinality
