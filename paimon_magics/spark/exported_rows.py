"""Writes the rows of a frame into files by Spark's own writers, and counts them as they are
written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from paimon_magics.spark.queries import cancellable


def columns_without_text(frame: DataFrame, kind: str) -> dict[str, str]:
    """The columns of a frame that files of the format `kind`, CSV or JSON, have no text for that
    can be loaded again, with their types: bytes, and of CSV values with parts."""
    parts = (T.ArrayType, T.MapType, T.StructType, T.VariantType)
    return {
        field.name: field.dataType.simpleString()
        for field in frame.schema.fields
        if _has_bytes(field.dataType) or (kind == "csv" and isinstance(field.dataType, parts))
    }


def _has_bytes(type_: T.DataType) -> bool:
    match type_:
        case T.BinaryType():
            return True
        case T.ArrayType():
            return _has_bytes(type_.elementType)
        case T.MapType():
            return _has_bytes(type_.keyType) or _has_bytes(type_.valueType)
        case T.StructType():
            return any(_has_bytes(field.dataType) for field in type_.fields)
        case _:
            return False


def write_files(
    frame: DataFrame,
    kind: str,
    path: str,
    options: Mapping[str, str],
    *,
    partition_by: Sequence[str] = (),
    single: bool = False,
    overwrite: bool = False,
) -> int:
    """Write the rows in Spark's format `kind` into the folder `path`, by one job; return their
    number. With `single` one task writes one file. Raises what Spark raises, also for a folder that
    exists, unless it may `overwrite` it."""
    counted = Observation()
    rows = frame.observe(counted, F.count(F.lit(1)).alias("rows"))
    # Settings of the session would keep old partitions, and cut a single file into several.
    options = {**options, "partitionOverwriteMode": "static"}
    if single:
        rows = rows.coalesce(1)
        options["maxRecordsPerFile"] = "0"
    writer = rows.write.format(kind).options(**options)
    writer = writer.mode("overwrite" if overwrite else "errorifexists")
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    with cancellable(frame.sparkSession):
        writer.save(path)
    return int(counted.get["rows"])
