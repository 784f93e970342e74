"""Arrow arrays as NumPy arrays over the same bytes, and the numbers that Java stores for values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


def is_bytes(data_type: pa.DataType) -> bool:
    """Whether values are texts or bytes, which rows keep in their variable part."""
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
        or pa.types.is_fixed_size_binary(data_type)
    )


def bytes_in(column: pa.Array) -> tuple[Bytes, Ints]:
    """All bytes of a large binary column, and where each value begins in them; one more place is
    the end of the last value."""
    _, offsets, data = column.buffers()
    places = _part(offsets, np.int64, column.offset, len(column) + 1)
    return _part(data, np.uint8, 0, data.size if data else 0), places


def numbers_in(column: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The values buffer itself, so that NaN bits and -0.0 stay as they are. NULL is any number."""
    return _part(column.buffers()[1], dtype, column.offset, len(column))


def _part(
    buffer: pa.Buffer | None, dtype: npt.DTypeLike, first: int, count: int
) -> npt.NDArray[Any]:
    if not buffer:
        return np.zeros(count, dtype=dtype)
    return np.frombuffer(buffer, dtype=dtype)[first : first + count]


def stored_numbers(column: pa.Array) -> pa.Array:
    """Flags, dates, times and timestamps as numbers: seconds become milliseconds. Columns of other
    types are returned unchanged."""
    data_type = column.type
    if pa.types.is_boolean(data_type):
        return column.cast(pa.int8())
    if pa.types.is_date32(data_type) or pa.types.is_time32(data_type):
        if data_type == pa.time32("s"):
            column = column.cast(pa.time32("ms"))
        return column.view(pa.int32())
    if not pa.types.is_timestamp(data_type):
        return column
    numbers = column.view(pa.int64())
    return pc.multiply(numbers, 1000) if data_type.unit == "s" else numbers


def decimal_words(column: pa.Array) -> Ints:
    """The 128-bit unscaled values of decimals as (low, high) pairs. NULL is any number."""
    column = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    words = _part(column.buffers()[1], np.int64, 2 * column.offset, 2 * len(column))
    return words.reshape(-1, 2)


def decimal_bytes(words: Ints) -> tuple[Bytes, Ints]:
    """Unscaled values as 16 bytes, the highest first, and how many of them only repeat the sign:
    Java's `BigInteger.toByteArray` leaves those out."""
    little = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), 16)
    big = np.ascontiguousarray(little[:, ::-1])
    sign = np.where(big[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
    redundant = (big[:, :15] == sign) & ((big[:, 1:] >= 0x80) == (sign >= 0x80))
    return big, np.cumprod(redundant, axis=1).sum(axis=1)


def decimals_of(unscaled: Ints, data_type: pa.DataType, validity: pa.Buffer | None) -> pa.Array:
    """A column of decimals of at most 18 digits."""
    words = np.empty((len(unscaled), 2), dtype=np.int64)
    words[:, 0] = unscaled
    words[:, 1] = unscaled >> 63
    return pa.Array.from_buffers(
        data_type, len(unscaled), [validity, pa.py_buffer(words.reshape(-1))]
    )


def with_parts(
    array: pa.Array, data_type: pa.DataType, change: Callable[[pa.Array, pa.DataType], pa.Array]
) -> pa.Array:
    """A struct, map or list whose parts are changed to those of `data_type`, one after the other. A
    list of structs of two fields may become a map."""
    if pa.types.is_struct(data_type):
        parts = [change(array.field(place), part.type) for place, part in enumerate(data_type)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(data_type), mask=mask)
    if pa.types.is_map(data_type):
        is_map = pa.types.is_map(array.type)
        keys, items = (array.keys, array.items) if is_map else array.values.flatten()
        child = pa.StructArray.from_arrays(
            [change(keys, data_type.key_type), change(items, data_type.item_type)],
            fields=[data_type.key_field, data_type.item_field],
        )
    else:
        child = change(array.values, data_type.value_type)
    validity_and_offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        data_type, len(array), validity_and_offsets, array.null_count, array.offset, [child]
    )
