"""Converts between Paimon's types and Spark's."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.statements.clauses.names import quoted
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
from paimon_magics.statements.types.type_text import from_sql, to_spark_sql

if TYPE_CHECKING:
    import pyarrow as pa

CHAR_METADATA = "__CHAR_VARCHAR_TYPE_STRING"
"""The member of a column's metadata in which Spark keeps a type with CHAR or VARCHAR."""
_COMMENT = "comment"

_ATOMIC: dict[str, spark_types.DataType] = {
    "BOOLEAN": spark_types.BooleanType(),
    "TINYINT": spark_types.ByteType(),
    "SMALLINT": spark_types.ShortType(),
    # Milliseconds of the day, as in Paimon's connector for Spark.
    "TIME": spark_types.IntegerType(),
    "INT": spark_types.IntegerType(),
    "BIGINT": spark_types.LongType(),
    "FLOAT": spark_types.FloatType(),
    "DOUBLE": spark_types.DoubleType(),
    "CHAR": spark_types.StringType(),
    "VARCHAR": spark_types.StringType(),
    "STRING": spark_types.StringType(),
    "BINARY": spark_types.BinaryType(),
    "VARBINARY": spark_types.BinaryType(),
    "BYTES": spark_types.BinaryType(),
    "DATE": spark_types.DateType(),
    "TIMESTAMP": spark_types.TimestampNTZType(),
    "TIMESTAMP_LTZ": spark_types.TimestampType(),
    "VARIANT": spark_types.VariantType(),
}

# The last name of a type of Spark's counts.
_PAIMON: dict[type[spark_types.DataType], AtomicType] = {
    type(kind): AtomicType(name, (6,) if name.startswith("TIMESTAMP") else ())
    for name, kind in _ATOMIC.items()
}


def spark_type(data_type: DataType) -> spark_types.DataType:
    """The Spark type for values of a Paimon type; CHAR and VARCHAR become plain strings.

    Raises UnsupportedStatementError for BLOB, MULTISET and VECTOR.
    """
    match data_type:
        case AtomicType(name="DECIMAL", parameters=(precision, scale)):
            return spark_types.DecimalType(precision, scale)
        case AtomicType(name=name):
            if name not in _ATOMIC:
                raise _unusable(name)
            return _ATOMIC[name]
        case ArrayType(element=element):
            return spark_types.ArrayType(spark_type(element))
        case MapType(key=key, value=value):
            return spark_types.MapType(spark_type(key), spark_type(value))
        case RowType(fields=fields):
            return spark_types.StructType(
                [spark_types.StructField(field.name, spark_type(field.type)) for field in fields]
            )
        case MultisetType() | VectorType():
            raise _unusable(to_spark_sql(data_type))


def _unusable(name: str) -> UnsupportedStatementError:
    return UnsupportedStatementError(
        f"Columns of type {name} can't be used through Spark yet.",
        hint="Leave the column out of the query.",
    )


def spark_schema(columns: Sequence[Column]) -> spark_types.StructType:
    """The schema of a frame with `columns`; every column is nullable, as Spark makes them."""
    return spark_types.StructType(
        [spark_types.StructField(column.name, spark_type(column.type)) for column in columns]
    )


def variant_columns(columns: Iterable[Column]) -> frozenset[str]:
    """The names of the columns that have VARIANT values, at any level."""
    return frozenset(column.name for column in columns if contains_type(column.type, "VARIANT"))


def arrow_schema(schema: spark_types.StructType) -> pa.Schema:
    """Spark's schema as Arrow's, instants in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # PySpark 4.1 has no such argument, and means UTC.
    takes_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    options: dict[str, Any] = {"timezone": "UTC"} if takes_zone else {}
    return to_arrow_schema(schema, **options)


def columns_of(schema: spark_types.StructType) -> tuple[RowField, ...]:
    """The Paimon columns of a query's result as a table (CREATE TABLE AS SELECT).

    Raises UnsupportedStatementError for a Spark type without a counterpart in Paimon.
    """
    return tuple(RowField(field.name, _paimon_type(field.dataType, field.name)) for field in schema)


def frame_in_columns(frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """The first columns of a frame under the names of `columns`, cast to their types where they
    have others."""
    wanted = spark_schema(columns)
    first = frame.toDF(*(str(number) for number in range(len(frame.columns))))
    cast = [
        first[f"`{number}`"].cast(field.dataType).alias(field.name)
        for number, field in enumerate(wanted)
    ]
    own = frame.schema.fields
    is_same = len(own) == len(cast) and all(
        have.name == field.name and have.dataType == field.dataType
        for have, field in zip(own, wanted, strict=True)
    )
    return frame if is_same else first.select(*cast)


def declared_schema(columns: Sequence[Column]) -> spark_types.StructType:
    """The schema of a frame with `columns`, whose metadata has the lengths of CHAR and VARCHAR, and
    comments, as Spark's own tables have them."""
    schema = spark_schema(columns)
    for field, column in zip(schema.fields, columns, strict=True):
        field.dataType = _with_comments(field.dataType, column.type)
        if _has_length(column.type):
            field.metadata[CHAR_METADATA] = to_spark_sql(as_nullable(column.type, True))
        if column.comment is not None:
            field.metadata[_COMMENT] = column.comment
    return schema


def declared_columns(schema: spark_types.StructType) -> tuple[RowField, ...]:
    """The Paimon columns of a query's result, with what `declared_schema` has put into metadata.
    Raises as `columns_of`."""
    return tuple(
        RowField(field.name, _declared_type(field, column.type), field.metadata.get(_COMMENT))
        for field, column in zip(schema.fields, columns_of(schema), strict=True)
    )


def _declared_type(field: spark_types.StructField, otherwise: DataType) -> DataType:
    text = field.metadata.get(CHAR_METADATA)
    return otherwise if text is None else from_sql(text)


def _has_length(data_type: DataType) -> bool:
    return contains_type(data_type, "CHAR") or contains_type(data_type, "VARCHAR")


def _with_comments(kind: spark_types.DataType, data_type: DataType) -> spark_types.DataType:
    """Spark's type with the comments that fields of structs have."""
    match data_type, kind:
        case RowType(fields=fields), spark_types.StructType(fields=parts):
            for field, part in zip(fields, parts, strict=True):
                part.dataType = _with_comments(part.dataType, field.type)
                if field.comment is not None:
                    part.metadata = {_COMMENT: field.comment}
        case ArrayType(element=element), spark_types.ArrayType():
            kind.elementType = _with_comments(kind.elementType, element)
        case MapType(value=value), spark_types.MapType():
            kind.valueType = _with_comments(kind.valueType, value)
    return kind


def plain_type(data_type: spark_types.DataType) -> AtomicType | None:
    """The Paimon type of values that are compared as they are; None for nested ones, and for texts
    that are compared by a collation."""
    if isinstance(data_type, spark_types.StringType) and data_type != spark_types.StringType():
        return None
    if isinstance(data_type, spark_types.DecimalType):
        return AtomicType("DECIMAL", (data_type.precision, data_type.scale))
    return _PAIMON.get(type(data_type))


def _paimon_type(data_type: spark_types.DataType, column: str) -> DataType:
    match data_type:
        case spark_types.DecimalType():
            return AtomicType("DECIMAL", (data_type.precision, data_type.scale))
        case spark_types.CharType():
            return AtomicType("CHAR", (data_type.length,))
        case spark_types.VarcharType():
            return AtomicType("VARCHAR", (data_type.length,))
        case spark_types.ArrayType():
            return ArrayType(_paimon_type(data_type.elementType, column))
        case spark_types.MapType():
            return MapType(
                _paimon_type(data_type.keyType, column), _paimon_type(data_type.valueType, column)
            )
        case spark_types.StructType():
            return RowType(
                tuple(
                    RowField(
                        field.name,
                        _paimon_type(field.dataType, column),
                        field.metadata.get(_COMMENT),
                    )
                    for field in data_type
                )
            )
        case _ if type(data_type) in _PAIMON:
            return _PAIMON[type(data_type)]
        case _:
            raise UnsupportedStatementError(
                f"Column `{column}` has Spark's type {data_type.simpleString()}, which has no "
                "counterpart in Paimon.",
                hint=f"Cast `{column}` to another type in the query.",
            )


# CHAR columns in frames: texts that are compared as CHAR(n) is in Spark's SQL.
#
# A frame has plain strings; what Spark knows of a CHAR column is a member of its metadata, by which
# it pads the texts and other CHAR columns that the column is compared with (`ApplyCharTypePadding`,
# `CharVarcharUtils`). It also pads values that were read, since other writers may have stored
# shorter values.


def with_char_columns(frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """The frame, with those of its columns that are CHAR among `columns` as Spark has them. Fields
    of STRUCTs, elements of ARRAYs and MAPs stay plain strings."""
    lengths = {
        column.name: column.type.parameters[0]
        for column in columns
        if isinstance(column.type, AtomicType) and column.type.name == "CHAR"
    }
    if lengths.keys().isdisjoint(frame.columns):
        return frame
    return frame.select(
        *(_as_char(frame[quoted(name)], name, lengths.get(name)) for name in frame.columns)
    )


def _as_char(stored: SparkColumn, name: str, length: int | None) -> SparkColumn:
    if length is None:
        return stored
    padded = F.when(F.char_length(stored) < length, F.rpad(stored, length, " ")).otherwise(stored)
    return padded.alias(name, metadata={CHAR_METADATA: f"char({length})"})
