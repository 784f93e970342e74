"""Roaring bitmaps in the portable format of the Roaring project's specification.

The output is byte for byte equal to that of Java's `RoaringBitmap` after `runOptimize`, as in
Paimon's `RoaringBitmap32`. A container holds the numbers that share their upper 16 bits: as runs
where these are smaller, else as an array of up to 4,096 numbers, else as bits.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import takewhile

import numpy as np
import numpy.typing as npt

_COOKIE_WITHOUT_RUNS = 12346
_COOKIE_WITH_RUNS = 12347
_NO_OFFSETS_MAX = 4
_ARRAY_MAX = 4096
_BITS_BYTES = 8192
_LARGEST = 0xFFFF_FFFF

Numbers = npt.NDArray[np.int64]


_KEY_BYTES = 6
_NODE_4, _NODE_16, _NODE_48, _NODE_256, _LEAF = range(5)
_BODY_BYTES = {_NODE_4: 4, _NODE_16: 16, _NODE_48: 256, _NODE_256: 32}
_RUNS, _BITS, _ARRAY = range(3)  # kinds of containers


_NOT_TRIMMED = b"\xfe"
_ABSENT = 0xFF  # in the index of a node with 48 children

_Low = npt.NDArray[np.uint16]


def roaring_bitmap(numbers: npt.NDArray[np.integer]) -> bytes:
    """The bitmap of `numbers`, which ascend without repeating, from 0 to 2**32 - 1.

    Raises ValueError for numbers that don't.
    """
    if not len(numbers):
        return struct.pack("<II", _COOKIE_WITHOUT_RUNS, 0)
    return roaring_bitmaps(numbers, np.zeros(1, dtype=np.int64))[0]


def roaring_bitmaps(
    numbers: npt.NDArray[np.integer], firsts: npt.NDArray[np.integer]
) -> tuple[bytes, Numbers]:
    """Many bitmaps, one after the other, and how many bytes each of them has.

    A bitmap has the numbers from one place in `firsts` up to the next: at least one, ascending
    without repeating, from 0 to 2**32 - 1. Raises ValueError for numbers that don't.
    """
    wide: Numbers = numbers.astype(np.int64, copy=False)
    begins = np.zeros(len(wide), dtype=bool)
    begins[firsts] = True
    steps = np.diff(wide, prepend=-1)
    if wide.min() < 0 or wide.max() > _LARGEST or (steps[~begins] <= 0).any():
        raise ValueError("a bitmap's numbers ascend without repeating, from 0 to 2**32 - 1")
    containers = _Containers(wide, steps, begins)
    bitmaps = np.searchsorted(containers.starts, firsts)
    counts = np.diff(bitmaps, append=len(containers.starts))
    has_runs = np.logical_or.reduceat(containers.are_runs, bitmaps)
    marks_bytes = np.where(has_runs, (counts + 7) // 8, 4)  # of runs, or the count itself
    has_offsets = ~has_runs | (counts >= _NO_OFFSETS_MAX)
    heads_bytes = 4 + marks_bytes + 4 * counts + 4 * counts * has_offsets
    lengths = heads_bytes + np.add.reduceat(containers.sizes, bitmaps)
    places = np.cumsum(lengths) - lengths
    out = np.zeros(int(lengths.sum()), dtype=np.uint8)
    cookies = np.where(has_runs, _COOKIE_WITH_RUNS | (counts - 1) << 16, _COOKIE_WITHOUT_RUNS)
    _put(out, places, cookies.astype("<u4"))
    _put(out, places[~has_runs] + 4, counts[~has_runs].astype("<u4"))
    # From here on, what belongs to a bitmap is repeated for each of its containers.
    owners = np.repeat(np.arange(len(firsts)), counts)
    within = np.arange(len(owners)) - bitmaps[owners]
    runs = np.flatnonzero(containers.are_runs)
    marks = np.left_shift(1, within[runs] % 8).astype(np.uint8)
    np.bitwise_or.at(out, places[owners[runs]] + 4 + within[runs] // 8, marks)
    keys = places[owners] + 4 + marks_bytes[owners] + 4 * within
    _put(out, keys, containers.high.astype("<u2"))
    _put(out, keys + 2, (containers.counts - 1).astype("<u2"))
    before = np.cumsum(containers.sizes) - containers.sizes
    offsets = heads_bytes[owners] + before - before[bitmaps][owners]
    has_offset = has_offsets[owners]
    _put(out, (keys + 4 * counts[owners])[has_offset], offsets[has_offset].astype("<u4"))
    containers.put(out, places[owners] + offsets)
    return out.tobytes(), lengths


class _Containers:
    """The containers of some bitmaps' numbers: where each starts among the numbers, the upper 16
    bits, how many numbers, whether they are runs, the bytes.

    `steps` are the differences between numbers, `begins` is where bitmaps begin.
    """

    def __init__(self, numbers: Numbers, steps: Numbers, begins: npt.NDArray[np.bool_]) -> None:
        high = numbers >> 16
        is_first = begins.copy()
        is_first[1:] |= high[1:] != high[:-1]
        self.starts = np.flatnonzero(is_first)
        self.high = high[self.starts]
        self.counts = np.diff(self.starts, append=len(numbers))
        self._low = (numbers & 0xFFFF).astype("<u2")
        self._begins_run = is_first | (steps != 1)
        self._run_counts = np.add.reduceat(self._begins_run.astype(np.int64), self.starts)
        plain = np.where(self.counts <= _ARRAY_MAX, 2 * self.counts, _BITS_BYTES)
        self.are_runs = plain > 2 + 4 * self._run_counts
        self.sizes = np.where(self.are_runs, 2 + 4 * self._run_counts, plain)

    def put(self, out: npt.NDArray[np.uint8], places: Numbers) -> None:
        """Write the containers to their places."""
        are_bits = ~self.are_runs & (self.counts > _ARRAY_MAX)
        for number in np.flatnonzero(are_bits).tolist():
            start = self.starts[number]
            bits = np.zeros(8 * _BITS_BYTES, dtype=np.uint8)
            bits[self._low[start : start + self.counts[number]]] = 1
            place = places[number]
            out[place : place + _BITS_BYTES] = np.packbits(bits, bitorder="little")
        self._put_arrays(out, places, ~self.are_runs & ~are_bits)
        self._put_runs(out, places)

    def _put_arrays(
        self, out: npt.NDArray[np.uint8], places: Numbers, chosen: npt.NDArray[np.bool_]
    ) -> None:
        if chosen.all():
            low = self._low
        else:
            low = self._low[np.repeat(chosen, self.counts)]
        counts = self.counts[chosen]
        first = np.cumsum(counts) - counts
        _put(out, np.repeat(places[chosen] - 2 * first, counts) + 2 * np.arange(len(low)), low)

    def _put_runs(self, out: npt.NDArray[np.uint8], places: Numbers) -> None:
        counts = self._run_counts[self.are_runs]
        if not len(counts):
            return
        _put(out, places[self.are_runs], counts.astype("<u2"))
        firsts = np.flatnonzero(self._begins_run & np.repeat(self.are_runs, self.counts))
        ends = np.flatnonzero(np.append(self._begins_run[1:], True)) + 1
        more = ends[np.searchsorted(ends, firsts, side="right")] - firsts - 1
        first = np.cumsum(counts) - counts
        where = np.repeat(places[self.are_runs] + 2 - 4 * first, counts)
        where += 4 * np.arange(len(firsts))
        _put(out, where, self._low[firsts])
        _put(out, where + 2, more.astype("<u2"))


def _put(out: npt.NDArray[np.uint8], places: Numbers, values: npt.NDArray[np.integer]) -> None:
    """Write values, lowest byte first, to their places."""
    stored = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.itemsize)
    for byte in range(values.itemsize):
        out[places + byte] = stored[:, byte]


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


# Bitmaps of 64-bit numbers as Java's `Roaring64Bitmap` serializes them, and their unions.
#
# The aggregate function `rbm64` stores this format. It is not the portable format of the Roaring
# project's specification, which other libraries read. The upper 48 bits of the numbers are the keys
# of an adaptive radix tree, written node by node, each followed by its children. Each leaf refers
# to a container of the lower 16 bits. Layouts: `HighLowContainer`, `Art`, `Node4`, `Node16`,
# `Node48`, `Node256`, `LeafNode` and `Containers` of the RoaringBitmap library for Java.


def long_bitmap_union(stored: bytes, other: bytes) -> bytes:
    """The union of two bitmaps. Raises ValueError for bytes that are no bitmap."""
    parts = dict(_parts(stored))
    for key, low in _parts(other):
        parts[key] = np.union1d(parts[key], low) if key in parts else low
    return _serialised(sorted(parts.items()))


def long_bitmap(numbers: Sequence[int]) -> bytes:
    """The bitmap of `numbers`, which Java treats as unsigned."""
    parts: dict[bytes, list[int]] = {}
    for number in sorted({number & 0xFFFF_FFFF_FFFF_FFFF for number in numbers}):
        key = (number >> 16).to_bytes(_KEY_BYTES, "big")
        parts.setdefault(key, []).append(number & 0xFFFF)
    return _serialised([(key, np.array(low, dtype=np.uint16)) for key, low in parts.items()])


def numbers_of(stored: bytes) -> set[int]:
    """The numbers of a bitmap, unsigned. Raises ValueError for bytes that are no bitmap."""
    return {
        int.from_bytes(key, "big") << 16 | number
        for key, low in _parts(stored)
        for number in low.tolist()
    }


def _parts(stored: bytes) -> Iterator[tuple[bytes, _Low]]:
    """Pairs of the upper 48 bits of some numbers, and the lower 16 bits of each of them."""
    if stored[:1] == b"\0":
        return
    if stored[:1] != b"\1":
        raise ValueError("it is not a bitmap of 64-bit numbers")
    try:
        leaves: list[tuple[bytes, int]] = []
        place = _read_node(stored, 9, leaves)  # after the number of keys
        containers = _read_containers(stored, place)
        for key, number in leaves:
            yield key, containers[number]
    except (struct.error, IndexError, KeyError) as error:
        raise ValueError(f"its bitmap is damaged: {error}") from error


def _read_node(stored: bytes, place: int, leaves: list[tuple[bytes, int]]) -> int:
    """Add the leaves below a node to `leaves`; return where the node ends. A leaf has its whole
    key."""
    kind, count, prefix_bytes = struct.unpack_from("<BhB", stored, place)
    place += 4 + prefix_bytes
    if kind == _LEAF:
        key, number = struct.unpack_from("<6sq", stored, place)
        leaves.append((key, number))
        return place + 14
    place += _BODY_BYTES[kind]
    for _ in range(count):
        place = _read_node(stored, place, leaves)
    return place


def _read_containers(stored: bytes, place: int) -> dict[int, _Low]:
    containers: dict[int, _Low] = {}
    (arrays,) = struct.unpack_from("<i", stored, place)
    place += 4
    for first in range(arrays):
        (count,) = struct.unpack_from("<i", stored, place + 1)
        place += 5
        for second in range(count):
            place += 1
            if stored[place - 1]:
                containers[first << 32 | second], place = _read_container(stored, place)
    return containers


def _read_container(stored: bytes, place: int) -> tuple[_Low, int]:
    kind, cardinality = struct.unpack_from("<Bi", stored, place)
    place += 5
    if kind == _RUNS:
        (count,) = struct.unpack_from("<H", stored, place)
        pairs = np.frombuffer(stored, "<u2", 2 * count, place + 2).reshape(count, 2).astype(int)
        runs = [np.arange(start, start + more + 1) for start, more in pairs]
        return np.concatenate(runs or [pairs[:, 0]]).astype(np.uint16), place + 2 + 4 * count
    if kind == _BITS:
        bits = np.frombuffer(stored, np.uint8, _BITS_BYTES, place)
        low = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
        return low.astype(np.uint16), place + _BITS_BYTES
    if kind == _ARRAY:
        return np.frombuffer(stored, "<u2", cardinality, place), place + 2 * cardinality
    raise ValueError(f"it has a container of the unknown kind {kind}")


def _serialised(parts: Sequence[tuple[bytes, _Low]]) -> bytes:
    if not parts:
        return b"\0"
    out = [b"\1", struct.pack("<q", len(parts))]
    _write_node([key for key, _ in parts], 0, 0, out)
    out.append(struct.pack("<i", 1) + _NOT_TRIMMED + struct.pack("<i", len(parts)))
    for _, low in parts:
        kind = _ARRAY if len(low) <= _ARRAY_MAX else _BITS
        out.append(struct.pack("<BBi", 1, kind, len(low)))
        if kind == _ARRAY:
            out.append(low.astype("<u2").tobytes())
            continue
        bits = np.zeros(8 * _BITS_BYTES, dtype=np.uint8)
        bits[low] = 1
        out.append(np.packbits(bits, bitorder="little").tobytes())
    out.append(struct.pack("<qii", len(parts), 0, len(parts) - 1))
    return b"".join(out)


def _write_node(keys: Sequence[bytes], depth: int, first: int, out: list[bytes]) -> None:
    """Write the tree of sorted keys that agree in their first `depth` bytes. `first` is the number
    of the first key's container."""
    if len(keys) == 1:
        out.append(struct.pack("<BhB6sq", _LEAF, 0, 0, keys[0], first))
        return
    shared = (first == last for first, last in zip(keys[0][depth:], keys[-1][depth:], strict=True))
    prefix = keys[0][depth : depth + sum(takewhile(bool, shared))]
    depth += len(prefix)
    starts = [i for i, key in enumerate(keys) if not i or key[depth] != keys[i - 1][depth]]
    branches = bytes(keys[i][depth] for i in starts)
    kind, body = _body(branches)
    out.append(struct.pack("<BhB", kind, len(starts), len(prefix)) + prefix + body)
    for start, end in zip(starts, [*starts[1:], len(keys)], strict=True):
        _write_node(keys[start:end], depth + 1, first + start, out)


def _body(branches: bytes) -> tuple[int, bytes]:
    """The kind of a node with children for the bytes `branches`, and its body, which maps bytes to
    children. Java packs bytes into numbers highest first, and writes the numbers lowest first."""
    count = len(branches)
    if count <= 4:
        return _NODE_4, branches.ljust(4, b"\0")[::-1]
    if count <= 16:
        padded = branches.ljust(16, b"\0")
        return _NODE_16, padded[7::-1] + padded[:7:-1]
    index = np.full(256, _ABSENT, dtype=np.uint8)
    index[list(branches)] = np.arange(count, dtype=np.uint8)
    if count <= 48:
        return _NODE_48, index.reshape(32, 8)[:, ::-1].tobytes()
    there = np.zeros(256, dtype=np.uint8)
    there[list(branches)] = 1
    return _NODE_256, np.packbits(there, bitorder="little").tobytes()
