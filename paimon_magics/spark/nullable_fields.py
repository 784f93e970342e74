"""Lets every field of a STRUCT be NULL before rows leave Spark.

PySpark's `toArrow` fails for a STRUCT that is NULL in some rows while its fields are never NULL, as
in `IF(c, named_struct('a', 1), NULL)`: Arrow has NULL in the fields of such a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as spark_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

__all__ = ["with_nullable_fields"]


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
                [spark_types.StructField(one.name, _loosened(one.dataType), True) for one in kind]
            )
    return kind
