"""The rows of a folded VALUES list, fetched as Arrow without a Spark job.

Spark hands a local relation's rows to `collect` as they are, while `toArrow` runs a job for them.
Python's values of the plain types are exact but for instants, which come as whole microseconds.
Nested types are fetched by `toArrow`; VARIANT is not offered, see `variants`.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

from paimon_magics.statements.clauses.names import quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["fetched"]

_NESTED = (spark_types.ArrayType, spark_types.MapType, spark_types.StructType)


def fetched(frame: DataFrame) -> pa.Table:
    """All rows of `frame`, whose columns have names of their own; raises what Spark raises."""
    import pyarrow as pa

    if any(isinstance(field.dataType, _NESTED) for field in frame.schema):
        return frame.toArrow()
    instants = {f.name for f in frame.schema if isinstance(f.dataType, spark_types.TimestampType)}
    rows = frame.select(
        *(
            F.unix_micros(quoted(name)).alias(name) if name in instants else F.col(quoted(name))
            for name in frame.columns
        )
    ).collect()
    schema = _arrow_schema(frame.schema)
    arrays = []
    for position, field in enumerate(schema):
        values = [row[position] for row in rows]
        if field.name in instants:
            arrays.append(pa.array(values, pa.int64()).view(field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _arrow_schema(schema: spark_types.StructType) -> pa.Schema:
    """The Arrow schema of Spark's, instants in UTC: older versions take no zone, and mean UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    takes_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    options: dict[str, Any] = {"timezone": "UTC"} if takes_zone else {}
    return to_arrow_schema(schema, **options)
