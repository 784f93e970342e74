"""Conversion of types and columns between this project's values, pypaimon's objects and Arrow.

The Arrow form is exactly the one that pypaimon's writers ask for (local-zoned timestamps as `UTC`,
top-level and nested nullability as declared).

Of a table's ORC files that don't record the time zone of their writers, an option says which it
was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pyarrow as pa
from pypaimon.schema import data_types as paimon_types

from paimon_magics.columnar.fields import Field
from paimon_magics.columnar.time_zones import UTC, arrow_zone, process_zone
from paimon_magics.errors import InvalidTableError, UnsupportedStatementError
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowField,
    RowType,
    VectorType,
    as_nullable,
    contains_type,
)
from paimon_magics.statements.types.type_text import from_paimon, to_paimon


def from_paimon_type(paimon_type: Any) -> DataType:
    """A pypaimon type as a DataType. Raises UnsupportedStatementError for one that is not
    offered."""
    return from_paimon(paimon_type.to_dict())


def to_paimon_type(data_type: DataType, next_id: Any) -> Any:
    """A DataType as pypaimon's type. Nested fields take their ids from `next_id`, an AtomicInteger.

    As in Paimon's `ReassignFieldId`, a field's own type takes its ids before the field does.
    """
    match data_type:
        case ArrayType(element=element, nullable=nullable):
            return paimon_types.ArrayType(nullable, to_paimon_type(element, next_id))
        case MapType(key=key, value=value, nullable=nullable):
            key_type = to_paimon_type(key, next_id)
            return paimon_types.MapType(nullable, key_type, to_paimon_type(value, next_id))
        case RowType(fields=row_fields, nullable=nullable):
            fields = []
            for field in row_fields:
                field_type = to_paimon_type(field.type, next_id)
                fields.append(
                    paimon_types.DataField(
                        next_id.increment_and_get(), field.name, field_type, field.comment
                    )
                )
            return paimon_types.RowType(nullable, fields)
        case MultisetType(element=element, nullable=nullable):
            return paimon_types.MultisetType(nullable, to_paimon_type(element, next_id))
        case VectorType(element=element, length=length, nullable=nullable):
            inner = to_paimon_type(element, next_id)
            return paimon_types.VectorType(nullable, inner, length)
        case AtomicType(nullable=nullable):
            text = to_paimon(as_nullable(data_type, True))
            return paimon_types.AtomicType(text, nullable)


def column_from_field(field: Any) -> Column:
    """A pypaimon field as a column."""
    return Column(
        field.id, field.name, from_paimon_type(field.type), field.description, field.default_value
    )


def field_from_column(column: Column) -> Any:
    """A column as pypaimon's field, with the column's id; nested fields take the ids after it."""
    next_id = paimon_types.AtomicInteger(column.id)
    return paimon_types.DataField(
        column.id, column.name, to_paimon_type(column.type, next_id), column.comment, column.default
    )


def fields_of(paimon_fields: Iterable[Any]) -> tuple[Field, ...]:
    """pypaimon's fields with their nested fields, in the form for the Arrow kernels."""
    return tuple(
        _field_of(paimon_field.id, paimon_field.name, paimon_field.type)
        for paimon_field in paimon_fields
    )


def _field_of(field_id: int, name: str, paimon_type: Any) -> Field:
    parts: tuple[Field, ...] = ()
    atomic: AtomicType | None = None
    match paimon_type:
        case paimon_types.RowType(fields=inner):
            parts = fields_of(inner)
        case paimon_types.ArrayType(element=element):
            parts = (_field_of(-1, "element", element),)
        case paimon_types.MapType(key=key, value=value):
            parts = (_field_of(-1, "key", key), _field_of(-1, "value", value))
        case paimon_types.AtomicType():
            data_type = from_paimon_type(paimon_type)
            atomic = data_type if isinstance(data_type, AtomicType) else None
    arrow = paimon_types.PyarrowFieldParser.from_paimon_type(paimon_type)
    return Field(field_id, name, arrow, parts, atomic)


def arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type that pypaimon's writers ask for."""
    return paimon_types.PyarrowFieldParser.from_paimon_type(
        to_paimon_type(data_type, paimon_types.AtomicInteger(0))
    )


def arrow_schema(columns: TableSchema | Iterable[Column]) -> pa.Schema:
    """The Arrow schema that pypaimon's writers ask for, in the order of the columns."""
    if isinstance(columns, TableSchema):
        columns = columns.columns
    return pa.schema(
        [
            pa.field(column.name, arrow_type(column.type), nullable=column.type.nullable)
            for column in columns
        ]
    )


def from_arrow_type(arrow: pa.DataType, nullable: bool = True) -> DataType:
    """The Paimon type for values of an Arrow type. Raises InvalidTableError if there is none.

    Unlike in pypaimon, a large list is an ARRAY, a dictionary has the type of its values, and
    large binary is BYTES, not BLOB.
    """
    if pa.types.is_dictionary(arrow):
        return from_arrow_type(arrow.value_type, nullable)
    if pa.types.is_large_binary(arrow):
        return AtomicType("BYTES", (), nullable)
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return ArrayType(from_arrow_type(arrow.value_type, arrow.value_field.nullable), nullable)
    if pa.types.is_map(arrow):
        return MapType(
            from_arrow_type(arrow.key_type, False),
            from_arrow_type(arrow.item_type, arrow.item_field.nullable),
            nullable,
        )
    if pa.types.is_struct(arrow) and not paimon_types.is_variant_struct(arrow):
        return RowType(
            tuple(RowField(f.name, from_arrow_type(f.type, f.nullable)) for f in arrow), nullable
        )
    try:
        return from_paimon_type(paimon_types.PyarrowFieldParser.to_paimon_type(arrow, nullable))
    except (ValueError, UnsupportedStatementError):
        raise InvalidTableError(
            f"Paimon has no type for Arrow's {arrow}.", hint="Cast the column first."
        ) from None


WRITER_ZONE = "orc.timestamp-ltz.writer-zone"
_LEGACY = "orc.timestamp-ltz.legacy.type"


def orc_legacy_zone(schema: TableSchema) -> str | None:
    """The zone in which the TIMESTAMP_LTZ of ORC files was shifted by its writer, for files that
    don't record it: the option WRITER_ZONE of the table, else the zone of this process, as in Java.
    None for tables whose writers shift nothing (`orc.timestamp-ltz.legacy.type` = false).

    Raises InvalidTableError for a zone that does not exist.
    """
    if (schema.stored_option(_LEGACY) or "true").lower() == "false":
        return None
    named = schema.option(WRITER_ZONE)
    if not named:
        return process_zone()
    zone = arrow_zone(named)
    if zone == UTC and named.strip().lower() not in ("utc", "gmt", "z", "etc/utc"):
        raise InvalidTableError(
            f"The table option '{WRITER_ZONE}' is '{named}', which is not a time zone.",
            hint="Set it to the time zone of the machines that wrote the files, such as Asia/Tokyo "
            "or +09:00.",
        )
    return zone


def unknown_zone_note(schema: TableSchema, names: Collection[str] | None) -> str | None:
    """The note for a read of the columns `names` (None for all) whose instants depend on the zone
    of this machine; None if they don't, or if that zone is UTC."""
    if schema.file_format != "orc" or schema.option(WRITER_ZONE):
        return None
    if any(contains_type(column.type, "TIMESTAMP") for column in schema.columns):
        return None  # the files name the zone of their writers
    wanted = None if names is None else {name.lower() for name in names}
    instants = [
        column.name
        for column in schema.columns
        if contains_type(column.type, "TIMESTAMP_LTZ")
        and (wanted is None or column.name.lower() in wanted)
    ]
    zone = orc_legacy_zone(schema) if instants else None
    if zone in (None, UTC):
        return None
    return (
        f"`{instants[0]}` is in ORC files, which don't record their writers' time zone. It was "
        f"read as if written in {zone}, this machine's time zone. To use another, set the table "
        f"option '{WRITER_ZONE}'."
    )
