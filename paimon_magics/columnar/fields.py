"""Converts columns of files of an older schema to those of the schema that is read, by field id.

A `Field` is a column, or a part of one, with its id and type. A renamed field keeps its id. A field
that was dropped and added again has another id. A field that a file lacks is NULL. A field that had
another type is cast (`casts`). Source: Paimon's `SchemaEvolutionUtil`.

Rebuilds columns that hold STRUCTs into arrays that Arrow's ORC writer writes correctly, too. The
writer ignores the offset of a sliced STRUCT, and the NULLs of a STRUCT inside another STRUCT that
is never NULL. In both cases the file gets fields of other rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.buffers import with_parts
from paimon_magics.columnar.casts import can_cast, cast_values
from paimon_magics.statements.data_types import AtomicType


@dataclass(frozen=True)
class Field:
    """A column or a part of one: an array's element, a map's key or value, a struct's field.

    `type` is the Arrow type, `atomic` Paimon's type of a field without parts.
    """

    id: int
    name: str
    type: pa.DataType
    parts: tuple[Field, ...] = ()
    atomic: AtomicType | None = None

    @property
    def is_struct(self) -> bool:
        """Whether it is a struct, whose `parts` are found by their ids."""
        return bool(pa.types.is_struct(self.type))


def can_evolve(stored: Field, wanted: Field) -> bool:
    """Whether `evolved` returns exactly Paimon's values for these fields."""
    if wanted.is_struct and stored.is_struct:
        by_id = {part.id: part for part in stored.parts}
        return all(
            part.id not in by_id or can_evolve(by_id[part.id], part) for part in wanted.parts
        )
    if stored.parts or wanted.parts:
        is_alike = stored.type.id == wanted.type.id and len(stored.parts) == len(wanted.parts)
        return is_alike and all(map(can_evolve, stored.parts, wanted.parts))
    if stored.atomic is None or wanted.atomic is None:
        return bool(stored.type == wanted.type)
    return can_cast(stored.atomic, wanted.atomic)


def evolved(array: pa.Array, stored: Field | None, wanted: Field, rows: int) -> pa.Array:
    """`array` as Paimon reads it for the wanted field; `rows` NULLs if nothing is stored.

    Writers may name parts differently from Paimon; the result has the wanted names.
    """
    if stored is None:
        return pa.nulls(rows, wanted.type)
    if not _differ(stored, wanted):
        return _as_declared(array, wanted.type)
    if wanted.is_struct:
        places = {part.id: place for place, part in enumerate(stored.parts)}
        children = []
        for part in wanted.parts:
            place = places.get(part.id)
            known = None if place is None else stored.parts[place]
            values = None if place is None else array.field(place)
            children.append(evolved(values, known, part, len(array)))
        return pa.StructArray.from_arrays(
            children, fields=list(wanted.type), mask=array.is_null() if array.null_count else None
        )
    if wanted.parts:
        pairs = iter(zip(stored.parts, wanted.parts, strict=True))

        def change(part: pa.Array, _: pa.DataType) -> pa.Array:
            return evolved(part, *next(pairs), len(part))

        return with_parts(array, wanted.type, change)
    array = _as_declared(array, stored.type)
    if stored.atomic is None or wanted.atomic is None:
        return array
    return cast_values(array, stored.atomic, wanted.atomic, wanted.type, wanted.name)


def _differ(stored: Field, wanted: Field) -> bool:
    """Whether values must be cast, or parts matched by id or renamed."""
    if stored.is_struct and wanted.is_struct:
        known = [(part.id, part.name) for part in stored.parts]
        if known != [(part.id, part.name) for part in wanted.parts]:
            return True
    if not stored.parts and not wanted.parts:
        return not _are_same(stored.atomic, wanted.atomic)
    return len(stored.parts) == len(wanted.parts) and any(map(_differ, stored.parts, wanted.parts))


def _are_same(stored: AtomicType | None, wanted: AtomicType | None) -> bool:
    if stored is None or wanted is None:
        return stored is wanted
    return (stored.name, stored.parameters) == (wanted.name, wanted.parameters)


def _as_declared(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """A file's values in the column's own Arrow type; the file may use another type for it."""
    if array.type == data_type:
        return array
    types = pa.types
    if types.is_timestamp(array.type):
        if array.type.tz != data_type.tz:  # a wall-clock time and an instant are the same number
            array = array.view(pa.timestamp(array.type.unit, data_type.tz))
        return pc.cast(array, data_type, safe=False)
    if types.is_integer(array.type) and types.is_integer(data_type):
        return pc.cast(array, data_type, safe=False)
    return array.cast(data_type)


def whole_structs(rows: pa.Table) -> pa.Table:
    """The same rows. In a column with a STRUCT at any level no array is a slice of a longer one,
    and a field of a STRUCT that is NULL is NULL too. Other columns are the same objects."""
    places = [place for place, field in enumerate(rows.schema) if _holds_struct(field.type)]
    if not places:
        return rows
    every = pa.array(np.arange(rows.num_rows, dtype=np.int64))
    for place in places:
        field = rows.schema.field(place)
        whole = rows.column(place).take(every)
        chunks = [_with_inner_nulls(chunk) for chunk in whole.chunks]
        rows = rows.set_column(place, field, pa.chunked_array(chunks, field.type))
    return rows


def _with_inner_nulls(values: pa.Array) -> pa.Array:
    """`values`, which are no slice, with NULL in every field of a STRUCT that is NULL."""
    kind = values.type
    if not _holds_struct(kind):
        return values
    nulls = values.is_null() if values.null_count else None
    if pa.types.is_struct(kind):
        parts = [_with_inner_nulls(part) for part in values.flatten()]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=nulls)
    if pa.types.is_map(kind):
        keys, items = _with_inner_nulls(values.keys), _with_inner_nulls(values.items)
        return pa.MapArray.from_arrays(values.offsets, keys, items, type=kind, mask=nulls)
    parts = _with_inner_nulls(values.values)
    make = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    return make.from_arrays(values.offsets, parts, type=kind, mask=nulls)


def _holds_struct(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return True
    return any(_holds_struct(kind.field(place).type) for place in range(kind.num_fields))
