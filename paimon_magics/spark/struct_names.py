"""Matches the fields of structs by name: for `INSERT … BY NAME`, frames, UPDATE and MERGE.

Spark casts a struct to another struct by position, so fields of the same type would silently change
places. A column that is matched by name has its structs, at every level, matched by name too, as in
Paimon's connector (`PaimonAnalysis`); so is a value that UPDATE or MERGE assigns, as in Spark
(`AssignmentUtils`). Upper and lower case don't matter. A field that is left out is NULL, as a
column is, in an INSERT. In an assigned value it is refused, unless the target keeps its value.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

from paimon_magics.errors import InvalidValueError, UnknownNameError, nearest
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.spark.types import spark_type
from paimon_magics.statements.data_types import ArrayType, DataType, MapType, RowType


def with_fields_by_name(
    frame: DataFrame, columns: Sequence[Column | None], *, fills: bool = True
) -> DataFrame:
    """`frame` with the fields of its structs in the order of the table's.

    `columns` are the table's columns that the frame's columns go into, None for no column. Returns
    the same frame where the fields are in that order already. Raises UnknownNameError for a field
    that the table's struct does not have, InvalidValueError for two fields with one name and for a
    field that is left out: one that is NOT NULL, without `fills` any.
    """
    fields = frame.schema.fields
    if all(
        column is None or _is_alike(field.dataType, column.type)
        for field, column in zip(fields, columns, strict=True)
    ):
        return frame
    # Names may repeat, and contain dots, so columns are named by their positions.
    numbered = frame.toDF(*(str(place) for place in range(len(fields))))
    return numbered.select(
        *(
            (
                F.col(str(place))
                if column is None or _is_alike(field.dataType, column.type)
                else _by_name(
                    F.col(str(place)), field.dataType, column.type, f"column `{column.name}`", fills
                )
            ).alias(field.name)
            for place, (field, column) in enumerate(zip(fields, columns, strict=True))
        )
    )


def _is_alike(source: spark_types.DataType, wanted: DataType) -> bool:
    """Whether all structs in both types have the same names in the same order. Also true without
    structs, and for types that don't correspond, which the cast refuses."""
    match source, wanted:
        case spark_types.StructType(), RowType(fields=fields):
            names = [field.name.lower() for field in source.fields]
            return names == [field.name.lower() for field in fields] and all(
                _is_alike(field.dataType, other.type)
                for field, other in zip(source.fields, fields, strict=True)
            )
        case spark_types.ArrayType(), ArrayType(element=element):
            return _is_alike(source.elementType, element)
        case spark_types.MapType(), MapType(key=key, value=value):
            return _is_alike(source.keyType, key) and _is_alike(source.valueType, value)
        case _:
            return True


def has_all_fields(source: spark_types.DataType, wanted: DataType) -> bool:
    """Whether all structs in a given type have all fields of the wanted one's."""
    match source, wanted:
        case spark_types.StructType(), RowType(fields=fields):
            types = {field.name.lower(): field.dataType for field in source.fields}
            return all(
                field.name.lower() in types
                and has_all_fields(types[field.name.lower()], field.type)
                for field in fields
            )
        case spark_types.ArrayType(), ArrayType(element=element):
            return has_all_fields(source.elementType, element)
        case spark_types.MapType(), MapType(value=value):
            return has_all_fields(source.valueType, value)
        case _:
            return True


def with_fields_kept(
    value: SparkColumn, source: spark_types.DataType, wanted: DataType, before: SparkColumn
) -> SparkColumn:
    """A value of the wanted type. Fields that the given type lacks are those of the value `before`:
    in arrays those of the element at the same place, in maps those of the same key."""
    if has_all_fields(source, wanted):
        return value
    match source, wanted:
        case spark_types.StructType(), RowType(fields=fields):
            types = {field.name.lower(): field.dataType for field in source.fields}
            parts = []
            for field in fields:
                part, old = value.getField(field.name), before.getField(field.name)
                if field.name.lower() in types:
                    part = with_fields_kept(part, types[field.name.lower()], field.type, old)
                else:
                    part = old
                parts.append(part.alias(field.name))
            return F.when(value.isNotNull(), F.struct(*parts))
        case spark_types.ArrayType(), ArrayType(element=element):
            return F.transform(
                value,
                lambda item, at: with_fields_kept(
                    item, source.elementType, element, F.get(before, at)
                ),
            )
        case spark_types.MapType(), MapType(value=item):
            return F.transform_values(
                value,
                lambda key, entry: with_fields_kept(
                    entry, source.valueType, item, F.try_element_at(before, key)
                ),
            )
        case _:
            return value


def with_assigned_fields(
    value: SparkColumn,
    data_type: DataType,
    assigned: Sequence[tuple[tuple[str, ...], SparkColumn]],
) -> SparkColumn:
    """The STRUCT with new values for some of its fields, by their paths. One that is NULL becomes
    one of NULLs first, as in Spark."""
    if not assigned:
        return value
    path, new_value = assigned[0]
    if not path:
        return new_value
    assert isinstance(data_type, RowType)
    fields = []
    for field in data_type.fields:
        inside = [(names[1:], new) for names, new in assigned if names[0] == field.name]
        part = with_assigned_fields(value.getField(field.name), field.type, inside)
        fields.append(part.alias(field.name))
    return F.struct(*fields)


def _by_name(
    value: SparkColumn, source: spark_types.DataType, wanted: DataType, place: str, fills: bool
) -> SparkColumn:
    if _is_alike(source, wanted):
        return value
    match source, wanted:
        case spark_types.StructType(), RowType():
            return _struct(value, source, wanted, place, fills)
        case spark_types.ArrayType(), ArrayType(element=element):
            return F.transform(
                value, lambda part: _by_name(part, source.elementType, element, place, fills)
            )
        case spark_types.MapType(), MapType(key=key, value=item):
            by_key = F.transform_keys(
                value, lambda part, _: _by_name(part, source.keyType, key, place, fills)
            )
            return F.transform_values(
                by_key, lambda _, part: _by_name(part, source.valueType, item, place, fills)
            )
        case _:
            return value


def _struct(
    value: SparkColumn, source: spark_types.StructType, wanted: RowType, place: str, fills: bool
) -> SparkColumn:
    taken = {field.name.lower() for field in wanted.fields}
    for field in source.fields:
        if field.name.lower() not in taken:
            raise UnknownNameError(
                f"The structs of {place} have no field `{field.name}`.",
                hint=nearest(field.name, [field.name for field in wanted.fields], what="fields"),
            )
    named = {field.name.lower(): field for field in source.fields}
    if len(named) != len(source.fields):
        raise InvalidValueError(
            f"Two fields for {place} have the same name.", hint="Rename one of them."
        )
    parts = []
    for target in wanted.fields:
        match = named.get(target.name.lower())
        if match is not None:
            part = _by_name(value.getField(match.name), match.dataType, target.type, place, fills)
        elif not fills:
            raise InvalidValueError(
                f"The value for {place} lacks the field `{target.name}`.",
                hint=f"Give the struct all its fields, or assign single fields: s.{target.name} = "
                "….",
            )
        elif target.type.nullable:
            part = F.lit(None).cast(spark_type(target.type))
        else:
            raise InvalidValueError(
                f"Field `{target.name}` of {place} is NOT NULL, but has no value.",
                hint=f"Add `{target.name}` to the values.",
            )
        parts.append(part.alias(target.name))
    return F.when(value.isNotNull(), F.struct(*parts))
