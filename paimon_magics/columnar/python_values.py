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

from paimon_magics.columnar.time_zones import rules_of

_Convert = Callable[[Any], Any]


def python_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """The values as Python's. A FLOAT is the number with the fewest digits that is that FLOAT, an
    instant a `datetime` with its zone, a struct a dict, a map a dict (a list of pairs where a key
    is not hashable). A date or time beyond Python's years, 1 to 9999, is a text."""
    try:
        values = column.to_pylist()
    except (OverflowError, ValueError):
        return [_value(scalar) for scalar in column]
    convert = _convert(column.type)
    if convert is None:
        return values  # type: ignore[no-any-return]
    try:
        return [None if value is None else convert(value) for value in values]
    except (OverflowError, ValueError):  # at the ends of these years, in another zone
        return [_value(scalar) for scalar in column]


def beyond_years(column: pa.ChunkedArray | pa.Array) -> str | None:
    """The text of a date or time of the column that is not in Python's years, 1 to 9999; None
    without one."""
    if not (pa.types.is_date32(column.type) or pa.types.is_timestamp(column.type)):
        return None
    for end in pc.min_max(column).values():
        try:
            end.as_py()
        except (OverflowError, ValueError):
            return _far_text(end)
    return None


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


def _value(scalar: pa.Scalar) -> Any:
    """A value of a column that has dates or times beyond Python's year 9999, which are texts."""
    if not scalar.is_valid:
        return None
    types = pa.types
    if types.is_map(scalar.type):
        pairs = [tuple(map(_value, pair.values())) for pair in scalar.values]
        return _map(pairs)
    if types.is_list(scalar.type) or types.is_large_list(scalar.type):
        return [_value(element) for element in scalar.values]
    if types.is_struct(scalar.type):
        return {name: _value(part) for name, part in scalar.items()}
    try:
        return _of_any(scalar.type)(scalar.as_py())
    except (OverflowError, ValueError):
        return _far_text(scalar)


def _far_text(scalar: pa.Scalar) -> str:
    far = pa.array([scalar.value], pa.int32() if pa.types.is_date32(scalar.type) else pa.int64())
    far = far.view(scalar.type)
    if pa.types.is_timestamp(scalar.type) and scalar.type.tz:
        try:
            far = pc.local_timestamp(far)
        except pa.ArrowException:  # a zone that is an offset, which Arrow has no rules for
            far = far.cast(pa.timestamp(scalar.type.unit, "UTC"))
    return _short(str(far.cast("string")[0]))


def _short(text: str) -> str:
    """The text of a time without zeros behind its seconds."""
    time, dot, fraction = text.partition(".")
    digits = fraction.rstrip("Z").rstrip("0")
    end = "Z" if fraction.endswith("Z") else ""
    return f"{time}.{digits}{end}" if digits else f"{time}{end}" if dot else text
