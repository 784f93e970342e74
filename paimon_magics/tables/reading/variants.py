"""Reassembles shredded VARIANT columns of Parquet files.

A shredded VARIANT has parts of its values in a column `typed_value` beside `metadata` and `value`.
pypaimon joins them value by value. It is imported only then, because that takes a second.
"""

from __future__ import annotations

import pyarrow as pa

from paimon_magics.columnar.fields import Field

__all__ = ["whole_variants"]

_PARTS = ("value", "metadata")


def _holds(field: Field) -> bool:
    """Whether a column is a VARIANT or has one nested inside."""
    if field.atomic is not None:
        return field.atomic.name == "VARIANT"
    return any(_holds(part) for part in field.parts)


def whole_variants(array: pa.Array, stored: Field) -> pa.Array:
    """The column with every VARIANT in it as a struct of `value` and `metadata`. `stored` is its
    field in the file.

    Raises ValueError for values that are no VARIANT.
    """
    if not _holds(stored):
        return array
    if stored.atomic is not None:
        return _whole(array)
    if pa.types.is_struct(array.type):
        children = [
            whole_variants(child, part)
            for child, part in zip(_children(array), stored.parts, strict=True)
        ]
        fields = [
            field.with_type(child.type) for field, child in zip(array.type, children, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=fields, mask=_mask(array))
    validity, offsets = array.buffers()[:2]
    if pa.types.is_map(array.type):
        items = whole_variants(array.items, stored.parts[1])
        key, item = array.type.key_field, array.type.item_field.with_type(items.type)
        inside = pa.StructArray.from_arrays([array.keys, items], fields=[key, item])
        data_type: pa.DataType = pa.map_(key, item)
    else:
        inside = whole_variants(array.values, stored.parts[0])
        data_type = pa.list_(array.type.value_field.with_type(inside.type))
    return pa.Array.from_buffers(
        data_type, len(array), [validity, offsets], array.null_count, array.offset, [inside]
    )


def _whole(array: pa.Array) -> pa.Array:
    names = [field.name for field in array.type]
    if "typed_value" in names:
        from pypaimon.data.variant_shredding import assemble_shredded_column, build_variant_schema

        return assemble_shredded_column(array, build_variant_schema(array.type))
    if names == [*_PARTS]:
        return array
    children = dict(zip(names, _children(array), strict=True))
    fields = [pa.field(name, pa.binary(), nullable=False) for name in _PARTS]
    return pa.StructArray.from_arrays(
        [children[name] for name in _PARTS], fields=fields, mask=_mask(array)
    )


def _children(array: pa.StructArray) -> list[pa.Array]:
    return [array.field(index) for index in range(array.type.num_fields)]


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
