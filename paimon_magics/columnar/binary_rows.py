"""Decodes serialized `BinaryRow`s into columns: partitions, keys and statistics in manifests.

A serialized row is four bytes with the number of its fields, then the bytes of Java's `BinaryRow`:
one byte of row kind and the null bits, rounded up to eight bytes; one eight-byte slot per field; a
variable part. Sources: `SerializationUtils`, `BinaryRow`, `AbstractBinaryWriter`.

The module decodes a column at a time, without Python code for each row, except for decimals beyond
18 digits. It does not decode arrays, maps and rows inside rows (Paimon has no statistics of them).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.buffers import Ints, bytes_in, decimals_of, is_bytes
from paimon_magics.errors import TableDamagedError

_ARITY_BYTES = 4
_COMPACT_DECIMAL_PRECISION_MAX = 18
_NANOS_PER_MILLI = 1_000_000

_Bools = npt.NDArray[np.bool_]


_INLINE_BYTES_MAX = 7

_DECIMAL_BYTES = 16
_WIDE = Context(prec=76)
_MILLIS_PER = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1_000), "ns": (1, 1_000_000)}


def decode_rows(rows: pa.Array, types: Sequence[pa.DataType]) -> list[pa.Array]:
    """The fields of every row, as one array per field.

    `rows` is a binary or large binary array without NULLs; the fields of every row have the types
    `types`. Fields other than booleans, numbers, texts, bytes, dates and times become NULLs. Raises
    ValueError if a row is NULL, TableDamagedError if it lacks a value that it should hold.
    """
    if rows.null_count:
        raise ValueError("a serialized row can't be NULL")
    layout = _Layout(rows, len(types), is_strict=True)
    return [_decode(layout, position, data_type) for position, data_type in enumerate(types)]


def decode_bounds(rows: pa.Array, types: Sequence[pa.DataType]) -> list[pa.Array]:
    """As `decode_rows`, for statistics: values that can't be decoded are unknown, which is NULL.

    pypaimon up to 1.4 wrote every timestamp and DECIMAL into its slot of eight bytes, where a
    reader expects the place of the value for some types.
    """
    arity = len(types).to_bytes(_ARITY_BYTES, "big")
    has_arity = pc.equal(pc.binary_slice(rows, 0, _ARITY_BYTES), arity)
    is_whole = pc.greater_equal(pc.binary_length(rows), _ARITY_BYTES + _fixed_bytes(len(types)))
    known = np.asarray(pc.fill_null(pc.and_(has_arity, is_whole), False))
    if known.all():
        layout = _Layout(rows, len(types), is_strict=False)
        return [_decode(layout, position, data_type) for position, data_type in enumerate(types)]
    columns = decode_bounds(rows.filter(pa.array(known)), types)
    places = np.where(known, np.cumsum(known) - 1, 0)
    taken = pa.array(places, mask=~known)
    return [column.take(taken) for column in columns]


def _fixed_bytes(fields: int) -> int:
    """The size of the null bits and the slots."""
    return (fields + 63 + 8) // 64 * 8 + 8 * fields


class _Layout:
    """The bytes of all rows, and where each row and its slots begin in them. `is_strict` is whether
    a value outside its row is an error; otherwise the value is unknown."""

    def __init__(self, rows: pa.Array, fields: int, is_strict: bool) -> None:
        self.data, offsets = bytes_in(rows.cast(pa.large_binary()))
        self.base: Ints = offsets[:-1] + _ARITY_BYTES
        self._ends: Ints = offsets[1:]
        self._is_strict = is_strict
        self._fixed = _fixed_bytes(fields)
        self._slots = self._fixed - 8 * fields

    def __len__(self) -> int:
        return len(self.base)

    def nulls(self, position: int) -> _Bools:
        bit = position + 8
        nulls: _Bools = (self.data[self.base + bit // 8] >> (bit % 8)) & 1 == 1
        return nulls

    def slot(self, position: int) -> Ints:
        """Where the slot of a field begins."""
        return self.base + self._slots + 8 * position

    def unknown(self, nulls: _Bools, places: Ints, lengths: Ints | int) -> _Bools:
        """Marks the rows that have NULL, or no such part: `lengths` bytes from `places` on, which
        are counted from the row's begin, behind its slots."""
        lost = (places < self._fixed) | (self.base + places + lengths > self._ends)
        lost &= ~nulls
        if self._is_strict and lost.any():
            raise TableDamagedError(
                "A partition or key in the table's manifests can't be read: it ends too early.",
                hint="pypaimon before 2.0 stores TIMESTAMP(4) to (9), and DECIMAL of more than 18 "
                "digits, this way in partition and key columns. Read the table with the release "
                "that wrote it, and write its rows into a new table.",
            )
        return nulls | lost

    def words(self, starts: Ints) -> Ints:
        """The eight bytes from each start, as a little-endian number."""
        gathered = self.data[starts[:, None] + np.arange(8)]
        words: Ints = np.ascontiguousarray(gathered).view("<i8").reshape(-1)
        return words


def _decode(layout: _Layout, position: int, data_type: pa.DataType) -> pa.Array:
    if not len(layout):
        return pa.array([], type=data_type)
    nulls = layout.nulls(position)
    if is_bytes(data_type):
        return _texts(layout, position, nulls, data_type)
    if pa.types.is_decimal(data_type):
        return _decimals(layout, position, nulls, data_type)
    words = layout.words(layout.slot(position))
    if pa.types.is_timestamp(data_type):
        return _timestamps(layout, words, nulls, data_type)
    low = words.astype(np.int32)
    if pa.types.is_boolean(data_type):
        return pa.array((low & 0xFF) != 0, mask=nulls)
    if pa.types.is_date32(data_type) or pa.types.is_time32(data_type):
        return pa.array(low, type=pa.int32(), mask=nulls).view(_in_32_bits(data_type))
    if pa.types.is_floating(data_type):
        width = np.int32 if pa.types.is_float32(data_type) else np.int64
        return pa.array(words.astype(width).view(data_type.to_pandas_dtype()), mask=nulls)
    if pa.types.is_integer(data_type):
        return pa.array(words.astype(data_type.to_pandas_dtype()), mask=nulls)
    return pa.nulls(len(layout), data_type)


def _in_32_bits(data_type: pa.DataType) -> pa.DataType:
    return data_type if pa.types.is_date32(data_type) else pa.time32("ms")


def _timestamps(layout: _Layout, words: Ints, nulls: _Bools, data_type: pa.DataType) -> pa.Array:
    if data_type.unit in ("s", "ms"):
        values = words if data_type.unit == "ms" else np.floor_divide(words, 1000)
    else:
        places, nanos = words >> 32, words & 0xFFFFFFFF
        # A number of nanoseconds that a millisecond does not have: it is no place either.
        places = np.where(nanos < _NANOS_PER_MILLI, places, -1)
        nulls = layout.unknown(nulls, places, 8)
        millis = layout.words(np.where(nulls, layout.base, layout.base + places))
        values = (
            millis * 1000 + nanos // 1000
            if data_type.unit == "us"
            else (millis * 1_000_000 + nanos)
        )
    return pa.array(values, type=pa.int64(), mask=nulls).view(data_type)


def _decimals(layout: _Layout, position: int, nulls: _Bools, data_type: pa.DataType) -> pa.Array:
    words = layout.words(layout.slot(position))
    if data_type.precision <= _COMPACT_DECIMAL_PRECISION_MAX:
        return decimals_of(words, data_type, pc.invert(pa.array(nulls)).buffers()[1])
    values: list[Decimal | None] = []
    nulls = layout.unknown(nulls, words >> 32, words & 0xFFFFFFFF)
    for base, word, null in zip(layout.base, words, nulls, strict=True):
        if null:
            values.append(None)
            continue
        start, length = int(base + (word >> 32)), int(word & 0xFFFFFFFF)
        unscaled = int.from_bytes(bytes(layout.data[start : start + length]), "big", signed=True)
        digits = tuple(int(digit) for digit in str(abs(unscaled)))
        values.append(Decimal((unscaled < 0, digits, -data_type.scale)))
    return pa.array(values, type=data_type)


def _texts(layout: _Layout, position: int, nulls: _Bools, data_type: pa.DataType) -> pa.Array:
    slots = layout.slot(position)
    words = layout.words(slots)
    mark = (words >> 56) & 0xFF
    inline = mark >= 0x80  # up to seven bytes are in the slot itself
    nulls = nulls | layout.unknown(nulls | inline, words >> 32, words & 0xFFFFFFFF) & ~inline
    starts = np.where(inline, slots, layout.base + (words >> 32))
    lengths = np.where(nulls, 0, np.where(inline, mark & 0x7F, words & 0xFFFFFFFF))
    ends = np.cumsum(lengths)
    total = int(ends[-1])
    within = np.arange(total) - np.repeat(ends - lengths, lengths)
    data = layout.data[np.repeat(starts, lengths) + within]
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    validity = pc.invert(pa.array(nulls)).buffers()[1]
    values = pa.Array.from_buffers(
        pa.large_binary(),
        len(lengths),
        [validity, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data.tobytes())],
    )
    if pa.types.is_fixed_size_binary(data_type):
        return values.cast(pa.binary())
    return values.cast(data_type)


# Encodes a row of values as Paimon stores keys and bounds: a serialized `BinaryRow`.
#
# The inverse of `binary_rows`, which describes the bytes. Sources: `SerializationUtils`,
# `AbstractBinaryWriter`.


def encode_values(values: Iterable[Any], types: Sequence[pa.DataType]) -> bytes:
    """A row of Python's values with these Arrow types; None is NULL."""
    return encode_row([pa.scalar(v, t) for v, t in zip(values, types, strict=True)])


def encode_row(values: Sequence[pa.Scalar]) -> bytes:
    """A row of booleans, numbers, texts, bytes, dates, times and NULLs. Raises ValueError for a
    value of another type."""
    arity = len(values)
    slots_start = (arity + 63 + 8) // 64 * 8
    fixed = bytearray(slots_start + 8 * arity)
    variable = bytearray()
    for place, value in enumerate(values):
        if not value.is_valid:
            bit = place + 8
            fixed[bit // 8] |= 1 << bit % 8
            continue
        slot = slots_start + 8 * place
        inline, stored, word = _encoded(value)
        if stored is None:
            fixed[slot : slot + len(inline)] = inline
            continue
        struct.pack_into("<q", fixed, slot, (len(fixed) + len(variable)) << 32 | word)
        variable += stored
    return struct.pack(">i", arity) + bytes(fixed) + bytes(variable)


def _encoded(value: pa.Scalar) -> tuple[bytes, bytes | None, int]:
    """The bytes for the slot; or the bytes for the variable part, and the low half of the slot."""
    data_type = value.type
    if is_bytes(data_type):
        raw = bytes(value.as_buffer()) if len(value.as_buffer()) else b""
        if len(raw) <= _INLINE_BYTES_MAX:
            return raw.ljust(_INLINE_BYTES_MAX, b"\0") + bytes([0x80 | len(raw)]), None, 0
        return b"", raw.ljust(-(-len(raw) // 8) * 8, b"\0"), len(raw)
    if pa.types.is_decimal(data_type):
        unscaled = int(value.as_py().scaleb(data_type.scale, _WIDE))
        if data_type.precision <= _COMPACT_DECIMAL_PRECISION_MAX:
            return struct.pack("<q", unscaled), None, 0
        digits = unscaled.to_bytes(_twos_complement_bytes(unscaled), "big", signed=True)
        return b"", digits.ljust(_DECIMAL_BYTES, b"\0"), len(digits)
    if pa.types.is_timestamp(data_type):
        times, parts = _MILLIS_PER[data_type.unit]
        millis, rest = divmod(value.value * times, parts)
        if data_type.unit in ("s", "ms"):
            return struct.pack("<q", millis), None, 0
        return b"", struct.pack("<q", millis), rest * (1_000_000 // parts)
    return _number(value), None, 0


def _number(value: pa.Scalar) -> bytes:
    data_type = value.type
    if pa.types.is_boolean(data_type):
        return bytes([value.as_py()])
    if pa.types.is_date32(data_type) or pa.types.is_time32(data_type):
        return struct.pack("<i", value.value)
    if pa.types.is_integer(data_type):
        return int(value.as_py()).to_bytes(data_type.bit_width // 8, "little", signed=True)
    if pa.types.is_floating(data_type):
        return struct.pack("<f" if pa.types.is_float32(data_type) else "<d", value.as_py())
    raise ValueError(f"a value of the type {data_type} can't be in a key or a bound")


def _twos_complement_bytes(number: int) -> int:
    """The length of Java's `BigInteger.toByteArray`."""
    return ((number if number >= 0 else ~number).bit_length()) // 8 + 1
