"""CHAR columns in frames: texts that are compared as CHAR(n) is in Spark's SQL.

A frame has plain strings; what Spark knows of a CHAR column is a member of its metadata, by which
it pads the texts and other CHAR columns that the column is compared with (`ApplyCharTypePadding`,
`CharVarcharUtils`). It pads what was read, too, since other writers may have stored less.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.spark.types import CHAR_METADATA
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import AtomicType


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
