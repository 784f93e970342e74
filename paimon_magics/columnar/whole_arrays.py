"""Rebuilds columns that hold STRUCTs into arrays that Arrow's ORC writer writes correctly.

The writer ignores the offset of a sliced STRUCT, and the NULLs of a STRUCT inside another STRUCT
that is never NULL. In both cases the file gets fields of other rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa


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
