"""Reads files by Spark's own readers: those that a user names, and those whose paths are known."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from paimon_magics.spark.queries import cancellable

__all__ = ["file_frame", "lacks_file_system", "load_files"]

_NO_FILE_SYSTEM = re.compile(r"No FileSystem for scheme|ClassNotFoundException: Class \S*\.fs\.")

_PATTERN = re.compile(r"[\\{}\[\]*?]")  # what Hadoop takes a path with for a pattern


def file_frame(spark: SparkSession, kind: str, path: str, options: Mapping[str, str]) -> DataFrame:
    """The lazy frame of the files at `path`, of the format `kind`. Inferring their schema may run a
    job. Raises what Spark raises."""
    with cancellable(spark):
        frame = spark.read.format(kind).options(**options).load(path)
        frame.schema  # noqa: B018 - Spark Connect looks for the files only now
        return frame


def lacks_file_system(error: Exception) -> bool:
    """Whether Spark's error says that its Hadoop has no class for a store: a jar is missing."""
    return _NO_FILE_SYSTEM.search(str(error)) is not None


def load_files(reader: DataFrameReader, paths: Sequence[str]) -> DataFrame:
    """The lazy frame of files whose paths are names, never patterns. Raises what Spark raises.

    Spark has an option for that. But with it, it reads all paths once for each path that looks like
    a pattern (`DataSource.checkAndGlobPathIfNecessary`). So such paths are given as patterns that
    match themselves alone.
    """
    if not any(map(_PATTERN.search, paths)):
        return reader.option("__globPaths__", "false").load(list(paths))
    return reader.load([_PATTERN.sub(r"\\\g<0>", path) for path in paths])
