"""Parts of a nested column that must not be NULL, below a value that is.

A NULL of a VARIANT, or of a STRUCT with a NOT NULL field, has parts without a value in Arrow.
Arrow's Parquet writer takes them for missing values of the required parts, though they are never
stored.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["with_required_parts"]


def with_required_parts(rows: pa.Table) -> pa.Table:
    """The rows, in which required parts below a NULL have some value."""
    for place, field in enumerate(rows.schema):
        if _has_required_part(field.type):
            chunks = [_filled(chunk, field.type) for chunk in rows.column(place).chunks]
            rows = rows.set_column(place, field, pa.chunked_array(chunks, field.type))
    return rows


def _has_required_part(data_type: pa.DataType) -> bool:
    if pa.types.is_struct(data_type):
        return any(not part.nullable or _has_required_part(part.type) for part in data_type)
    if pa.types.is_list(data_type):
        return _has_required_part(data_type.value_type)
    return False


def _filled(
    array: pa.Array, data_type: pa.DataType, absent: pa.BooleanArray | None = None
) -> pa.Array:
    """`absent` tells where a NULL is above. Other missing values stay, and are an error."""
    if not _has_required_part(data_type) or not len(array):
        return array
    if pa.types.is_list(data_type):
        whole = array.take(pa.array(np.arange(len(array))))  # from its first value on
        values = _filled(whole.values, data_type.value_type)
        return pa.ListArray.from_arrays(whole.offsets, values, data_type, mask=whole.is_null())
    none = array.is_null()
    gone = none if absent is None else pc.or_(none, absent)
    parts = []
    for number, part in enumerate(data_type):
        values = _filled(array.field(number), part.type, gone)
        if not part.nullable and values.null_count:
            some = pa.scalar(_some(part.type), part.type)
            values = pc.if_else(pc.and_(gone, values.is_null()), some, values)
        parts.append(values)
    return pa.StructArray.from_arrays(parts, fields=list(data_type), mask=none)


def _some(data_type: pa.DataType) -> Any:
    """A value of a type."""
    if pa.types.is_struct(data_type):
        return {part.name: _some(part.type) for part in data_type}
    if pa.types.is_list(data_type) or pa.types.is_map(data_type):
        return []
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return ""
    if pa.types.is_boolean(data_type):
        return False
    if pa.types.is_integer(data_type) or pa.types.is_floating(data_type):
        return 0
    if pa.types.is_decimal(data_type):
        return Decimal(0)
    if pa.types.is_temporal(data_type):
        number = pa.int64() if data_type.bit_width == 64 else pa.int32()
        return pa.scalar(0, number).cast(data_type).as_py()
    return b"\0" * data_type.byte_width if pa.types.is_fixed_size_binary(data_type) else b""
