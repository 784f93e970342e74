"""The aggregate functions of Paimon's merge engines, on single values.

Source: `org.apache.paimon.mergetree.compact.aggregate`. An aggregator folds an input into an
accumulator (`agg`), retracts an input (`retract`), or folds an input that is older than the
accumulator (`agg_reversed`). Values are Python's, as Arrow's `as_py` gives them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_magics.columnar.roaring import long_bitmap_union
from paimon_magics.errors import JobError, SetupError, UnsupportedStatementError

_EMPTY, _SINGLE_ITEM = 4, 32  # flags of a compact theta sketch


# Unions of serialized sketches and bitmaps, as in Paimon's merge engine.
#
# Only this module uses DataSketches (the extra `sketches`) and pyroaring. Sources: `ThetaSketch`,
# `HllSketchUtil`, `RoaringBitmap32` of Paimon.


def _theta_union(older: bytes, newer: bytes) -> bytes:
    """The union of two theta sketches, compact and ordered. Raises ValueError for bytes that are no
    sketch."""
    sketches = _data_sketches()
    union = sketches.theta_union()
    for part in (older, newer):
        union.update(_read(sketches.compact_theta_sketch, part))
    sketch = bytearray(union.get_result().serialize())
    if sketch[0] > 1:  # Java writes the sampling probability there
        struct.pack_into("<f", sketch, 12, 1.0)
    elif not sketch[5] & _EMPTY:
        sketch[5] |= _SINGLE_ITEM  # Java sets this flag
    return bytes(sketch)


def _hll_union(older: bytes, newer: bytes) -> bytes:
    """The union of two HLL sketches, compact, with 4 bits a slot. Raises ValueError for bytes that
    are no sketch."""
    sketches = _data_sketches()
    last = _read(sketches.hll_sketch, newer)
    union = sketches.hll_union(last.lg_config_k)
    union.update(last)
    union.update(_read(sketches.hll_sketch, older))
    return bytes(union.get_result(sketches.tgt_hll_type.HLL_4).serialize_compact())


def _rbm32_union(older: bytes, newer: bytes) -> bytes:
    """The union of two bitmaps of 32-bit numbers, in the portable format of the Roaring project's
    specification. Raises ValueError for bytes that are no bitmap."""
    from pyroaring import BitMap

    return bytes((_read(BitMap, older) | _read(BitMap, newer)).serialize())


def _read(kind: Any, stored: bytes) -> Any:
    try:
        return kind.deserialize(stored)
    except Exception as error:  # several kinds of C++ exceptions
        raise ValueError(str(error)) from error


def _data_sketches() -> Any:
    try:
        import datasketches
    except ImportError:
        raise SetupError(
            "Merging theta and HLL sketches needs the package `datasketches`, which is not "
            "installed.",
            hint="Install the extra: pip install 'paimon-magics[sketches]', on every machine that "
            "runs Spark's tasks.",
        ) from None
    return datasketches


@dataclass(frozen=True)
class ColumnFunction:
    """A column's aggregate function; `options` are its `fields.<column>.…` without that prefix."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)

    def flag(self, key: str) -> bool:
        """The value of a boolean option; false by default."""
        return self.options.get(key, "false").lower() == "true"


class Aggregator:
    """Folds the values of a column, one key at a time. `reset` begins the next key.

    Raises UnsupportedStatementError for a function that is not offered.
    """

    def __init__(self, column: str, data_type: pa.DataType, function: ColumnFunction) -> None:
        if function.name not in _AGG:
            raise UnsupportedStatementError(
                f"The aggregate function '{function.name}' of `{column}` is not offered for "
                "reading.",
                hint=f"The functions offered are {', '.join(sorted(_AGG))}.",
            )
        self.column = column
        self.type = data_type
        self.function = function
        self._ignores_retracts = function.flag("ignore-retract")
        self.initialised = False

    def reset(self) -> None:
        """Begin the next key."""
        self.initialised = False

    def agg(self, accumulator: Any, value: Any) -> Any:
        """The accumulator with `value` folded in."""
        result, self.initialised = _AGG[self.function.name](self, accumulator, value)
        return result

    def agg_reversed(self, accumulator: Any, value: Any) -> Any:
        """The accumulator with a value folded in that is older than its values."""
        if self.function.name == "collect":
            return self.agg(accumulator, value)
        return self.agg(value, accumulator)

    def retract(self, accumulator: Any, value: Any) -> Any:
        """The accumulator with `value` retracted. Raises JobError if the function can't retract."""
        if self._ignores_retracts:
            return accumulator
        step = _RETRACT.get(self.function.name)
        if step is None:
            raise JobError(
                f"The aggregate function '{self.function.name}' of `{self.column}` can't retract "
                "a row that was deleted or updated.",
                hint=f"Set 'fields.{self.column}.ignore-retract' = 'true' to leave such rows out.",
            )
        return step(self, accumulator, value)


_CHANGES_SINGLE_VALUES = {"listagg", "collect", "nested_update", "nested_partial_update"}


def single_values_stay(functions: Iterable[ColumnFunction]) -> bool:
    """Whether folding a single value into nothing gives that value, for all functions."""
    return not any(function.name in _CHANGES_SINGLE_VALUES for function in functions)


_Step = Callable[[Aggregator, Any, Any], tuple[Any, bool]]


def _of_two(combine: Callable[[Aggregator, Any, Any], Any]) -> _Step:
    """A step that calls `combine` for two values; if one value is NULL, the other value is the
    result."""

    def step(rule: Aggregator, accumulator: Any, value: Any) -> tuple[Any, bool]:
        if accumulator is None or value is None:
            return (value if accumulator is None else accumulator), True
        return combine(rule, accumulator, value), True

    return step


_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def _exact(rule: Aggregator, value: Any) -> Any:
    """The value, rounded to the column's type. For overflow an integer raises JobError, as Java's
    exact arithmetic throws; a decimal becomes NULL."""
    bits = _BITS.get(str(rule.type))
    if bits is not None:
        if not -(1 << bits) <= value < 1 << bits:
            raise JobError(
                f"The values of `{rule.column}` are too large for '{rule.function.name}': {value} "
                f"does not fit {rule.type}.",
                hint="Give the column a wider type.",
            )
        return value
    if isinstance(value, Decimal):
        scaled = round(value, rule.type.scale) if rule.type.scale else value.to_integral_value()
        return scaled if abs(scaled) < 10 ** (rule.type.precision - rule.type.scale) else None
    return _single(value) if pa.types.is_float32(rule.type) else value


def _single(value: float) -> float:
    return float(np.float32(value))


def _divided(rule: Aggregator, accumulator: Any, value: Any) -> Any:
    if accumulator is None or value is None:
        return accumulator
    if str(rule.type) in _BITS:
        quotient = abs(accumulator) // abs(value)
        return _exact(rule, quotient if (accumulator < 0) == (value < 0) else -quotient)
    return _exact(rule, accumulator / value)


def _first(rule: Aggregator, accumulator: Any, value: Any) -> tuple[Any, bool]:
    return (accumulator if rule.initialised else value), True


def _first_non_null(rule: Aggregator, accumulator: Any, value: Any) -> tuple[Any, bool]:
    if rule.initialised or value is None:
        return accumulator, rule.initialised
    return value, True


def _listed(rule: Aggregator, accumulator: Any, value: Any) -> tuple[Any, bool]:
    if value is None or not value.strip():
        return accumulator, True
    if accumulator is None or not accumulator.strip():
        return value, True
    delimiter = rule.function.options.get("list-agg-delimiter", ",")
    if not rule.function.flag("distinct"):
        return accumulator + delimiter + value, True
    known = set(accumulator.split(delimiter))
    for token in value.split(delimiter):
        if token.strip() and token not in known:
            known.add(token)
            accumulator = accumulator + delimiter + token
    return accumulator, True


def _collected(rule: Aggregator, accumulator: Any, value: Any) -> tuple[Any, bool]:
    if accumulator is None and value is None:
        return None, True
    distinct = rule.function.flag("distinct")
    if (accumulator is None or value is None) and not distinct:
        return (value if accumulator is None else accumulator), True
    joined = [*(accumulator or []), *(value or [])]
    if not distinct:
        return joined, True
    distinct_items: list[Any] = []
    for item in joined:
        if item not in distinct_items:
            distinct_items.append(item)
    return distinct_items, True


def _uncollected(rule: Aggregator, accumulator: Any, value: Any) -> Any:
    if not accumulator or not value:
        return accumulator
    left, rest = list(value), []
    for item in accumulator:
        if item in left:
            left.remove(item)
        else:
            rest.append(item)
    return rest


def _unmapped(rule: Aggregator, accumulator: Any, value: Any) -> Any:
    if not accumulator or not value:
        return accumulator
    gone = [key for key, _ in value]
    return [(key, item) for key, item in accumulator if key not in gone]


def _mapped(rule: Aggregator, accumulator: Any, value: Any) -> Any:
    merged = dict(accumulator)
    merged.update(dict(value))
    return list(merged.items())


def _mapped_by_time(rule: Aggregator, accumulator: Any, value: Any) -> Any:
    """Keep each map key's struct with the greatest text in the field `ts-field`, by default the
    last field. A NULL in place of a struct removes the key."""
    fields = rule.type.item_type
    field = rule.function.options.get("ts-field") or fields.field(fields.num_fields - 1).name
    merged = dict(accumulator)
    for key, row in value:
        old = merged.get(key)
        if row is None:
            merged.pop(key, None)
        elif row[field] is None:
            continue
        elif old is None or old[field] is None or _java(row[field]) > _java(old[field]):
            merged[key] = row
    return list(merged.items())


def _java(text: str) -> bytes:
    """A sort key for a text in Java's order, which is by UTF-16 units."""
    return text.encode("utf-16-be")


def _nested_partly(rule: Aggregator, accumulator: Any, value: Any) -> tuple[Any, bool]:
    """Merge rows with the same `nested-key` into one of their last values that are not NULL."""
    if value is None:
        return accumulator, True
    keys = _nested_keys(rule)
    nulls = rule.function.options.get("nested-key-null-strategy", "merge").lower()
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in (*(accumulator or ()), *value):
        if row is None:
            continue
        key = _key(row, keys)
        if None in key and nulls == "error":
            raise JobError(
                f"A row in `{rule.column}` has NULL in its nested key ({', '.join(keys)}).",
                hint=f"Set 'fields.{rule.column}.nested-key-null-strategy' to 'merge' or 'ignore'.",
            )
        if None in key and nulls == "ignore":
            continue
        known = rows.setdefault(key, dict.fromkeys(row))
        known.update((name, item) for name, item in row.items() if item is not None)
    return list(rows.values()), True


def _united(union: Callable[[bytes, bytes], bytes]) -> _Step:
    def combine(rule: Aggregator, accumulator: Any, value: Any) -> Any:
        try:
            return union(accumulator, value)
        except ValueError as error:
            raise JobError(
                f"`{rule.column}` has values that '{rule.function.name}' can't merge: {error}.",
                hint="Write values in the function's serialized form.",
            ) from error

    return _of_two(combine)


def _nested(rule: Aggregator, accumulator: Any, value: Any) -> tuple[Any, bool]:
    if value is None:
        return accumulator, True
    limit = int(rule.function.options.get("count-limit", 2**31 - 1))
    keys = _nested_keys(rule)
    if not keys:
        rows = [row for row in accumulator or [] if row is not None]
        if accumulator is not None and len(accumulator) >= limit:
            return accumulator, True
        room = limit - len(accumulator or [])
        return rows + [row for row in value if row is not None][:room], True
    by_key = {_key(row, keys): row for row in accumulator or [] if row is not None}
    for row in value:
        if row is not None and (_key(row, keys) in by_key or len(by_key) < limit):
            by_key[_key(row, keys)] = row
    return list(by_key.values()), True


def _unnested(rule: Aggregator, accumulator: Any, value: Any) -> Any:
    if accumulator is None or value is None:
        return accumulator
    keys = _nested_keys(rule)
    gone = [row if not keys else _key(row, keys) for row in value if row is not None]
    return [
        row
        for row in accumulator
        if row is not None and (row if not keys else _key(row, keys)) not in gone
    ]


def _nested_keys(rule: Aggregator) -> list[str]:
    text = rule.function.options.get("nested-key", "")
    return [key.strip() for key in text.split(",") if key.strip()]


def _key(row: Mapping[str, Any], keys: list[str]) -> tuple[Any, ...]:
    return tuple(row[key] for key in keys)


_AGG: dict[str, _Step] = {
    "primary-key": lambda _, __, value: (value, True),
    "last_value": lambda _, __, value: (value, True),
    "last_non_null_value": lambda _, old, value: (old if value is None else value, True),
    "first_value": _first,
    "first_non_null_value": _first_non_null,
    "first_not_null_value": _first_non_null,
    "sum": _of_two(lambda rule, old, value: _exact(rule, old + value)),
    "product": _of_two(lambda rule, old, value: _exact(rule, old * value)),
    "max": _of_two(lambda _, old, value: value if _order(old) < _order(value) else old),
    "min": _of_two(lambda _, old, value: old if _order(old) < _order(value) else value),
    "bool_and": _of_two(lambda _, old, value: old and value),
    "bool_or": _of_two(lambda _, old, value: old or value),
    "listagg": _listed,
    "collect": _collected,
    "merge_map": _of_two(_mapped),
    "merge_map_with_keytime": _of_two(_mapped_by_time),
    "nested_update": _nested,
    "nested_partial_update": _nested_partly,
    "rbm32": _united(_rbm32_union),
    "rbm64": _united(long_bitmap_union),
    "theta_sketch": _united(_theta_union),
    "hll_sketch": _united(_hll_union),
}


def _order(value: Any) -> Any:
    """A sort key for Paimon's order: texts by their bytes, NaN above all numbers."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (value != value, value)
    return value


def _taken_away(rule: Aggregator, accumulator: Any, value: Any) -> Any:
    if value is None:
        return accumulator
    return _exact(rule, -value if accumulator is None else accumulator - value)


_RETRACT: dict[str, Callable[[Aggregator, Any, Any], Any]] = {
    "primary-key": lambda _, __, value: value,
    "last_value": lambda _, __, ___: None,
    "last_non_null_value": lambda _, old, value: old if value is None else None,
    "sum": _taken_away,
    "product": _divided,
    "collect": _uncollected,
    "merge_map": _unmapped,
    "nested_update": _unnested,
}
