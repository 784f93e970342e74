"""Determines from a file index which values the file's column certainly lacks.

This is for comparisons with single values; for other conditions, manifests have the bounds of each
file. Source: `BloomFilterFileIndex.Reader`, `BitmapFileIndexMeta`, `BitmapFileIndexMetaV2`,
`RangeBitmap`, `ChunkedDictionary`, `BitSliceIndexBitmapFileIndex.Reader`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_magics.columnar.file_indexes.values import fast_hashes, index_values, stored_pieces
from paimon_magics.columnar.roaring import numbers_at

JUDGED_KINDS = ("bloom-filter", "bitmap", "range-bitmap", "bsi")

_BLOOM_HEAD_BYTES = 4
_BITMAP_HEAD = struct.Struct(">bii?")
_OFFSET_BYTES, _LENGTH_BYTES = 4, 4
_DICTIONARY_HEAD = struct.Struct(">ibiii")
_CHUNK_BYTES = 21
"""Of a chunk's head in a dictionary, besides its first value: a version and five numbers."""
_SLICES_HEAD = struct.Struct(">bqq")


@dataclass(frozen=True, slots=True)
class WantedValues:
    """Values as indexes hold them: their hashes, their stored bytes, and their numbers. `width` is
    the number of bytes of each, None for texts and binaries, which follow their length and are no
    numbers."""

    hashes: tuple[int, ...]
    stored: tuple[bytes, ...]
    width: int | None
    numbers: tuple[int, ...] = ()


def wanted_values(values: pa.Array) -> WantedValues | None:
    """The values to search for, from values in the column's exact type; None if an index can't hold
    them, or distinguishes -0.0 and 0.0, which are equal in SQL."""
    if pa.types.is_floating(values.type):
        return None
    try:
        numbers = index_values(values)
        hashes = tuple(fast_hashes(values).tolist())
    except ValueError:  # decimals of more than 64 bits
        return None
    pieces = stored_pieces(numbers)
    stored = tuple(pieces.between(at, at + 1) for at in range(len(values)))
    if pa.types.is_large_binary(numbers.type):
        return WantedValues(hashes, stored, None)
    width = len(stored[0]) if stored else 0
    return WantedValues(hashes, stored, width, tuple(numbers.to_pylist()))


def has_none_of(kind: str, body: bytes, wanted: WantedValues) -> bool:
    """Whether an index's `body` tells that its column has none of the values. Always False for an
    unknown kind or version, or for bytes that are not an index of the kind."""
    try:
        return _has_none(kind, body, wanted)
    except (struct.error, ValueError):
        return False


def _has_none(kind: str, body: bytes, wanted: WantedValues) -> bool:
    if kind == "bloom-filter" and len(body) > _BLOOM_HEAD_BYTES:
        return not any(_may_have(body, value) for value in wanted.hashes)
    if kind == "bitmap" and len(body) >= _BITMAP_HEAD.size:
        return not any(_in_bitmap(body, value, wanted.width) for value in wanted.stored)
    if kind == "range-bitmap":
        return not any(_in_dictionary(body, value, wanted.width) for value in wanted.stored)
    if kind == "bsi" and wanted.width is not None and body[:1] == b"\x01":
        return not any(_in_slices(body, number) for number in wanted.numbers)
    return False


def _may_have(body: bytes, wanted: int) -> bool:
    """`BloomFilter64.testHash`."""
    hashes = int.from_bytes(body[:_BLOOM_HEAD_BYTES], "big")
    bits = (len(body) - _BLOOM_HEAD_BYTES) * 8
    low, high = _signed(wanted), _signed(wanted >> 32)
    for number in range(1, hashes + 1):
        mixed = _signed(low + number * high)
        place = (~mixed if mixed < 0 else mixed) % bits
        if not body[_BLOOM_HEAD_BYTES + (place >> 3)] & 1 << (place & 7):
            return False
    return True


def _signed(number: int) -> int:
    """The low 32 bits of a number as Java's int."""
    return ((number & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


def _in_bitmap(body: bytes, wanted: bytes, width: int | None) -> bool:
    """Whether the bitmaps' values contain a value; for a text this may be a false positive."""
    version, _, values, has_nulls = _BITMAP_HEAD.unpack_from(body)
    place = _BITMAP_HEAD.size
    if version not in (1, 2):
        return True
    place += (_OFFSET_BYTES if version == 1 else _OFFSET_BYTES + _LENGTH_BYTES) * has_nulls
    if width is None:
        # A text's length and bytes stand one after the other wherever the text is.
        return body.find(wanted, place) >= 0
    entries = _one_list if version == 1 else _in_blocks
    key = np.frombuffer(wanted, dtype=np.uint8)
    return any(
        bool((entry == key).all(axis=1).any()) for entry in entries(body, place, values, width)
    )


def _one_list(body: bytes, place: int, values: int, width: int) -> Iterator[np.ndarray]:
    """The values of version 1, as rows of bytes."""
    yield _rows(body, place, values, width, width + _OFFSET_BYTES)


def _in_blocks(body: bytes, place: int, values: int, width: int) -> Iterator[np.ndarray]:
    """The values of version 2, as rows of bytes, block by block."""
    (blocks,) = struct.unpack_from(">i", body, place)
    table = place + 4
    places = _rows(body, table + width, blocks, 4, width + 4)
    start = table + blocks * (width + 4) + 4
    for block in places.view(">i4").reshape(-1).tolist() if blocks else ():
        (count,) = struct.unpack_from(">i", body, start + block)
        step = width + _OFFSET_BYTES + _LENGTH_BYTES
        yield _rows(body, start + block + 4, count, width, step)


def _in_dictionary(body: bytes, wanted: bytes, width: int | None) -> bool:
    """Whether a range bitmap's dictionary has a value; for a text this may be a false positive."""
    (head,) = struct.unpack_from(">i", body)
    start = 4 + head
    (length,) = struct.unpack_from(">i", body, start - 4)
    rest, version, chunks, offsets_bytes, chunks_bytes = _DICTIONARY_HEAD.unpack_from(body, start)
    if body[4] != 1 or version != 1:
        return True
    firsts = start + 4 + rest + offsets_bytes
    others = firsts + chunks_bytes
    if width is None:
        return body.find(wanted, firsts, start + length) >= 0
    key = np.frombuffer(wanted, dtype=np.uint8)
    pieces = (
        _rows(body, firsts + 1, chunks, width, width + _CHUNK_BYTES),
        _rows(body, others, (start + length - others) // width, width, width),
    )
    return any(bool((values == key).all(axis=1).any()) for values in pieces)


def _in_slices(body: bytes, wanted: int) -> bool:
    """Whether a row has a number, by the rows in which each bit is set."""
    place = 5  # behind the version and the number of rows
    for is_negative in (False, True):
        place += 1
        if not body[place - 1]:
            continue
        version, least, greatest = _SLICES_HEAD.unpack_from(body, place)
        if version != 1:
            return True
        is_wanted = is_negative == (wanted < 0)
        if is_wanted and not least <= abs(wanted) <= greatest:
            return False
        rows, place = numbers_at(body, place + _SLICES_HEAD.size)
        (bits,) = struct.unpack_from(">i", body, place)
        place += 4
        if is_wanted and abs(wanted) >> bits:
            return False
        for bit in range(bits):
            ones, place = numbers_at(body, place)
            if is_wanted and len(rows):
                has_bit = bool(abs(wanted) >> bit & 1)
                rows = rows[np.isin(rows, ones, assume_unique=True) == has_bit]
        if is_wanted:
            return bool(len(rows))
    return False


def _rows(body: bytes, place: int, count: int, width: int, step: int) -> np.ndarray:
    """`count` pieces of `width` bytes that begin at `place`, `step` bytes apart."""
    if not count:
        return np.zeros((0, width), dtype=np.uint8)
    whole = np.frombuffer(body, dtype=np.uint8, count=(count - 1) * step + width, offset=place)
    pieces = np.lib.stride_tricks.as_strided(whole, (count, width), (step, 1), writeable=False)
    return np.ascontiguousarray(pieces)
