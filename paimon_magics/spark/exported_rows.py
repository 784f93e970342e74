"""Writes the rows of a frame into files by Spark's own writers, and counts them as they are
written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from paimon_magics.spark.queries import cancellable


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
    if single:
        rows = rows.coalesce(1)
    writer = rows.write.format(kind).options(**options)
    writer = writer.mode("overwrite" if overwrite else "errorifexists")
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    with cancellable(frame.sparkSession):
        writer.save(path)
    return int(counted.get["rows"])
