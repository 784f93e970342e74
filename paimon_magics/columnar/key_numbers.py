"""Numbers that sort and compare as keys and floating-point numbers do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_Ints = npt.NDArray[np.int64]


def key_numbers(tables: Sequence[pa.Table]) -> list[_Ints]:
    """The numbers of the rows of each table: from 0 up without gaps, equal for rows that are equal
    in all columns. The tables have the same columns, without NULLs. Floating-point numbers are
    equal as in Java."""
    codes: _Ints = np.zeros(sum(table.num_rows for table in tables), dtype=np.int64)
    for name in tables[0].column_names:
        parts = [chunk for table in tables for chunk in table[name].chunks]
        values = in_java_order(pa.concat_arrays(parts)) if parts else pa.array([], pa.int64())
        encoded = values.dictionary_encode()
        places = np.asarray(encoded.indices).astype(np.int64)
        _, codes = np.unique(codes * len(encoded.dictionary) + places, return_inverse=True)
    ends = np.cumsum([table.num_rows for table in tables])[:-1]
    return np.split(codes.reshape(-1), ends)


# Converts floating-point numbers to integers that sort and compare as the numbers do in Java.
#
# In Arrow and NumPy, NaN is unequal to itself and sorts with the NULLs. In Java's `Double.compare`,
# and so in Paimon, all NaN are equal and above all numbers, and -0.0 is below 0.0.


def in_java_order(column: pa.Array) -> pa.Array:
    """FLOAT and DOUBLE values as integers in Java's order. NULL stays NULL; columns of other types
    are returned unchanged."""
    if pa.types.is_float32(column.type):
        integers: npt.DTypeLike = np.int32
    elif pa.types.is_float64(column.type):
        integers = np.int64
    else:
        return column
    values = column.to_numpy(zero_copy_only=False)  # a NULL is NaN
    values = np.where(np.isnan(values), np.float32(np.nan), values)  # one NaN, without a sign
    bits = np.ascontiguousarray(values, dtype=column.type.to_pandas_dtype()).view(integers)
    # A lesser negative number has greater bits.
    ordered = np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
    nulls = np.asarray(column.is_null()) if column.null_count else None
    return pa.array(ordered, mask=nulls)


def from_java_order(ordered: pa.Array, data_type: pa.DataType) -> pa.Array:
    """The numbers of `in_java_order` as the original values of `data_type`. There is one NaN."""
    if not pa.types.is_floating(data_type):
        return ordered
    numbers = ordered.to_numpy(zero_copy_only=False) if not ordered.null_count else None
    if numbers is None:
        nulls = np.asarray(ordered.is_null())
        numbers = ordered.fill_null(0).to_numpy()
    else:
        nulls = None
    bits = np.where(numbers < 0, numbers ^ np.iinfo(numbers.dtype).max, numbers)
    return pa.array(bits.view(data_type.to_pandas_dtype()), type=data_type, mask=nulls)
