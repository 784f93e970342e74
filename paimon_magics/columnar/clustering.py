"""Keys by which rows are clustered: rows that are close in several columns get close keys. The keys
equal those of Paimon's `ZIndexer` and `HilbertIndexer`, and need no Python code for each row.

The keys are binaries of one length that sort as Java's do. Oddities of Java's order are kept:
decimals on a Z curve are ordered by their first bytes, and NULL is least there, but greatest on a
Hilbert curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

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
    stored_numbers,
)
from paimon_magics.columnar.key_numbers import in_java_order

_WIDTH = 8
_HILBERT_BITS = 63
_LONG_MAX = np.int64(2**63 - 1)
_SIGN = np.int64(-(2**63))
_TRUE_BYTE = 0x81
_ROWS_AT_ONCE = 8_192  # so few that a processor's cache holds them


def z_order_keys(columns: Sequence[pa.Array], *, var_length_bytes: int = _WIDTH) -> pa.Array:
    """The keys of rows on a Z curve, as fixed-size binaries (`ZIndexer`).

    Texts and binaries contribute their first `var_length_bytes` bytes (Paimon's option
    `zorder.var-length-contribution`), other columns eight. Raises TypeError for a column of a type
    that can't be ordered so.
    """
    return _keys(_interleaved([_z_bytes(column, var_length_bytes) for column in columns]))


def hilbert_keys(columns: Sequence[pa.Array]) -> pa.Array:
    """The keys of rows on a Hilbert curve, as fixed-size binaries (`HilbertIndexer`): 63 bits for
    each column. Java puts zeros before them; here the zeros follow them.

    Java cuts the keys of more than seven columns, so they are no longer in order; this function
    does not cut them. Raises TypeError for a column of a type that can't be ordered so, ValueError
    for fewer than two columns.
    """
    if len(columns) < 2:
        raise ValueError("a Hilbert curve needs two columns or more")
    values = [_hilbert_values(column) for column in columns]
    rows = len(columns[0])
    keys = np.empty((rows, _WIDTH * len(values)), dtype=np.uint8)
    for start in range(0, rows, _ROWS_AT_ONCE):
        end = min(start + _ROWS_AT_ONCE, rows)
        points = _transposed([value[start:end].copy() for value in values])
        keys[start:end] = _interleaved([_big_endian(point << 1) for point in points])
    return _keys(keys)


def row_order(columns: Sequence[pa.Array]) -> Ints:
    """The rows in ascending order of some columns, NULL first, rows with equal values as they are.
    It sorts keys, too, and orders rows by columns as Paimon's strategy `order` does."""
    names = [str(number) for number in range(len(columns))]
    table = pa.table([in_java_order(column) for column in columns], names=names)
    options = [(name, "ascending") for name in names]
    order = pc.sort_indices(table, sort_keys=options, null_placement="at_start")
    return np.asarray(order).astype(np.int64)


def _keys(stored: Bytes) -> pa.Array:
    rows, width = stored.shape
    buffer = pa.py_buffer(np.ascontiguousarray(stored))
    return pa.Array.from_buffers(pa.binary(width), rows, [None, buffer])


def _big_endian(numbers: Ints) -> Bytes:
    return numbers.astype(">i8").view(np.uint8).reshape(len(numbers), _WIDTH)


def _interleaved(columns: Sequence[Bytes]) -> Bytes:
    """The first bits of all columns, then the second ones, and so on. A column without remaining
    bits is skipped (`ZOrderByteUtils.interleaveBits`)."""
    parts = []
    for place in range(max(column.shape[1] for column in columns)):
        there = [column[:, place] for column in columns if column.shape[1] > place]
        if len(there) > _WIDTH:
            bits = np.unpackbits(np.stack(there, axis=1)[:, :, None], axis=2)
            parts.append(np.packbits(bits.swapaxes(1, 2).reshape(len(bits), -1), axis=1))
            continue
        words = np.zeros(len(columns[0]), dtype=np.uint64)
        spread = _spread_bytes(len(there))
        for number, column in enumerate(there):
            words |= spread[number][column]
        stored = words.astype(">u8").view(np.uint8).reshape(len(words), _WIDTH)
        parts.append(stored[:, _WIDTH - len(there) :])
    return np.concatenate(parts, axis=1)


@cache
def _spread_bytes(count: int) -> tuple[npt.NDArray[np.uint64], ...]:
    """For each of `count` columns: where the bits of each byte lie among those of all columns."""
    values = np.arange(256, dtype=np.uint64)
    tables = []
    for number in range(count):
        spread = np.zeros(256, dtype=np.uint64)
        for bit in range(8):
            place = bit * count + count - 1 - number
            spread |= (values >> np.uint64(bit) & np.uint64(1)) << np.uint64(place)
        tables.append(spread)
    return tuple(tables)


def _z_bytes(column: pa.Array, var_length_bytes: int) -> Bytes:
    """Bytes of each row, the same number of a column, that sort as the values do; all zero for
    NULL (`ZIndexer.TypeVisitor`, `ZOrderByteUtils`)."""
    data_type = column.type
    nulls = np.asarray(column.is_null())
    if is_bytes(data_type):
        stored = _first_bytes(column, var_length_bytes)
    elif pa.types.is_boolean(data_type):
        stored = np.zeros((len(column), _WIDTH), dtype=np.uint8)
        stored[np.asarray(pc.fill_null(column, False)), 0] = _TRUE_BYTE
    elif pa.types.is_decimal(data_type):
        stored = _decimal_bytes(column)
    else:
        if pa.types.is_floating(data_type):
            numbers = _double_bits(column)
            numbers ^= numbers >> 31 | _SIGN
        else:
            numbers = _whole_numbers(column) ^ _SIGN
        stored = _big_endian(numbers)
    stored[nulls] = 0
    return stored


def _hilbert_values(column: pa.Array) -> Ints:
    """`HilbertIndexer.TypeVisitor`."""
    data_type = column.type
    nulls = np.asarray(column.is_null())
    if is_bytes(data_type):
        values = _leading_number(column)
    elif pa.types.is_boolean(data_type):
        values = np.where(np.asarray(pc.fill_null(column, False)), _LONG_MAX, np.int64(0))
    elif pa.types.is_decimal(data_type):
        whole = column.cast(pa.decimal128(38, 0), safe=False)
        values = _decimal_words(whole)[:, 0].copy()
    elif pa.types.is_floating(data_type):
        values = _double_bits(column)
    elif pa.types.is_int8(data_type):
        values = _whole_numbers(column) & 0xFF
    else:
        values = _whole_numbers(column)
    values[nulls] = _LONG_MAX
    return values


def _transposed(points: list[Ints]) -> list[Ints]:
    """The index of each point on the curve, its bits divided among the dimensions (Skilling's
    algorithm, as `HilbertCurve.transposedIndex` has it)."""
    first, last = points[0], points[-1]
    for bit in range(_HILBERT_BITS - 1, 0, -1):
        below = np.int64((1 << bit) - 1)
        for number, point in enumerate(points):
            is_set = -(point >> bit & 1)
            if not number:
                first ^= below & is_set
                continue
            exchanged = (first ^ point) & below & ~is_set
            first ^= exchanged | below & is_set
            point ^= exchanged
    for before, point in pairwise(points):
        point ^= before
    undone = np.zeros(len(first), dtype=np.int64)
    for bit in range(_HILBERT_BITS - 1, 0, -1):
        undone ^= -(last >> bit & 1) & np.int64((1 << bit) - 1)
    return [point ^ undone for point in points]


def _whole_numbers(column: pa.Array) -> Ints:
    """Whole numbers, days, times and the milliseconds of timestamps; NULL as 0."""
    numbers = stored_numbers(column)
    if not pa.types.is_integer(numbers.type):
        raise TypeError(f"rows can't be clustered by {column.type}")
    filled = np.array(pc.fill_null(numbers, 0), dtype=np.int64)
    unit = column.type.unit if pa.types.is_timestamp(column.type) else "ms"
    return np.floor_divide(filled, {"us": 1000, "ns": 1_000_000}.get(unit, 1))


def _double_bits(column: pa.Array) -> Ints:
    """`Double.doubleToLongBits`: there is one NaN."""
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.float64)
    return np.where(np.isnan(values), np.float64(np.nan), values).view(np.int64)


def _first_bytes(column: pa.Array, count: int) -> Bytes:
    """The first bytes of each value, zeros behind shorter ones."""
    data, starts, lengths = _parts(column)
    leading = np.zeros((len(column), count), dtype=np.uint8)
    for place in range(min(count, int(lengths.max(initial=0)))):
        rows = np.flatnonzero(lengths > place)
        leading[rows, place] = data[starts[rows] + place]
    return leading


def _leading_number(column: pa.Array) -> Ints:
    """The first eight bytes as a number, zeros before shorter values
    (`ConvertBinaryUtil.convertBytesToLong`)."""
    lengths = np.minimum(_parts(column)[2], _WIDTH)
    numbers = np.ascontiguousarray(_first_bytes(column, _WIDTH)).view(">u8").reshape(-1)
    shifts = (8 * (_WIDTH - lengths)).astype(np.uint64)
    moved = np.where(lengths > 0, numbers.astype(np.uint64) >> shifts, np.uint64(0))
    return moved.view(np.int64)


def _parts(column: pa.Array) -> tuple[Bytes, Ints, Ints]:
    """All bytes of texts or binaries, where each value starts, and how long it is; NULL is
    empty."""
    data, offsets = bytes_in(pc.fill_null(column.cast(pa.large_binary()), b""))
    return data, offsets[:-1], np.diff(offsets)


def _decimal_words(column: pa.Array) -> Ints:
    """The 128-bit unscaled values as lower and upper 64 bits; NULL as 0."""
    return np.where(np.asarray(column.is_null())[:, None], np.int64(0), decimal_words(column))


def _decimal_bytes(column: pa.Array) -> Bytes:
    """The first eight bytes of the unscaled values as Java's `BigInteger.toByteArray` has them."""
    big, leading = decimal_bytes(_decimal_words(column))
    padded = np.concatenate([big, np.zeros((len(big), _WIDTH), dtype=np.uint8)], axis=1)
    return np.take_along_axis(padded, leading[:, None] + np.arange(_WIDTH), axis=1)
