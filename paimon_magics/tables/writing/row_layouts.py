"""Rows and arrays of Paimon's binary form (`BinaryRow`, `BinaryArray`), one at a time and fast.

A row begins with its kind and a bit for each NULL, padded to words; then come a slot of eight bytes
for each field, and the values that don't fit into one. pypaimon looks at the type of each field of
each row; a layout is compiled once. `columnar/binary_rows.py` handles whole columns of rows.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

TINY, INT, LONG, TEXT, BYTES = "b7x", "i4x", "q", "text", "bytes"
"""Kinds of fields: TINYINT, INT and BIGINT by their codes in `struct`, and those of any length."""

_KIND_BITS = 8
_WORD = 8
_INLINE_MAX = 7  # longer values lie behind the slots
_INLINE = 0x80
_KNOWN_MAX = 64  # the files of a table have the same few arrays, often empty ones
_COUNT = struct.Struct("<i")


class RowLayout:
    """Rows with fields of certain kinds, without the number of fields that may precede a row."""

    def __init__(self, kinds: Sequence[str], required: int = 0) -> None:
        """The first `required` fields are not NULL."""
        self._null_bytes = (len(kinds) + 63 + _KIND_BITS) // 64 * 8
        slots = "".join("Q" if kind in (TEXT, BYTES) else kind for kind in kinds)
        self._slots = struct.Struct(f"<{self._null_bytes}s{slots}")
        self.bytes_min = self._slots.size
        """No row of this layout is shorter."""
        self._long = [
            (at, 1 << (at + _KIND_BITS), self._null_bytes + at * _WORD, kind == TEXT)
            for at, kind in enumerate(kinds)
            if kind in (TEXT, BYTES)
        ]
        self._required_bits = ((1 << required) - 1) << _KIND_BITS
        self._count = len(kinds)

    def packed(self, values: Sequence[Any]) -> bytes:
        """The row of some values. Raises `struct.error` for a number that does not fit."""
        slots = list(values)
        nulls = 0
        if None in slots:
            for at, value in enumerate(slots):
                if value is None:
                    nulls |= 1 << (at + _KIND_BITS)
                    slots[at] = 0
        behind = [b""]
        end = self.bytes_min
        for at, bit, _, is_text in self._long:
            if nulls & bit:
                continue
            content = slots[at].encode() if is_text else bytes(slots[at])
            slots[at], moved = _slot(content, end)
            behind.append(moved)
            end += len(moved)
        behind[0] = self._slots.pack(nulls.to_bytes(self._null_bytes, "little"), *slots)
        return b"".join(behind)

    def unpacked(self, row: bytes) -> list[Any]:
        """The values of a row. Raises ValueError for bytes that are no such row."""
        if len(row) < self.bytes_min:
            raise ValueError(f"a row of {self._count} fields has {len(row)} bytes only")
        head, *values = self._slots.unpack_from(row)
        nulls = int.from_bytes(head, "little")
        if nulls & self._required_bits:
            raise ValueError("a field that is needed is NULL")
        end = len(row)
        for at, bit, place, is_text in self._long:
            if nulls & bit:
                continue
            slot = values[at]
            start, size = slot >> 32, slot & 0xFFFFFFFF
            if self.bytes_min <= start and start + size <= end:
                content = row[start : start + size]
            else:
                content = _inline(row, slot, place)
            values[at] = content.decode() if is_text else content
        if nulls >> _KIND_BITS:
            for at in range(self._count):
                if nulls >> (at + _KIND_BITS) & 1:
                    values[at] = None
        return values


@lru_cache(maxsize=_KNOWN_MAX)
def packed_texts(texts: tuple[str, ...]) -> bytes:
    """An array of texts."""
    return _packed_elements([text.encode() for text in texts], may_be_inline=True)


@lru_cache(maxsize=_KNOWN_MAX)
def texts_of(array: bytes) -> tuple[str, ...]:
    """The texts of an array. Raises ValueError for bytes that are no such array."""
    return tuple(content.decode() for content in rows_of(array))


def packed_rows(rows: Sequence[bytes]) -> bytes:
    """An array of rows."""
    return _packed_elements(rows, may_be_inline=False)


@lru_cache(maxsize=_KNOWN_MAX)
def packed_longs(values: tuple[int | None, ...]) -> bytes:
    """An array of BIGINTs that may be NULL."""
    return _packed_numbers(values, "q")


@lru_cache(maxsize=_KNOWN_MAX)
def longs_of(array: bytes) -> tuple[int | None, ...]:
    """The BIGINTs of an array. Raises ValueError for bytes that are no such array."""
    return tuple(_numbers(array, "q"))


def packed_ints(values: Sequence[int]) -> bytes:
    """An array of INTs."""
    return _packed_numbers(values, "i")


def ints_of(array: bytes) -> list[int]:
    """The INTs of an array without NULLs. Raises ValueError for bytes that are no such array."""
    return [value for value in _numbers(array, "i") if value is not None]


def _packed_numbers(values: Sequence[int | None], code: str) -> bytes:
    nulls = 0
    for at, value in enumerate(values):
        if value is None:
            nulls |= 1 << at
    header = _header_bytes(len(values))
    numbers = struct.pack(f"<{len(values)}{code}", *(value or 0 for value in values))
    array = _COUNT.pack(len(values)) + nulls.to_bytes(header - 4, "little") + numbers
    return array + bytes(-len(array) % _WORD)


def _numbers(array: bytes, code: str) -> list[int | None]:
    count, header = _header(array)
    if header + count * struct.calcsize(code) > len(array):
        raise ValueError(f"an array of {count} numbers has {len(array)} bytes only")
    values: list[int | None] = list(struct.unpack_from(f"<{count}{code}", array, header))
    nulls = int.from_bytes(array[4:header], "little")
    if nulls:
        return [None if nulls >> at & 1 else value for at, value in enumerate(values)]
    return values


def _packed_elements(contents: Sequence[bytes], *, may_be_inline: bool) -> bytes:
    header = _header_bytes(len(contents))
    end = header + len(contents) * _WORD
    padding = -end % _WORD
    end += padding
    slots: list[int] = []
    behind: list[bytes] = []
    for content in contents:
        if may_be_inline or len(content) > _INLINE_MAX:
            slot, moved = _slot(content, end)
        else:
            slot, moved = end << 32 | len(content), _padded(content)
        slots.append(slot)
        behind.append(moved)
        end += len(moved)
    head = _COUNT.pack(len(contents)) + bytes(header - 4)
    return b"".join((head, struct.pack(f"<{len(slots)}Q", *slots), bytes(padding), *behind))


def rows_of(array: bytes) -> list[bytes]:
    """The rows of an array, or its texts as bytes. Raises ValueError for bytes that are no such
    array."""
    count, header = _header(array)
    first = header + count * _WORD
    if first > len(array):
        raise ValueError(f"an array of {count} elements has {len(array)} bytes only")
    if any(array[4:header]):
        raise ValueError("an element of an array is NULL")
    slots = struct.unpack_from(f"<{count}Q", array, header)
    contents = []
    for at, slot in enumerate(slots):
        start, size = slot >> 32, slot & 0xFFFFFFFF
        if first <= start and start + size <= len(array):
            contents.append(array[start : start + size])
        else:
            contents.append(_inline(array, slot, header + at * _WORD))
    return contents


def _header(array: bytes) -> tuple[int, int]:
    """The number of elements of an array, and where they begin."""
    if len(array) < _COUNT.size:
        raise ValueError("an array is shorter than its header")
    (count,) = _COUNT.unpack_from(array)
    header = _header_bytes(count)
    if count < 0 or header > len(array):
        raise ValueError(f"an array of {count} elements has {len(array)} bytes only")
    return count, header


def _header_bytes(count: int) -> int:
    return 4 + (count + 31) // 32 * 4


def _slot(content: bytes, end: int) -> tuple[int, bytes]:
    """The slot of a value of any length, and the part of it that goes behind the slots, to
    `end`."""
    size = len(content)
    if size <= _INLINE_MAX:
        return int.from_bytes(content, "little") | (_INLINE | size) << 56, b""
    return end << 32 | size, _padded(content)


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % _WORD)


def _inline(data: bytes, slot: int, place: int) -> bytes:
    """The value that stands in a slot itself, at `place`."""
    size = slot >> 56 & 0x7F
    if not slot >> 63 or size > _INLINE_MAX:
        raise ValueError("a value lies outside its row")
    return data[place : place + size]
