"""Collects what a manifest says of a file's columns: least and greatest values, number of NULLs.

Source: the `SimpleColStatsCollector`s of Paimon 2.0.0 and `ParquetSimpleStatsExtractor`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.odd_floats import odd_float_columns

__all__ = ["Bounds", "BoundsCollector", "has_bounds", "truncated_greatest", "truncated_least"]

_SURROGATES = range(0xD800, 0xE000)
_CODE_POINT_MAX = 0x10FFFF


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of a column's values in a file, as Python's values. `least` and `greatest` are
    None if they are not known; a longer text or binary may be cut, so that all values lie between
    them all the same."""

    least: Any
    greatest: Any
    null_count: int


class BoundsCollector:
    """The bounds of one column, batch by batch.

    With a `length`, texts and binaries are cut to so many characters or bytes
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
        found = pc.min_max(values)
        least, greatest = found["min"], found["max"]
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
    """Whether values of a type have a least and a greatest one in a manifest.

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

    The last character or byte that can be increased is, and what follows it is left out.
    """
    if len(value) <= length:
        return value
    if isinstance(value, bytes):
        kept = value[:length].rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
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
