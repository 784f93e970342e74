"""Decides whether values, or values between two bounds of a file or row group, meet a condition.

Light to import, since Spark's tasks load it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.planning.reads.predicates import ColumnPredicate

__all__ = ["can_have", "matching", "may_match"]

_Bools = npt.NDArray[np.bool_]


def may_match(
    one: ColumnPredicate,
    least: pa.Array,
    greatest: pa.Array,
    nulls: _Bools,
    all_null: _Bools,
) -> _Bools:
    """Marks the files (or row groups) that can meet the condition, by their bounds of its column.

    Unknown bounds are NULL. `nulls` marks those with NULLs in the column, `all_null` those with
    nothing else.
    """
    match one.operator:
        case "is null":
            return nulls
        case "is not null":
            return ~all_null
        case "remainder":  # bounds tell nothing of it
            return ~all_null
        case "in":
            found = np.zeros(len(least), dtype=bool)
            for value in one.values:
                found |= _compared("=", value, least, greatest)
        case operator:
            found = _compared(operator, one.values[0], least, greatest)
    return found & ~all_null


def can_have(one: ColumnPredicate, data_type: pa.DataType) -> bool:
    """Whether a column of that type can have the values of the condition."""
    try:
        pa.array(one.values, data_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return False
    return True


def matching(one: ColumnPredicate, values: pa.Array) -> _Bools:
    """Marks the values that meet the condition. Where the column's type can't have a value of the
    condition all are marked: a caller that needs to know evaluates the condition itself."""
    if not can_have(one, values.type):
        return np.ones(len(values), dtype=bool)
    if one.operator == "remainder":
        return _with_remainder(values, one.values)
    if one.operator == "in":
        return np.asarray(pc.is_in(values, value_set=pa.array(one.values, values.type)))
    nulls = np.asarray(values.is_null())
    return may_match(one, values, values, nulls, nulls)


def _with_remainder(values: pa.Array, wanted: Sequence[object]) -> _Bools:
    """Marks the integers that leave the remainder `wanted[1]`, divided by `wanted[0]`."""
    divisor, remainder = np.array(wanted, dtype=np.int64)
    found: _Bools = np.array(values.is_valid())
    integers = np.asarray(pc.fill_null(values, 0)).astype(np.int64, copy=False)
    found &= np.fmod(integers, divisor) == remainder
    return found


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
    kept = np.ones(len(least), dtype=bool)
    for compare, bounds in conditions:
        kept &= np.asarray(pc.fill_null(compare(bounds, wanted), fill_value=True))
    return kept
