"""Matches the fields of structs by name: for `INSERT … BY NAME`, frames, UPDATE and MERGE.

Spark casts a struct to another by position, so that fields of the same type would silently change
places. A column that is matched by name has its structs, at every level, matched by name too, as in
Paimon's connector (`PaimonAnalysis`); so is a value that UPDATE or MERGE assigns, as in Spark
(`AssignmentUtils`). Upper and lower case don't matter. A field that is left out is NULL, as a
column is, in an INSERT. In a value that is assigned it is refused, unless the target's stays.
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


def _is_alike(given: spark_types.DataType, wanted: DataType) -> bool:
    """Whether all structs in both types have the same names in the same order. Also true without
    structs, and for types that don't correspond, which the cast refuses."""
    match given, wanted:
        case spark_types.StructType(), RowType(fields=fields):
            names = [field.name.lower() for field in given.fields]
            return names == [field.name.lower() for field in fields] and all(
                _is_alike(field.dataType, other.type)
                for field, other in zip(given.fields, fields, strict=True)
            )
        case spark_types.ArrayType(), ArrayType(element=element):
            return _is_alike(given.elementType, element)
        case spark_types.MapType(), MapType(key=key, value=value):
            return _is_alike(given.keyType, key) and _is_alike(given.valueType, value)
        case _:
            return True


def has_all_fields(given: spark_types.DataType, wanted: DataType) -> bool:
    """Whether all structs in a given type have all fields of the wanted one's."""
    match given, wanted:
        case spark_types.StructType(), RowType(fields=fields):
            types = {field.name.lower(): field.dataType for field in given.fields}
            return all(
                field.name.lower() in types
                and has_all_fields(types[field.name.lower()], field.type)
                for field in fields
            )
        case spark_types.ArrayType(), ArrayType(element=element):
            return has_all_fields(given.elementType, element)
        case spark_types.MapType(), MapType(value=value):
            return has_all_fields(given.valueType, value)
        case _:
            return True


def with_fields_kept(
    value: SparkColumn, given: spark_types.DataType, wanted: DataType, before: SparkColumn
) -> SparkColumn:
    """A value of the wanted type. Fields that the given type lacks are those of the value `before`:
    in arrays those of the element at the same place, in maps those of the same key."""
    if has_all_fields(given, wanted):
        return value
    match given, wanted:
        case spark_types.StructType(), RowType(fields=fields):
            types = {field.name.lower(): field.dataType for field in given.fields}
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
                    item, given.elementType, element, F.get(before, at)
                ),
            )
        case spark_types.MapType(), MapType(value=item):
            return F.transform_values(
                value,
                lambda key, entry: with_fields_kept(
                    entry, given.valueType, item, F.try_element_at(before, key)
                ),
            )
        case _:
            return value


def _by_name(
    value: SparkColumn, given: spark_types.DataType, wanted: DataType, place: str, fills: bool
) -> SparkColumn:
    if _is_alike(given, wanted):
        return value
    match given, wanted:
        case spark_types.StructType(), RowType():
            return _struct(value, given, wanted, place, fills)
        case spark_types.ArrayType(), ArrayType(element=element):
            return F.transform(
                value, lambda one: _by_name(one, given.elementType, element, place, fills)
            )
        case spark_types.MapType(), MapType(key=key, value=item):
            by_key = F.transform_keys(
                value, lambda one, _: _by_name(one, given.keyType, key, place, fills)
            )
            return F.transform_values(
                by_key, lambda _, one: _by_name(one, given.valueType, item, place, fills)
            )
        case _:
            return value


def _struct(
    value: SparkColumn, given: spark_types.StructType, wanted: RowType, place: str, fills: bool
) -> SparkColumn:
    taken = {field.name.lower() for field in wanted.fields}
    for field in given.fields:
        if field.name.lower() not in taken:
            raise UnknownNameError(
                f"The structs of {place} have no field `{field.name}`.",
                hint=nearest(field.name, [field.name for field in wanted.fields], what="fields"),
            )
    named = {field.name.lower(): field for field in given.fields}
    if len(named) != len(given.fields):
        raise InvalidValueError(
            f"Two fields for {place} have the same name.", hint="Rename one of them."
        )
    parts = []
    for one in wanted.fields:
        found = named.get(one.name.lower())
        if found is not None:
            part = _by_name(value.getField(found.name), found.dataType, one.type, place, fills)
        elif not fills:
            raise InvalidValueError(
                f"The value for {place} has no field `{one.name}`.",
                hint=f"Give the struct all its fields, or assign single ones: s.{one.name} = ….",
            )
        elif one.type.nullable:
            part = F.lit(None).cast(spark_type(one.type))
        else:
            raise InvalidValueError(
                f"Field `{one.name}` of {place} is NOT NULL, but has no value.",
                hint=f"Add `{one.name}` to the values.",
            )
        parts.append(part.alias(one.name))
    return F.when(value.isNotNull(), F.struct(*parts))
