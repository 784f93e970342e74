"""Fetches the rows of a folded VALUES list as Arrow without a Spark job.

`collect` returns a local relation's rows without a job, while `toArrow` runs one. Python's values
of the atomic types are exact, except those of TIMESTAMP_LTZ; they are fetched as microseconds since
the epoch. Nested types are fetched by `toArrow`. VARIANT is not supported here, see `columns`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

from paimon_magics.spark.jvm import is_connect
from paimon_magics.spark.types import arrow_schema
from paimon_magics.statements.clauses.names import quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_PLAIN = (
    *(spark_types.BooleanType, spark_types.ByteType, spark_types.ShortType),
    *(spark_types.IntegerType, spark_types.LongType, spark_types.FloatType),
    *(spark_types.DoubleType, spark_types.DecimalType, spark_types.BinaryType),
    *(spark_types.DateType, spark_types.TimestampType, spark_types.TimestampNTZType),
)

_NESTED = (spark_types.ArrayType, spark_types.MapType, spark_types.StructType)


def fetched(frame: DataFrame) -> pa.Table:
    """All rows of `frame`, whose column names are unique. Raises what Spark raises."""
    try:
        return _collected(frame)
    except (ValueError, OverflowError):  # years that Python's dates don't have
        return frame.toArrow().cast(arrow_schema(frame.schema))


def _collected(frame: DataFrame) -> pa.Table:
    import pyarrow as pa

    if any(isinstance(field.dataType, _NESTED) for field in frame.schema):
        return frame.toArrow()
    instants = {f.name for f in frame.schema if isinstance(f.dataType, spark_types.TimestampType)}
    schema = arrow_schema(frame.schema)
    if instants:
        frame = frame.select(
            *(
                F.unix_micros(quoted(name)).alias(name) if name in instants else F.col(quoted(name))
                for name in frame.columns
            )
        )
    rows = frame.collect()
    arrays = []
    for position, field in enumerate(schema):
        values = [row[position] for row in rows]
        if field.name in instants:
            arrays.append(pa.array(values, pa.int64()).view(field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def few_fetched(frame: DataFrame) -> pa.Table:
    """All rows of `frame`, which are few, as `toArrow` returns them, but without a job if Spark
    already has them. Raises what Spark raises.

    On Spark Connect `toArrow` starts no job either. `toArrow` handles other types, and names that
    are not unique.
    """
    kinds = [field.dataType for field in frame.schema]
    is_plain = all(isinstance(kind, _PLAIN) or kind == spark_types.StringType() for kind in kinds)
    if is_connect(frame.sparkSession) or not is_plain or len(set(frame.columns)) < len(kinds):
        return frame.toArrow()
    return fetched(frame)
