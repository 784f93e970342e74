"""Matches the fields of structs by name, for `INSERT … BY NAME` and frames.

Spark casts a struct to another by position, so that fields of the same type would silently change
places. As in Paimon's connector (`PaimonAnalysis`), a column that is matched by name has its
structs, at every level, matched by name too. Upper and lower case don't matter, and a field that is
left out is NULL, as a column is.
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

__all__ = ["with_fields_by_name"]


def with_fields_by_name(frame: DataFrame, columns: Sequence[Column | None]) -> DataFrame:
    """`frame` with the fields of its structs in the order of the table's.

    `columns` are the table's columns that the frame's columns go into, None for no column. Returns
    the same frame where the fields are in that order already. Raises UnknownNameError for a field
    that the table's struct does not have, InvalidValueError for a NOT NULL field that is left out
    and for two fields with one name.
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
                    F.col(str(place)), field.dataType, column.type, f"column `{column.name}`"
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
            names = [one.name.lower() for one in given.fields]
            return names == [one.name.lower() for one in fields] and all(
                _is_alike(one.dataType, other.type)
                for one, other in zip(given.fields, fields, strict=True)
            )
        case spark_types.ArrayType(), ArrayType(element=element):
            return _is_alike(given.elementType, element)
        case spark_types.MapType(), MapType(key=key, value=value):
            return _is_alike(given.keyType, key) and _is_alike(given.valueType, value)
        case _:
            return True


def _by_name(
    value: SparkColumn, given: spark_types.DataType, wanted: DataType, place: str
) -> SparkColumn:
    if _is_alike(given, wanted):
        return value
    match given, wanted:
        case spark_types.StructType(), RowType():
            return _struct(value, given, wanted, place)
        case spark_types.ArrayType(), ArrayType(element=element):
            return F.transform(value, lambda one: _by_name(one, given.elementType, element, place))
        case spark_types.MapType(), MapType(key=key, value=item):
            by_key = F.transform_keys(
                value, lambda one, _: _by_name(one, given.keyType, key, place)
            )
            return F.transform_values(
                by_key, lambda _, one: _by_name(one, given.valueType, item, place)
            )
        case _:
            return value


def _struct(
    value: SparkColumn, given: spark_types.StructType, wanted: RowType, place: str
) -> SparkColumn:
    taken = {one.name.lower() for one in wanted.fields}
    for field in given.fields:
        if field.name.lower() not in taken:
            raise UnknownNameError(
                f"The structs of {place} have no field `{field.name}`.",
                hint=nearest(field.name, [one.name for one in wanted.fields], what="fields"),
            )
    named = {one.name.lower(): one for one in given.fields}
    if len(named) != len(given.fields):
        raise InvalidValueError(
            f"Two fields for {place} have the same name.", hint="Rename one of them."
        )
    parts = []
    for one in wanted.fields:
        found = named.get(one.name.lower())
        if found is not None:
            part = _by_name(value.getField(found.name), found.dataType, one.type, place)
        elif one.type.nullable:
            part = F.lit(None).cast(spark_type(one.type))
        else:
            raise InvalidValueError(
                f"Field `{one.name}` of {place} is NOT NULL, but has no value.",
                hint=f"Add `{one.name}` to the values.",
            )
        parts.append(part.alias(one.name))
    return F.when(value.isNotNull(), F.struct(*parts))
