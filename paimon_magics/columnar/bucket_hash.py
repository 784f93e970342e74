"""Computes Paimon's bucket of each row, a column at a time and bit for bit equal to Java's.

Java hashes the bytes of a `BinaryRow` of the bucket key columns with 32-bit Murmur3 (seed 42) and
takes `abs(hash % buckets)`. The layout is that of `BinaryRow` and `AbstractBinaryWriter`: one
byte of row kind and the null bits, rounded up to eight bytes; one eight-byte slot per field; then a
variable part. The hash is `MurmurHashUtils.hashBytesByWords`; `mod` is `ModBucketFunction`, `hive`
is `HiveBucketFunction`.

No Python code runs for each row. Types that Paimon refuses as keys (arrays, maps, rows) are not
supported.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.buffers import (
    Bytes,
    Ints,
    bytes_in,
    decimal_bytes,
    decimal_words,
    is_bytes,
    numbers_in,
    stored_numbers,
)

SEED = 42
_INLINE_BYTES_MAX = 7  # longer strings live in the variable part
_COMPACT_DECIMAL_PRECISION_MAX = 18
_WIDE_DECIMAL_BYTES = 16
_WIDE_TIMESTAMP_BYTES = 8


def default_bucket(columns: Sequence[pa.Array], buckets: int) -> npt.NDArray[np.int32]:
    """The bucket of every row under `bucket-function.type=default`.

    `columns` are the bucket key columns in the order of the `bucket-key` option, all of one
    length, with the Arrow types that Paimon maps its types to. Java: `DefaultBucketFunction`.
    """
    hashes = binary_row_hash(columns)
    # Java's % keeps the dividend's sign, as numpy's fmod does.
    remainders = np.fmod(hashes.astype(np.int64), buckets)
    return np.asarray(np.abs(remainders), dtype=np.int32)


def mod_bucket(column: pa.Array, buckets: int) -> npt.NDArray[np.int32]:
    """The bucket of every row under `bucket-function.type=mod`, with one INT or BIGINT key column.

    A NULL counts as 0: Java reads the slot of the binary row, which is zero for NULL.
    """
    values = pc.fill_null(column, 0).to_numpy().astype(np.int64)
    remainders: npt.NDArray[np.int32] = np.mod(values, buckets).astype(np.int32)
    return remainders


def hive_bucket(columns: Sequence[pa.Array], buckets: int) -> npt.NDArray[np.int32]:
    """The bucket of every row under `bucket-function.type=hive`, as `default_bucket`. Raises
    TypeError for decimals and timestamps."""
    hashes = np.zeros(len(columns[0]), dtype=np.uint32)
    for column in columns:
        values = np.where(np.asarray(column.is_null()), np.uint32(0), _hive_hash(column))
        hashes = hashes * np.uint32(31) + values
    positive = (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64)
    return np.asarray(positive % buckets, dtype=np.int32)


def _hive_hash(column: pa.Array) -> npt.NDArray[np.uint32]:
    """Java's `HiveHasher` of each value; places of NULLs have arbitrary numbers."""
    data_type = column.type
    if is_bytes(data_type):
        return _hive_hash_of_bytes(column)
    if pa.types.is_decimal(data_type) or pa.types.is_timestamp(data_type):
        raise TypeError(f"{data_type} can't be a bucket key of Hive's function")
    values = _fixed_width(column)
    if pa.types.is_floating(data_type):
        # Java has one NaN, and -0.0 counts as 0.0.
        values = np.where(values == 0, 0, np.where(np.isnan(values), np.nan, values))
        values = values.astype(data_type.to_pandas_dtype())
        values = values.view(np.int32 if data_type == pa.float32() else np.int64)
    longs = values.astype(np.int64).view(np.uint64)
    if values.dtype == np.int64:
        longs = longs ^ (longs >> np.uint64(32))
    return (longs & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def _hive_hash_of_bytes(column: pa.Array) -> npt.NDArray[np.uint32]:
    """The values are sorted by length, longest first, so that every round works on a prefix."""
    data, offsets = bytes_in(column.cast(pa.large_binary()))
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    starts, sorted_lengths = offsets[:-1][order], lengths[order]
    state = np.zeros(len(order), dtype=np.uint32)
    signed = data.view(np.int8)
    for index in range(int(sorted_lengths[0]) if len(order) else 0):
        active = int(np.searchsorted(-sorted_lengths, -index, side="left"))
        added = signed[starts[:active] + index].astype(np.int32).view(np.uint32)
        state[:active] = state[:active] * np.uint32(31) + added
    hashes = np.empty(len(order), dtype=np.uint32)
    hashes[order] = state
    return hashes


def binary_row_hash(columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
    """Java's `BinaryRow.hashCode()` of each row over `columns`, as int32."""
    rows = len(columns[0])
    null_bytes = (len(columns) + 63 + 8) // 64 * 8
    fixed_bytes = null_bytes + 8 * len(columns)
    fixed = np.zeros((rows, fixed_bytes), dtype=np.uint8)
    variable: list[tuple[Bytes, Ints, Ints, Ints]] = []
    cursor = np.full(rows, fixed_bytes, dtype=np.int64)
    for position, column in enumerate(columns):
        nulls = np.asarray(column.is_null())
        bit = position + 8
        fixed[nulls, bit // 8] |= np.uint8(1 << (bit % 8))
        slot = fixed[:, null_bytes + 8 * position : null_bytes + 8 * position + 8]
        part = _write_field(slot, column, nulls, cursor)
        if part is not None:
            variable.append(part)
    return _murmur3(_lay_out(fixed, cursor, variable), cursor)


def _write_field(
    slot: Bytes, column: pa.Array, nulls: npt.NDArray[np.bool_], cursor: Ints
) -> tuple[Bytes, Ints, Ints, Ints] | None:
    """Fill one field's slot; return its addition to the variable part and advance `cursor`.

    The addition is (bytes, start of each row's bytes, their length, where they go in the row).
    """
    data_type = column.type
    if pa.types.is_decimal(data_type):
        if data_type.precision <= _COMPACT_DECIMAL_PRECISION_MAX:
            _store(slot, decimal_words(column)[:, 0], nulls)
            return None
        return _wide_decimal(slot, column, nulls, cursor)
    if pa.types.is_timestamp(data_type) and data_type.unit in ("us", "ns"):
        return _wide_timestamp(slot, column, nulls, cursor)
    if is_bytes(data_type):
        return _bytes_field(slot, column, nulls, cursor)
    _store(slot, _fixed_width(column), nulls)
    return None


def _fixed_width(column: pa.Array) -> npt.NDArray[np.generic]:
    """The values as the numbers that Java stores; places of NULLs have arbitrary numbers."""
    numbers = stored_numbers(column)
    if pa.types.is_integer(numbers.type) or pa.types.is_floating(numbers.type):
        return numbers_in(numbers, numbers.type.to_pandas_dtype())
    raise TypeError(f"{column.type} can't be a bucket key")


def _store(slot: Bytes, values: npt.NDArray[np.generic], nulls: npt.NDArray[np.bool_]) -> None:
    width = values.dtype.itemsize
    slot[:, :width] = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), width)
    slot[nulls] = 0


def _store_offset(slot: Bytes, offset: Ints, low: Ints) -> None:
    _words = (offset << 32) | low
    slot[:] = np.ascontiguousarray(_words).view(np.uint8).reshape(len(_words), 8)


def _wide_decimal(
    slot: Bytes, column: pa.Array, nulls: npt.NDArray[np.bool_], cursor: Ints
) -> tuple[Bytes, Ints, Ints, Ints]:
    # Java reserves the 16 bytes for a NULL too.
    big, leading = decimal_bytes(decimal_words(column))
    length = np.where(nulls, 0, 16 - leading).astype(np.int64)
    where = cursor.copy()
    _store_offset(slot, where, length)
    cursor += _WIDE_DECIMAL_BYTES
    starts = np.arange(len(column), dtype=np.int64) * 16 + leading
    return big.reshape(-1), starts, length, where


def _wide_timestamp(
    slot: Bytes, column: pa.Array, nulls: npt.NDArray[np.bool_], cursor: Ints
) -> tuple[Bytes, Ints, Ints, Ints]:
    per_milli, to_nanos = (1_000, 1_000) if column.type.unit == "us" else (1_000_000, 1)
    raw = numbers_in(column.view(pa.int64()), np.int64).astype(np.int64)
    millis = np.floor_divide(raw, per_milli)
    nanos = (raw - millis * per_milli) * to_nanos
    where = cursor.copy()
    _store_offset(slot, where, np.where(nulls, 0, nanos))
    cursor += _WIDE_TIMESTAMP_BYTES
    rows = len(raw)
    length = np.where(nulls, 0, _WIDE_TIMESTAMP_BYTES).astype(np.int64)
    starts = np.arange(rows, dtype=np.int64) * _WIDE_TIMESTAMP_BYTES
    return np.ascontiguousarray(millis).view(np.uint8), starts, length, where


def _bytes_field(
    slot: Bytes, column: pa.Array, nulls: npt.NDArray[np.bool_], cursor: Ints
) -> tuple[Bytes, Ints, Ints, Ints]:
    data, offsets = bytes_in(column.cast(pa.large_binary()))
    starts = offsets[:-1]
    length = np.where(nulls, 0, offsets[1:] - starts)
    inline = length <= _INLINE_BYTES_MAX
    where = cursor.copy()
    _store_offset(slot, where, length)
    slot[inline] = 0
    for index in range(_INLINE_BYTES_MAX):
        rows = np.flatnonzero(inline & (length > index))
        slot[rows, index] = data[starts[rows] + index]
    short = np.flatnonzero(inline & ~nulls)
    slot[short, 7] = 0x80 | length[short].astype(np.uint8)
    stored = np.where(inline, 0, length)
    cursor += (stored + 7) // 8 * 8
    return data, starts, stored, where


def _lay_out(
    fixed: Bytes, sizes: Ints, variable: Sequence[tuple[Bytes, Ints, Ints, Ints]]
) -> Bytes:
    """All rows' bytes, one after the other; row i takes `sizes[i]` bytes."""
    rows, fixed_bytes = fixed.shape
    if not variable or int(sizes.sum()) == rows * fixed_bytes:
        return fixed.reshape(-1)
    row_starts = np.cumsum(sizes) - sizes
    flat = np.zeros(int(sizes.sum()), dtype=np.uint8)
    flat[(row_starts[:, None] + np.arange(fixed_bytes)).reshape(-1)] = fixed.reshape(-1)
    for data, starts, length, where in variable:
        total = int(length.sum())
        if not total:
            continue
        within = np.arange(total) - np.repeat(np.cumsum(length) - length, length)
        flat[np.repeat(row_starts + where, length) + within] = data[
            np.repeat(starts, length) + within
        ]
    return flat


def _murmur3(flat: Bytes, sizes: Ints) -> npt.NDArray[np.int32]:
    """Murmur3-32 of each row's words. Rows are sorted by length, longest first, so that every round
    works on a prefix of them."""
    words = flat.view("<u4")
    counts = sizes // 4
    starts = np.cumsum(counts) - counts
    order = np.argsort(-counts, kind="stable")
    counts_sorted = counts[order]
    starts_sorted = starts[order]
    state = np.full(len(sizes), SEED, dtype=np.uint32)
    rounds = int(counts_sorted[0]) if len(counts_sorted) else 0
    for index in range(rounds):
        active = int(np.searchsorted(-counts_sorted, -index, side="left"))
        mixed = words[starts_sorted[:active] + index] * np.uint32(0xCC9E2D51)
        mixed = _rotate(mixed, 15) * np.uint32(0x1B873593)
        head = _rotate(state[:active] ^ mixed, 13)
        state[:active] = head * np.uint32(5) + np.uint32(0xE6546B64)
    state ^= (counts_sorted * 4).astype(np.uint32)
    state ^= state >> np.uint32(16)
    state *= np.uint32(0x85EBCA6B)
    state ^= state >> np.uint32(13)
    state *= np.uint32(0xC2B2AE35)
    state ^= state >> np.uint32(16)
    hashes = np.empty(len(sizes), dtype=np.uint32)
    hashes[order] = state
    return hashes.view(np.int32)


def _rotate(values: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))
