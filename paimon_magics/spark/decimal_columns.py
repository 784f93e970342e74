"""Sends DECIMAL columns to Python as 64-bit numbers.

Spark makes a BigDecimal of each value that it puts into Arrow, which takes longer than the rest of
a row of seven columns. Up to 18 digits it holds such a value as one number. No function of SQL
returns that number, but `xxhash64` hashes nothing else, and its steps can be undone
(`columnar.hashed_numbers`), in Spark Connect, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

from paimon_magics.columnar.key_numbers import DIGITS_MAX, decimals_of_hashes
from paimon_magics.statements.clauses.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType


@dataclass(frozen=True, slots=True)
class HashedDecimals:
    """The DECIMAL columns of a frame that come as hashes: name, precision and scale of each."""

    columns: tuple[tuple[str, int, int], ...]

    def restored(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches with the values in place of their hashes. Raises ValueError if Spark has
        hashed other values."""
        for batch in batches:
            for name, precision, scale in self.columns:
                place = batch.schema.get_field_index(name)
                data_type = pa.decimal128(precision, scale)
                field = batch.schema.field(place).with_type(data_type)
                values = decimals_of_hashes(batch.column(place), data_type)
                batch = batch.set_column(place, field, values)
            yield batch


def with_hashed_decimals(frame: DataFrame) -> tuple[DataFrame, HashedDecimals]:
    """The frame with hashes in place of the values of DECIMAL columns of at most 18 digits, and
    what restores them in a task. DECIMALs inside other types stay as they are."""
    from pyspark.sql.types import DecimalType

    names = [field.name for field in frame.schema.fields]
    if len({name.lower() for name in names}) < len(names):
        return frame, HashedDecimals(())
    decimals = []
    texts = []
    for field in frame.schema.fields:
        name, data_type = quoted(field.name), field.dataType
        if isinstance(data_type, DecimalType) and data_type.precision <= DIGITS_MAX:
            decimals.append((field.name, data_type.precision, data_type.scale))
            hashed = f"xxhash64({name})"
            if field.nullable:
                hashed = f"CASE WHEN {name} IS NOT NULL THEN {hashed} END"
            name = f"{hashed} AS {name}"
        texts.append(name)
    if not decimals:
        return frame, HashedDecimals(())
    return frame.selectExpr(*texts), HashedDecimals(tuple(decimals))


# Lets every field of a STRUCT be NULL before rows leave Spark.
#
# PySpark's `toArrow` fails for a STRUCT that is NULL in some rows while its fields are never NULL,
# as in `IF(c, named_struct('a', 1), NULL)`: Arrow has NULL in the fields of such a row.


def with_nullable_fields(frame: DataFrame) -> DataFrame:
    """The frame with types in which every field of a STRUCT may be NULL, at every level."""
    kinds = [(field.dataType, _loosened(field.dataType)) for field in frame.schema]
    if all(kind == loose for kind, loose in kinds):
        return frame
    names = frame.columns
    numbered = [f"c{position}" for position in range(len(names))]  # names need not be unique
    plain = frame.toDF(*numbered)
    return plain.select(
        *(
            plain[name] if kind == loose else plain[name].cast(loose).alias(name)
            for name, (kind, loose) in zip(numbered, kinds, strict=True)
        )
    ).toDF(*names)


def _loosened(kind: DataType) -> DataType:
    match kind:
        case spark_types.ArrayType():
            return spark_types.ArrayType(_loosened(kind.elementType), kind.containsNull)
        case spark_types.MapType():
            item = _loosened(kind.valueType)
            return spark_types.MapType(_loosened(kind.keyType), item, kind.valueContainsNull)
        case spark_types.StructType():
            return spark_types.StructType(
                [
                    spark_types.StructField(field.name, _loosened(field.dataType), True)
                    for field in kind
                ]
            )
    return kind


# Converts VARIANT values to JSON texts before they leave Spark.
#
# Spark itself passes each VARIANT as two binary values that only Spark can decode, and PySpark's
# `toArrow` fails if a VARIANT is NULL.


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
            return F.transform(value, lambda part: _text(part, element))
        case spark_types.MapType():
            item = data_type.valueType
            return F.transform_values(value, lambda _, part: _text(part, item))
        case spark_types.StructType():
            parts = [
                _text(value.getField(field.name), field.dataType).alias(field.name)
                for field in data_type
            ]
            return F.when(value.isNotNull(), F.struct(*parts))
    return F.to_json(value)
