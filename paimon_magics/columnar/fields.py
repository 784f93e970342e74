"""Columns of files of an older schema as columns of the schema that is read, by field id.

A `Field` is a column, or a part of one, with its id and its Arrow type. What was renamed keeps its
id; what was dropped and added again has another one; what a file lacks is NULL. Source: Paimon's
`SchemaEvolutionUtil` and `CastExecutors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Field", "can_evolve", "evolved"]


@dataclass(frozen=True)
class Field:
    """A column or a part of one: an array's element, a map's key and value, a struct's fields."""

    id: int
    name: str
    type: pa.DataType
    parts: tuple[Field, ...] = ()

    @property
    def is_struct(self) -> bool:
        """Whether `parts` are found by their ids."""
        return bool(pa.types.is_struct(self.type))


def can_evolve(stored: Field, wanted: Field) -> bool:
    """Whether `evolved` gives exactly the values that Paimon gives."""
    if wanted.is_struct and stored.is_struct:
        by_id = {part.id: part for part in stored.parts}
        return all(
            part.id not in by_id or can_evolve(by_id[part.id], part) for part in wanted.parts
        )
    if stored.parts or wanted.parts:
        return len(stored.parts) == len(wanted.parts) and all(
            can_evolve(one, other) for one, other in zip(stored.parts, wanted.parts, strict=True)
        )
    return _can_cast(stored.type, wanted.type)


def evolved(array: pa.Array, stored: Field | None, wanted: Field, rows: int) -> pa.Array:
    """`array` as Paimon reads it for the wanted field; NULLs where nothing is stored.

    Names of parts may differ from Paimon's in files of any writer; they come out as wanted.
    """
    if stored is None:
        return pa.nulls(rows, wanted.type)
    if not _differ(stored, wanted):
        return _cast(array, wanted.type)
    if wanted.is_struct:
        places = {part.id: place for place, part in enumerate(stored.parts)}
        children = []
        for part in wanted.parts:
            place = places.get(part.id)
            child = None if place is None else array.field(place)
            children.append(
                evolved(child, None if place is None else stored.parts[place], part, len(array))
            )
        return pa.StructArray.from_arrays(
            children, fields=list(wanted.type), mask=array.is_null() if array.null_count else None
        )
    if pa.types.is_list(wanted.type):
        values = evolved(array.values, stored.parts[0], wanted.parts[0], len(array.values))
        return _rebuilt(array, [values], wanted.type)
    if pa.types.is_map(wanted.type):
        keys = evolved(array.keys, stored.parts[0], wanted.parts[0], len(array.keys))
        items = evolved(array.items, stored.parts[1], wanted.parts[1], len(array.items))
        entries = pa.StructArray.from_arrays([keys, items], names=["key", "value"])
        return _rebuilt(array, [entries], wanted.type)
    return _cast(array, wanted.type)


def _rebuilt(array: pa.Array, children: Sequence[pa.Array], data_type: pa.DataType) -> pa.Array:
    validity, offsets = array.buffers()[:2]
    struct = pa.types.is_map(data_type)
    if struct:
        child = children[0]
        fields = [data_type.key_field, data_type.item_field]
        children = [pa.StructArray.from_arrays([child.field(0), child.field(1)], fields=fields)]
    return pa.Array.from_buffers(
        data_type, len(array), [validity, offsets], array.null_count, array.offset, list(children)
    )


def _differ(stored: Field, wanted: Field) -> bool:
    """Whether parts must be found by their ids, or named anew."""
    if stored.is_struct and wanted.is_struct:
        known = [(part.id, part.name) for part in stored.parts]
        return known != [(part.id, part.name) for part in wanted.parts] or any(
            _differ(one, other) for one, other in zip(stored.parts, wanted.parts, strict=True)
        )
    return len(stored.parts) == len(wanted.parts) and any(
        _differ(one, other) for one, other in zip(stored.parts, wanted.parts, strict=True)
    )


def _can_cast(stored: pa.DataType, wanted: pa.DataType) -> bool:
    types = pa.types
    if stored == wanted or _same_kind(stored, wanted):
        return True
    if types.is_integer(stored):
        return bool(
            types.is_integer(wanted)
            or types.is_floating(wanted)
            or types.is_decimal(wanted)
            or types.is_string(wanted)
        )
    if types.is_float32(stored):
        return bool(types.is_float64(wanted))
    if types.is_boolean(stored) or types.is_date(stored):
        return bool(types.is_string(wanted))
    return False


def _same_kind(stored: pa.DataType, wanted: pa.DataType) -> bool:
    types = pa.types
    for kind in (types.is_string, types.is_decimal, types.is_boolean, types.is_date, types.is_time):
        if kind(stored) and kind(wanted):
            return True
    if types.is_timestamp(stored) and types.is_timestamp(wanted):
        return bool((stored.tz is None) == (wanted.tz is None))
    return _is_binary(stored) and _is_binary(wanted)


def _is_binary(data_type: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(data_type)
        or types.is_fixed_size_binary(data_type)
        or types.is_large_binary(data_type)
    )


def _cast(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    if array.type == data_type:
        return array
    types = pa.types
    if types.is_decimal(array.type) and types.is_decimal(data_type):
        return _rescaled(array, data_type)
    if types.is_integer(array.type) and types.is_decimal(data_type):
        return _rescaled(array.cast(pa.decimal128(19, 0)), data_type)
    if types.is_timestamp(array.type) and array.type.tz != data_type.tz:
        array = array.cast(pa.timestamp(array.type.unit)) if array.type.tz is None else array
        if array.type.tz is None and data_type.tz is not None:
            array = array.view(pa.timestamp(array.type.unit, data_type.tz))
        elif data_type.tz is None:
            array = array.view(pa.timestamp(array.type.unit))
    if types.is_timestamp(array.type):
        return pc.cast(array, data_type, safe=False)  # digits beyond are cut, as in Paimon
    if types.is_integer(array.type) and types.is_integer(data_type):
        return pc.cast(array, data_type, safe=False)  # Java's narrowing keeps the low bits
    if types.is_integer(array.type) and types.is_floating(data_type):
        return pc.cast(array, data_type, safe=False)
    return array.cast(data_type)


def _rescaled(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Half-up, and NULL where the value does not fit any more: `DecimalUtils.castToDecimal`."""
    if data_type.scale < array.type.scale:
        array = pc.round(array, data_type.scale, round_mode="half_towards_infinity")
    limit = 10 ** (data_type.precision - data_type.scale)
    fits = pc.less(pc.abs(array.cast(pa.float64())), float(limit))
    if data_type.precision - data_type.scale < array.type.precision - array.type.scale:
        kept = pc.if_else(fits, array, pa.scalar(None, array.type))
        return kept.cast(data_type)
    return array.cast(data_type)
