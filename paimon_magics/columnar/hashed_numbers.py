"""Recovers the numbers from hashes of Spark's `xxhash64`.

Of one BIGINT, or one DECIMAL of at most 18 digits, which Spark holds as such a number without its
point, the hash is a bijection of 64 bits: each step is a multiplication by an odd number, a
rotation, or a shift that loses nothing. So the hash carries the number, and all steps can be undone
in reverse order. Source: `XXH64.hashLong` of Spark, `HashExpression`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.buffers import decimals_of, numbers_in

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
