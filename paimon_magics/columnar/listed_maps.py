"""Maps of Parquet files that declare map keys as nullable.

Paimon's writers up to 0.8 declared them so, and Arrow refuses such a file. Its footer is read as a
footer with lists of entries (`file_footers.with_listed_maps`); here the lists become maps again.
"""

from __future__ import annotations

import pyarrow as pa

from paimon_magics.columnar.buffers import with_parts

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
    return values if values.type == wanted else with_parts(values, wanted, _as_maps)
