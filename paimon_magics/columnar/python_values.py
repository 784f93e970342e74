"""Converts values of Arrow columns to Python's without changing them.

Arrow's own `to_pylist` returns a FLOAT as the nearest DOUBLE, which has other digits, and a map as
a list of pairs. The zones of its `datetime` values ignore the hour that occurs twice when summer
time ends.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.time_zones import clock_text, rules_of

_SECOND_OF_UNIT = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# From 0001-01-03 up to 9999-12-30, in seconds since 1970.
_NEAR_S = (-62_135_424_000, 253_402_128_000)
_Convert = Callable[[Any], Any]


def python_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """The values as Python's. A FLOAT is the number with the fewest digits that is that FLOAT, an
    instant a `datetime` with its zone, a struct a dict, a map a dict (a list of pairs where a key
    is not hashable). Columns with dates or times beyond Python's year 9999 become texts."""
    try:
        values = column.to_pylist()
    except (OverflowError, ValueError):
        return _far_times(column)
    convert = _convert(column.type)
    if convert is None:
        return values  # type: ignore[no-any-return]
    return [None if value is None else convert(value) for value in values]


def shortest(value: float) -> float:
    """The number with the fewest digits that is the FLOAT `value`, which Python holds as the DOUBLE
    of the same value."""
    return float(str(np.float32(value)))


def _convert(data_type: pa.DataType) -> _Convert | None:
    """The conversion of each value that is not NULL; None if Arrow's value is right."""
    types = pa.types
    if types.is_float32(data_type):
        return shortest
    if types.is_timestamp(data_type) and data_type.tz:
        rules = rules_of(data_type.tz)
        return lambda value: _instant(value, rules)
    if types.is_map(data_type):
        key = _convert(data_type.key_type) or _same
        item = _of_any(data_type.item_type)
        return lambda pairs: _map([(key(name), item(value)) for name, value in pairs])
    if types.is_list(data_type) or types.is_large_list(data_type):
        if _convert(data_type.value_type) is None:
            return None
        inner = _of_any(data_type.value_type)
        return lambda values: [inner(value) for value in values]
    if types.is_struct(data_type):
        parts = {field.name: _of_any(field.type) for field in data_type}
        if all(part is _same for part in parts.values()):
            return None
        return lambda value: {name: parts[name](part) for name, part in value.items()}
    return None


def _of_any(data_type: pa.DataType) -> _Convert:
    convert = _convert(data_type)
    if convert is None:
        return _same
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


def _instant(value: datetime.datetime, rules: datetime.tzinfo) -> datetime.datetime:
    return value.astimezone(rules)


def _map(pairs: list[tuple[Any, Any]]) -> Any:
    try:
        return dict(pairs)
    except TypeError:  # a nested key, which is not hashable
        return pairs


def _far_times(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """The values as texts: those within Python's years as in columns that have no others."""
    is_time = pa.types.is_timestamp(column.type)
    far = column
    if is_time and column.type.tz:
        try:
            far = pc.local_timestamp(column)
        except pa.ArrowException:  # a zone that is an offset, which Arrow has no rules for
            far = column.cast(pa.timestamp(column.type.unit, "UTC"))
    texts = [_short(str(value)) if value.is_valid else None for value in far.cast("string")]
    if is_time:
        places = _near(column)
        near = python_values(column.take(pa.array(places)))
        for place, value in zip(places.tolist(), near, strict=True):
            texts[place] = clock_text(value)
    return texts


def _short(text: str) -> str:
    """The text of a time without zeros behind its seconds."""
    time, dot, fraction = text.partition(".")
    digits = fraction.rstrip("Z").rstrip("0")
    end = "Z" if fraction.endswith("Z") else ""
    return f"{time}.{digits}{end}" if digits else f"{time}{end}" if dot else text


def _near(column: pa.ChunkedArray | pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The places of the values that are in Python's years in every zone."""
    scale = _SECOND_OF_UNIT[column.type.unit]
    numbers = pc.fill_null(column.cast(pa.int64()), _NEAR_S[1] * scale)
    values = np.asarray(numbers)
    return np.flatnonzero((values >= _NEAR_S[0] * scale) & (values < _NEAR_S[1] * scale))
