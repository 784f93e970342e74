"""Casting Spark's Arrow batches to the exact Arrow types that Paimon maps its types to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """`batch` with exactly the columns, order and types of `schema`.

    Spark has cast the values already. What remains are the differences between Spark's Arrow types
    and Paimon's: the session's zone instead of UTC, units of time, binary widths, names inside
    nested types. Timestamps are rounded down, also before 1970, as in Paimon's Java library.
    """
    columns = [_conform_column(batch.column(field.name), field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _conform_column(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    if pa.types.is_timestamp(field.type) and pa.types.is_timestamp(column.type):
        return _conform_timestamp(column, field.type)
    if pa.types.is_time32(field.type) and pa.types.is_integer(column.type):
        millis = pc.cast(column, pa.int32()).view(pa.time32("ms"))
        return millis if field.type.unit == "ms" else pc.cast(millis, field.type, safe=False)
    if pa.types.is_nested(field.type):
        return _conform_nested(column, field.type)
    return pc.cast(column, field.type)


def _conform_timestamp(column: pa.Array, target: pa.TimestampType) -> pa.Array:
    if column.type.unit != target.unit:
        per_unit = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
        have, want = per_unit[column.type.unit], per_unit[target.unit]
        numbers = column.view(pa.int64())
        if want < have:
            divisor = have // want
            remainder = pc.subtract(
                numbers, pc.multiply(pc.divide(numbers, divisor), divisor)
            )  # Arrow divides toward zero
            numbers = pc.divide(numbers, divisor)
            numbers = pc.if_else(pc.less(remainder, 0), pc.subtract(numbers, 1), numbers)
        else:
            numbers = pc.multiply_checked(numbers, want // have)
        return numbers.view(target)
    # Both count from the epoch in the same unit; only the zone for display differs.
    return column.view(pa.int64()).view(target)


def _conform_nested(column: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_struct(target):
        children = [
            _conform_column(column.field(index), target.field(index))
            for index in range(target.num_fields)
        ]
        return pa.StructArray.from_arrays(
            children, fields=list(target), mask=column.is_null() if column.null_count else None
        )
    if pa.types.is_list(target):
        column = _compact(column)
        return pa.ListArray.from_arrays(
            _offsets(column), _conform_column(column.values, target.value_field), type=target
        )
    if pa.types.is_map(target):
        column = _compact(column)
        return pa.MapArray.from_arrays(
            _offsets(column),
            _conform_column(column.keys, target.key_field),
            _conform_column(column.items, target.item_field),
            type=target,
        )
    return pc.cast(column, target)


def _compact(column: pa.Array) -> pa.Array:
    """The same lists, with offsets that begin at 0 and without children that no list has."""
    if column.offset == 0:
        return column
    return pa.concat_arrays([column.take(pa.array(np.arange(len(column))))])


def _offsets(column: pa.Array) -> pa.Array:
    """List offsets in which a NULL offset marks a NULL list, as `from_arrays` takes them."""
    if not column.null_count:
        return column.offsets
    nulls = np.append(np.asarray(column.is_null()), False)
    return pa.array(np.asarray(column.offsets), mask=nulls, type=pa.int32())
