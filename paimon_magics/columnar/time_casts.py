"""Casts between numbers of seconds, dates, times of day and timestamps without a zone.

Source: Paimon's `CastExecutors` and `DateTimeUtils`. All functions take the values, their type, the
wanted type, and its Arrow type.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.statements.data_types import AtomicType

__all__ = [
    "date_to_timestamp",
    "masked",
    "seconds_to_timestamp",
    "time_to_timestamp",
    "timestamp_to_date",
    "timestamp_to_seconds",
    "timestamp_to_time",
    "timestamp_to_timestamp",
]

_DAY_MS = 86_400_000


def masked(values: npt.NDArray[Any], like: pa.Array) -> pa.Array:
    """The values as an array, NULL where `like` is."""
    return pa.array(values, mask=np.asarray(like.is_null()) if like.null_count else None)


def seconds_to_timestamp(
    array: pa.Array, stored: AtomicType, wanted: AtomicType, target: pa.DataType
) -> pa.Array:
    """Seconds since 1970 as a timestamp."""
    return array.cast(pa.int64()).view(pa.timestamp("s")).cast(target)


def timestamp_to_seconds(
    array: pa.Array, stored: AtomicType, wanted: AtomicType, target: pa.DataType
) -> pa.Array:
    """Milliseconds since 1970 divided by 1000, towards zero. A number that does not fit the wanted
    type keeps its low bits."""
    millis = np.asarray(pc.fill_null(_millis(array), 0))
    seconds = np.sign(millis) * (np.abs(millis) // 1000)
    return pc.cast(masked(seconds, array), target, safe=False)


def _millis(array: pa.Array) -> pa.Array:
    """Whole milliseconds since 1970, rounded down."""
    per_milli = {"s": None, "ms": 1, "us": 1000, "ns": 1_000_000}[array.type.unit]
    plain = array.view(pa.int64())
    if per_milli is None:
        return pc.multiply(plain, 1000)
    values = np.floor_divide(np.asarray(pc.fill_null(plain, 0)), per_milli)
    return masked(values, array)


def timestamp_to_date(
    array: pa.Array, stored: AtomicType, wanted: AtomicType, target: pa.DataType
) -> pa.Array:
    """The date of a timestamp."""
    days = np.floor_divide(np.asarray(pc.fill_null(_millis(array), 0)), _DAY_MS)
    return masked(days.astype(np.int32), array).view(target)


def timestamp_to_time(
    array: pa.Array, stored: AtomicType, wanted: AtomicType, target: pa.DataType
) -> pa.Array:
    """The time of day of a timestamp."""
    millis = np.mod(np.asarray(pc.fill_null(_millis(array), 0)), _DAY_MS)
    return masked(millis.astype(np.int32), array).view(pa.time32("ms")).cast(target)


def timestamp_to_timestamp(
    array: pa.Array, stored: AtomicType, wanted: AtomicType, target: pa.DataType
) -> pa.Array:
    """Cut the digits beyond the wanted precision: towards zero for 3 digits and fewer, downwards
    for more, as in `DateTimeUtils.truncate`."""
    (digits,) = wanted.parameters
    if digits >= stored.parameters[0]:
        return pc.cast(array, target, safe=False)
    if digits <= 3:
        millis = np.asarray(pc.fill_null(_millis(array), 0))
        unit = 10 ** (3 - digits)
        # Only values with more digits than the type are cut at all.
        kept = np.sign(millis) * (np.abs(millis) // unit) * unit
        found = masked(kept, array).view(pa.timestamp("ms"))
        return found.cast(pa.timestamp("ms", array.type.tz)).cast(target)
    per_second = {"us": 6, "ns": 9}[array.type.unit]
    values = np.asarray(pc.fill_null(array.view(pa.int64()), 0))
    unit = 10 ** max(per_second - digits, 0)
    kept = np.floor_divide(values, unit) * unit
    return pc.cast(masked(kept, array).view(array.type), target, safe=False)


def date_to_timestamp(
    array: pa.Array, stored: AtomicType, wanted: AtomicType, target: pa.DataType
) -> pa.Array:
    """The start of a day."""
    days = array.view(pa.int32()).cast(pa.int64())
    return pc.multiply(days, _DAY_MS // 1000).view(pa.timestamp("s")).cast(target)


def time_to_timestamp(
    array: pa.Array, stored: AtomicType, wanted: AtomicType, target: pa.DataType
) -> pa.Array:
    """A time of day on 1970-01-01."""
    millis = array.cast(pa.time32("ms")).view(pa.int32()).cast(pa.int64())
    return millis.view(pa.timestamp("ms")).cast(target)
