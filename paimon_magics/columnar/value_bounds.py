"""Collects a manifest's statistics of a file's columns: least and greatest values, number of NULLs.

Source: the `SimpleColStatsCollector`s of Paimon 2.0.0 and `ParquetSimpleStatsExtractor`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.planning.reads.predicates import ColumnPredicate

_SURROGATES = range(0xD800, 0xE000)
_CODE_POINT_MAX = 0x10FFFF


_BITS: Mapping[pa.DataType, tuple[npt.DTypeLike, npt.DTypeLike, int]] = {
    pa.float32(): (np.float32, np.int32, -(2**31)),
    pa.float64(): (np.float64, np.int64, -(2**63)),
}
"""By Arrow type: the types of the values and of their bits, and the bits of -0.0 as a number."""


_Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The known facts about a column's values in a file, as Python's values. `least` and `greatest`
    are None if they are not known; a longer text or binary may be cut; all values still lie between
    them."""

    least: Any
    greatest: Any
    null_count: int


class BoundsCollector:
    """The bounds of one column, batch by batch.

    With a `length`, texts and binaries are cut to this number of characters or bytes
    (`metadata.stats-mode` = truncate(n)). Without `wants_values` only NULLs are counted.
    """

    def __init__(
        self, data_type: pa.DataType, *, length: int | None = None, wants_values: bool = True
    ) -> None:
        self._length = length
        self._is_known = wants_values and has_bounds(data_type)
        self._least: pa.Scalar | None = None
        self._greatest: pa.Scalar | None = None
        self._nulls = 0

    def add(self, values: pa.Array) -> None:
        """Take the values of a batch into account."""
        self.add_nulls(values)
        self.add_ends(values)

    def add_nulls(self, values: pa.Array) -> None:
        """Count the NULLs of a batch, whose least and greatest values come by `add_ends`."""
        self._nulls += values.null_count

    def forget_ends(self) -> None:
        """The least and the greatest value are not known."""
        self._is_known = False

    def add_ends(self, values: pa.Array) -> None:
        """Take values into account, but not the number of NULLs among them."""
        if not self._is_known or values.null_count == len(values):
            return
        if pa.types.is_floating(values.type) and _is_odd(values):
            self._is_known = False
            return
        ends = pc.min_max(values)
        least, greatest = ends["min"], ends["max"]
        if self._least is None or pc.less(least, self._least).as_py():
            self._least = least
        if self._greatest is None or pc.greater(greatest, self._greatest).as_py():
            self._greatest = greatest

    def bounds(self) -> Bounds:
        """The bounds of all values so far."""
        if not self._is_known or self._least is None or self._greatest is None:
            return Bounds(None, None, self._nulls)
        try:
            least, greatest = self._least.as_py(), self._greatest.as_py()
        except (OverflowError, ValueError):  # a time beyond Python's years
            return Bounds(None, None, self._nulls)
        if self._length is not None and isinstance(least, str | bytes):
            greatest = truncated_greatest(greatest, self._length)
            least = None if greatest is None else truncated_least(least, self._length)
        return Bounds(least, greatest, self._nulls)


def has_bounds(data_type: pa.DataType) -> bool:
    """Whether a manifest has least and greatest values for a type.

    Timestamps in nanoseconds have none: Java can't take them from the footers of its files.
    """
    if pa.types.is_timestamp(data_type):
        return bool(data_type.unit != "ns")
    return not pa.types.is_nested(data_type) and not pa.types.is_null(data_type)


def truncated_least(value: str | bytes, length: int) -> str | bytes:
    """A value of at most `length` characters or bytes that is not greater."""
    return value[:length]


def truncated_greatest(value: str | bytes, length: int) -> str | bytes | None:
    """A value of at most `length` characters or bytes that is not less; None if there is none.

    The last character or byte that can be increased is increased, and the rest is left out.
    """
    if len(value) <= length:
        return value
    if isinstance(value, bytes):
        prefix = value[:length].rstrip(b"\xff")
        return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None
    for end in range(length, 0, -1):
        following = ord(value[end - 1]) + 1
        if following in _SURROGATES:  # no characters; Java takes them for some, and writes `?`
            following = _SURROGATES.stop
        if following <= _CODE_POINT_MAX:
            return value[: end - 1] + chr(following)
    return None


def _is_odd(values: pa.Array) -> bool:
    rows = pa.RecordBatch.from_arrays([values], ["values"])
    return any(True for _ in odd_float_columns(rows, ["values"]))


# Finds columns with NaN or -0.0, for which the bounds of floating-point columns are wrong.
#
# The native writer (pypaimon-rust) leaves NaN out of its bounds, and SQL sorts NaN above all
# numbers. Java compares -0.0 as less than 0.0, and in SQL they are equal.


def odd_float_columns(rows: pa.RecordBatch, among: Iterable[str]) -> Iterator[str]:
    """The columns of `among`, of any type, that have NaN or -0.0 at any level. May include a column
    that has such a value only where a list or struct around it is NULL."""
    for name in among:
        if _has_odd_value(rows.column(name)):
            yield name


def _has_odd_value(values: pa.Array) -> bool:
    kind = values.type
    if kind in _BITS:
        return _has_odd(values) and (not values.null_count or _has_odd(values.drop_null()))
    if isinstance(values, pa.MapArray):
        return _has_odd_value(values.keys) or _has_odd_value(values.items)
    if pa.types.is_struct(kind):
        return any(_has_odd_value(part) for part in values.flatten())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _has_odd_value(values.flatten())
    return False


def _has_odd(values: pa.Array) -> bool:
    """Whether any place has NaN or -0.0, NULLs included, whose bytes are arbitrary."""
    if not len(values):
        return False
    of_values, of_bits, negative_zero = _BITS[values.type]
    _, data = values.buffers()
    floats = np.frombuffer(data, of_values)[values.offset : values.offset + len(values)]
    if np.isnan(floats.min()):  # the minimum with a NaN is NaN
        return True
    return bool((floats.view(of_bits) == negative_zero).any())


# Decides whether values, or values between two bounds of a file or row group, meet a condition.
#
# Light to import, since Spark's tasks load it.


def may_match(
    predicate: ColumnPredicate,
    least: pa.Array,
    greatest: pa.Array,
    nulls: _Bools,
    all_null: _Bools,
) -> _Bools:
    """Marks the files (or row groups) that can meet the condition, by their bounds of its column.

    Unknown bounds are NULL. `nulls` marks those with NULLs in the column, `all_null` those with
    nothing else.
    """
    match predicate.operator:
        case "is null":
            return nulls
        case "is not null":
            return ~all_null
        case "remainder":  # bounds don't help with it
            return ~all_null
        case "in":
            matches = np.zeros(len(least), dtype=bool)
            for value in predicate.values:
                matches |= _compared("=", value, least, greatest)
        case operator:
            matches = _compared(operator, predicate.values[0], least, greatest)
    return matches & ~all_null


def can_have(predicate: ColumnPredicate, data_type: pa.DataType) -> bool:
    """Whether a column of that type can have the values of the condition."""
    try:
        pa.array(predicate.values, data_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return False
    return True


def matching(predicate: ColumnPredicate, values: pa.Array) -> _Bools:
    """Marks the values that meet the condition. Where the column's type can't have a value of the
    condition all are marked: a caller that needs to know evaluates the condition itself."""
    if not can_have(predicate, values.type):
        return np.ones(len(values), dtype=bool)
    if predicate.operator == "remainder":
        return _with_remainder(values, predicate.values)
    if predicate.operator == "in":
        return np.asarray(pc.is_in(values, value_set=pa.array(predicate.values, values.type)))
    nulls = np.asarray(values.is_null())
    return may_match(predicate, values, values, nulls, nulls)


def _with_remainder(values: pa.Array, wanted: Sequence[object]) -> _Bools:
    """Marks the integers that leave the remainder `wanted[1]`, divided by `wanted[0]`."""
    divisor, remainder = np.array(wanted, dtype=np.int64)
    matches: _Bools = np.array(values.is_valid())
    integers = np.asarray(pc.fill_null(values, 0)).astype(np.int64, copy=False)
    matches &= np.fmod(integers, divisor) == remainder
    return matches


def _compared(operator: str, value: object, least: pa.Array, greatest: pa.Array) -> _Bools:
    try:
        wanted = pa.scalar(value, least.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return np.ones(len(least), dtype=bool)  # the type can't have the value: prune nothing
    conditions = {
        "=": ((pc.less_equal, least), (pc.greater_equal, greatest)),
        "<": ((pc.less, least),),
        "<=": ((pc.less_equal, least),),
        ">": ((pc.greater, greatest),),
        ">=": ((pc.greater_equal, greatest),),
    }[operator]
    matches = np.ones(len(least), dtype=bool)
    for compare, bounds in conditions:
        matches &= np.asarray(pc.fill_null(compare(bounds, wanted), fill_value=True))
    return matches
