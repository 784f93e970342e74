"""Maps of Parquet files that say of a map's keys that they may be NULL.

Paimon's writers said so up to 0.8, and Arrow refuses such a file. Its footer is read as one with
lists of entries (`parquet_footers.with_listed_maps`); here the lists become maps again.
"""

from __future__ import annotations

import pyarrow as pa

_ENTRIES = "key_value"  # no list of Paimon's writers has elements of this name


def with_maps(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same columns, with maps in place of lists of entries at any level."""
    fields = [map_field(field) for field in batch.schema]
    columns = [
        _as_maps(column, field.type) for column, field in zip(batch.columns, fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def map_field(field: pa.Field) -> pa.Field:
    """The field as `with_maps` returns it."""
    return field.with_type(_map_type(field.type))


def _map_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([map_field(part) for part in kind])
    if not pa.types.is_list(kind):
        return kind
    entries = map_field(kind.value_field)
    if entries.name == _ENTRIES and entries.type.num_fields == 2:
        key, value = entries.type
        return pa.map_(key.type, pa.field("value", value.type, value.nullable))
    return pa.list_(entries)


def _as_maps(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    if values.type == wanted:
        return values
    buffers = values.buffers()
    if pa.types.is_struct(wanted):
        parts = [_as_maps(values.field(place), part.type) for place, part in enumerate(wanted)]
        nulls = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=nulls)
    if pa.types.is_map(wanted):
        parts = [
            _as_maps(part, kind)
            for part, kind in zip(
                values.values.flatten(), (wanted.key_type, wanted.item_type), strict=True
            )
        ]
        child = pa.StructArray.from_arrays(parts, fields=[wanted.key_field, wanted.item_field])
    else:
        child = _as_maps(values.values, wanted.value_type)
    return pa.Array.from_buffers(
        wanted, len(values), buffers[:2], offset=values.offset, children=[child]
    )
