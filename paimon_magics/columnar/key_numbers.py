"""Numbers that stand for keys: those that sort and compare as keys and floating-point numbers do,
and those that a hash of Spark's `xxhash64` carries.

Of one BIGINT, or one DECIMAL of at most 18 digits, which Spark holds as such a number without its
point, the hash is a bijection of 64 bits: each step is a multiplication by an odd number, a
rotation, or a shift that loses nothing. So the hash carries the number, and all steps can be undone
in reverse order. Source: `XXH64.hashLong` of Spark, `HashExpression`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.buffers import decimals_of, numbers_in

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


DIGITS_MAX = 18
"""The digits of a DECIMAL that Spark holds as a number of 64 bits (`Decimal.MAX_LONG_DIGITS`)."""

_SEED = 42
_PRIME_1 = 0x9E3779B185EBCA87
_PRIME_2 = 0xC2B2AE3D27D4EB4F
_PRIME_3 = 0x165667B19E3779F9
_PRIME_4 = 0x85EBCA77C2B2AE63
_PRIME_5 = 0x27D4EB2F165667C5
_BYTES = 8
_MODULUS = 1 << 64

_Bits = npt.NDArray[np.uint64]


def _numbers_of_hashes(hashes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The BIGINTs that have these hashes."""
    bits = hashes.view(np.uint64)
    bits = bits ^ (bits >> np.uint64(32))
    bits *= _inverse(_PRIME_3)
    bits ^= (bits >> np.uint64(29)) ^ (bits >> np.uint64(58))
    bits *= _inverse(_PRIME_2)
    bits ^= bits >> np.uint64(33)
    bits -= np.uint64(_PRIME_4)
    bits *= _inverse(_PRIME_1)
    bits = _rotated_right(bits, 27)
    bits ^= np.uint64((_SEED + _PRIME_5 + _BYTES) % _MODULUS)
    bits *= _inverse(_PRIME_1)
    bits = _rotated_right(bits, 31)
    bits *= _inverse(_PRIME_2)
    return bits.view(np.int64)


def decimals_of_hashes(hashes: pa.Array, data_type: pa.Decimal128Type) -> pa.Array:
    """The values of a DECIMAL column that have these hashes (int64, NULL for NULL).

    Raises ValueError for a hash of a number with more digits than the type has: then Spark, or its
    replacement, hashes such values in another way.
    """
    numbers = _numbers_of_hashes(numbers_in(hashes, np.int64))
    validity = None
    if hashes.null_count:
        valid = np.asarray(hashes.is_valid())
        numbers[~valid] = 0
        validity = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    limit = 10**data_type.precision
    if len(numbers) and not -limit < int(numbers.min()) <= int(numbers.max()) < limit:
        raise ValueError(
            f"Spark's xxhash64 of a {data_type} is not the hash of its number: the values can't be "
            "derived from it"
        )
    return decimals_of(numbers, data_type, validity)


def _rotated_right(bits: _Bits, count: int) -> _Bits:
    return (bits >> np.uint64(count)) | (bits << np.uint64(64 - count))


def _inverse(factor: int) -> np.uint64:
    return np.uint64(pow(factor, -1, _MODULUS))
