"""Encodes a row of values as Paimon stores keys and bounds: a serialised `BinaryRow`.

The inverse of `binary_rows`, which describes the bytes. Sources: `SerializationUtils`,
`AbstractBinaryWriter`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from decimal import Context
from typing import Any

import pyarrow as pa

from paimon_magics.columnar.bucket_hash import is_bytes

__all__ = ["encode_row", "encode_values"]

_INLINE_BYTES_MAX = 7
_COMPACT_DECIMAL_PRECISION_MAX = 18
_DECIMAL_BYTES = 16
_WIDE = Context(prec=76)
_MILLIS_PER = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1_000), "ns": (1, 1_000_000)}


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
