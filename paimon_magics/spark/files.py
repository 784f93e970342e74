"""Reads files that a user names, by Spark's own readers."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from paimon_magics.spark.queries import cancellable

__all__ = ["file_frame"]


def file_frame(spark: SparkSession, kind: str, path: str, options: Mapping[str, str]) -> DataFrame:
    """The lazy frame of the files at `path`, of the format `kind`. Inferring their schema may run a
    job. Raises what Spark raises."""
    with cancellable(spark):
        frame = spark.read.format(kind).options(**options).load(path)
        frame.schema  # noqa: B018 - Spark Connect looks for the files only now
        return frame
