"""Values of Arrow columns as Python's, none of them changed on the way.

Arrow's own `to_pylist` hands a FLOAT over as the nearest DOUBLE, which has other digits, a map as a
list of pairs, and an instant of a zone by rules that know nothing of the hour that comes twice.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.time_zones import rules_of

__all__ = ["python_values", "shortest"]

_Convert = Callable[[Any], Any]


def python_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """The values as Python's: a FLOAT as the number of the fewest digits that is that FLOAT, an
    instant as a `datetime` with its zone, a map as a dict (as a list of pairs where a key can't be
    one's), structs as dicts. Dates and times beyond Python's year 9999 are texts."""
    try:
        values = column.to_pylist()
    except (OverflowError, ValueError):
        return _far_times(column)
    convert = _convert(column.type)
    if convert is None:
        return values  # type: ignore[no-any-return]
    return [None if value is None else convert(value) for value in values]


def shortest(value: float) -> float:
    """Of a FLOAT, which Python has as the DOUBLE of the same value: the number with the fewest
    digits that is this FLOAT."""
    return float(str(np.float32(value)))


def _convert(data_type: pa.DataType) -> _Convert | None:
    """What is done with each value that is not NULL; None where it stays as Arrow gives it."""
    types = pa.types
    if types.is_float32(data_type):
        return shortest
    if types.is_timestamp(data_type) and data_type.tz:
        rules = rules_of(data_type.tz)
        return lambda value: _instant(value, rules)
    if types.is_map(data_type):
        key = _convert(data_type.key_type) or _same
        item = _of_any(data_type.item_type)
        return lambda pairs: _map([(key(one), item(value)) for one, value in pairs])
    if types.is_list(data_type) or types.is_large_list(data_type):
        if _convert(data_type.value_type) is None:
            return None
        inner = _of_any(data_type.value_type)
        return lambda values: [inner(value) for value in values]
    if types.is_struct(data_type):
        parts = {one.name: _of_any(one.type) for one in data_type}
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
    except TypeError:  # a key of several parts
        return pairs


def _far_times(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type) and column.type.tz:
        try:
            column = pc.local_timestamp(column)
        except pa.ArrowException:  # a zone that is an offset, which Arrow has no rules for
            column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    texts = column.cast("string")
    return [str(value) if value.is_valid else None for value in texts]
