"""Converts VARIANT values to JSON texts before they leave Spark.

Spark itself hands each over as two binary values that only Spark can decode, and PySpark's
`toArrow` fails where one is NULL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

__all__ = ["with_json_texts"]


def with_json_texts(frame: DataFrame) -> DataFrame:
    """The frame with a STRING of JSON in place of every VARIANT, at every level of nesting."""
    schema = frame.schema
    if not _holds(schema):
        return frame
    # Under new names: those of a query need not be unique.
    numbered = [f"c{position}" for position in range(len(schema))]
    return (
        frame.toDF(*numbered)
        .select(
            *(
                _text(F.col(name), field.dataType).alias(name)
                for name, field in zip(numbered, schema, strict=True)
            )
        )
        .toDF(*schema.names)
    )


def _holds(data_type: DataType) -> bool:
    match data_type:
        case spark_types.VariantType():
            return True
        case spark_types.ArrayType():
            return _holds(data_type.elementType)
        case spark_types.MapType():
            return _holds(data_type.valueType)
        case spark_types.StructType():
            return any(_holds(field.dataType) for field in data_type)
    return False


def _text(value: Column, data_type: DataType) -> Column:
    if not _holds(data_type):
        return value
    match data_type:
        case spark_types.ArrayType():
            element = data_type.elementType
            return F.transform(value, lambda one: _text(one, element))
        case spark_types.MapType():
            item = data_type.valueType
            return F.transform_values(value, lambda _, one: _text(one, item))
        case spark_types.StructType():
            parts = [
                _text(value.getField(field.name), field.dataType).alias(field.name)
                for field in data_type
            ]
            return F.when(value.isNotNull(), F.struct(*parts))
    return F.to_json(value)
