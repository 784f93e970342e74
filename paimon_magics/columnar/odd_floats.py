"""Finds columns with NaN or -0.0, for which the bounds of floating-point columns are wrong.

The native writer (pypaimon-rust) leaves NaN out of its bounds, and SQL sorts NaN above all numbers.
Java compares -0.0 as less than 0.0, and in SQL they are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["odd_float_columns"]

_BITS: Mapping[pa.DataType, tuple[npt.DTypeLike, npt.DTypeLike, int]] = {
    pa.float32(): (np.float32, np.int32, -(2**31)),
    pa.float64(): (np.float64, np.int64, -(2**63)),
}
"""By Arrow type: the types of the values and of their bits, and the bits of -0.0 as a number."""


def odd_float_columns(rows: pa.RecordBatch, among: Iterable[str]) -> Iterator[str]:
    """The columns of `among`, of any type, that have NaN or -0.0 at any level. May include a column
    that has such a value only where a list or struct around it is NULL."""
    for name in among:
        if _is_odd(rows.column(name)):
            yield name


def _is_odd(values: pa.Array) -> bool:
    kind = values.type
    if kind in _BITS:
        return _has_odd(values) and (not values.null_count or _has_odd(values.drop_null()))
    if isinstance(values, pa.MapArray):
        return _is_odd(values.keys) or _is_odd(values.items)
    if pa.types.is_struct(kind):
        return any(_is_odd(part) for part in values.flatten())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_odd(values.flatten())
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
