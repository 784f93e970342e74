"""Bitmaps of 64-bit numbers as Java's `Roaring64Bitmap` serialises them, and their unions.

The aggregate function `rbm64` stores this format. It is not the portable format of the Roaring
project's specification, which other libraries read. The upper 48 bits of the numbers are the keys
of an adaptive radix tree, written node by node, each followed by its children. Each leaf refers to
a container of the lower 16 bits. Layouts: `HighLowContainer`, `Art`, `Node4`, `Node16`, `Node48`,
`Node256`, `LeafNode` and `Containers` of the RoaringBitmap library for Java.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import takewhile

import numpy as np
import numpy.typing as npt

__all__ = ["long_bitmap", "long_bitmap_union", "numbers_of"]

_KEY_BYTES = 6
_NODE_4, _NODE_16, _NODE_48, _NODE_256, _LEAF = range(5)
_BODY_BYTES = {_NODE_4: 4, _NODE_16: 16, _NODE_48: 256, _NODE_256: 32}
_RUNS, _BITS, _ARRAY = range(3)  # kinds of containers
_BITS_BYTES = 8192
_ARRAY_MAX = 4096
_NOT_TRIMMED = b"\xfe"
_ABSENT = 0xFF  # in the index of a node with 48 children

_Low = npt.NDArray[np.uint16]


def long_bitmap_union(one: bytes, other: bytes) -> bytes:
    """The union of two bitmaps. Raises ValueError for bytes that are no bitmap."""
    found = dict(_parts(one))
    for key, low in _parts(other):
        found[key] = np.union1d(found[key], low) if key in found else low
    return _serialised(sorted(found.items()))


def long_bitmap(numbers: Sequence[int]) -> bytes:
    """The bitmap of `numbers`, which Java treats as unsigned."""
    found: dict[bytes, list[int]] = {}
    for number in sorted({number & 0xFFFF_FFFF_FFFF_FFFF for number in numbers}):
        key = (number >> 16).to_bytes(_KEY_BYTES, "big")
        found.setdefault(key, []).append(number & 0xFFFF)
    return _serialised([(key, np.array(low, dtype=np.uint16)) for key, low in found.items()])


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
    found: dict[int, _Low] = {}
    (arrays,) = struct.unpack_from("<i", stored, place)
    place += 4
    for first in range(arrays):
        (count,) = struct.unpack_from("<i", stored, place + 1)
        place += 5
        for second in range(count):
            place += 1
            if stored[place - 1]:
                found[first << 32 | second], place = _read_container(stored, place)
    return found


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
    shared = (one == other for one, other in zip(keys[0][depth:], keys[-1][depth:], strict=True))
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
