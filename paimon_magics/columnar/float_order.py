"""Floating-point numbers as integers that sort and compare as they do in Java.

Arrow and NumPy have NaN unequal to itself and sort it with the NULLs. Java's `Double.compare`, and
so Paimon, has all NaN alike and above all numbers, and -0.0 below 0.0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["in_java_order"]


def in_java_order(column: pa.Array) -> pa.Array:
    """FLOAT and DOUBLE values as integers in Java's order, NULLs as they are; other types as they
    come."""
    if pa.types.is_float32(column.type):
        integers: npt.DTypeLike = np.int32
    elif pa.types.is_float64(column.type):
        integers = np.int64
    else:
        return column
    values = column.to_numpy(zero_copy_only=False)  # a NULL is NaN
    values = np.where(np.isnan(values), np.float32(np.nan), values)  # one of them, without a sign
    bits = np.ascontiguousarray(values, dtype=column.type.to_pandas_dtype()).view(integers)
    # Of negative numbers the greater bits are those of the less.
    ordered = np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
    nulls = np.asarray(column.is_null()) if column.null_count else None
    return pa.array(ordered, mask=nulls)
