"""Reads files with Spark's own readers: files that a user names, and files with known paths."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, DataFrameReader, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from paimon_magics.errors import InvalidValueError
from paimon_magics.spark.queries import cancellable
from paimon_magics.statements.clauses.names import quoted

_NO_FILE_SYSTEM = re.compile(r"No FileSystem for scheme|ClassNotFoundException: Class \S*\.fs\.")

_ESCAPED = re.compile(r"\\[{}\[\]*?\\]")
_PATTERN = re.compile(r"[\\{}\[\]*?]")  # what Hadoop takes a path with for a pattern


CORRUPT = "_corrupt_record"
"""The column that Spark adds to a JSON file's, where it can't read all its lines."""

_LINE = "__paimon_magics_line"
_PATH = "_metadata.file_path"
_REPLACEMENT = "\ufffd"  # what Java's decoders put in place of bytes that are no characters
_SHOWN_MAX = 1000


def file_frame(spark: SparkSession, kind: str, path: str, options: Mapping[str, str]) -> DataFrame:
    """The lazy frame of the files at `path`, of the format `kind`. Inferring their schema may run a
    job. Raises what Spark raises, and InvalidValueError as `check_whole_files` does."""
    if _ESCAPED.search(path):  # else it may be a pattern
        check_whole_files([path], options)
    with cancellable(spark):
        frame = spark.read.format(kind).options(**options).load(path)
        frame.schema  # noqa: B018 - Spark Connect looks for the files only now
        return frame


def check_whole_files(paths: Iterable[str], options: Mapping[str, str]) -> None:
    """Raise InvalidValueError for text files that are read as a whole, and whose paths have
    characters of patterns: Spark would look for names and types in the files that these match
    (`MultiLineCSVDataSource`), which may be others."""
    if not any(key.lower() == "multiline" and value == "true" for key, value in options.items()):
        return
    for path in paths:
        if _PATTERN.search(path):
            shown = path.replace("\\", "").removeprefix("file://")
            raise InvalidValueError(
                f"{shown} has values with line ends, and Spark can't read such a file whose path "
                "has one of * ? [ ] { }.",
                hint="Rename the file or its folder, or load it by pandas: session.write("
                "pandas.read_csv(…), table).",
            )


def lacks_file_system(error: Exception) -> bool:
    """Whether Spark's error reports that its Hadoop has no class for a store: a jar is missing."""
    return _NO_FILE_SYSTEM.search(str(error)) is not None


def load_files(reader: DataFrameReader, paths: Sequence[str]) -> DataFrame:
    """The lazy frame of files whose paths are names, never patterns. Raises what Spark raises.

    Spark has an option for that. But with this option it reads all paths once for each path that
    looks like a pattern (`DataSource.checkAndGlobPathIfNecessary`). So such paths are given as
    patterns that match only themselves.
    """
    if not any(map(_PATTERN.search, paths)):
        return reader.option("__globPaths__", "false").load(list(paths))
    return reader.load([_PATTERN.sub(r"\\\g<0>", path) for path in paths])


# Counts the lines of text files that Spark reads only in part, without a word of its own.


@dataclass(frozen=True, slots=True)
class BadLines:
    """The number of lines that lack the values of the columns, and the number of rows with bytes
    that are not characters. Of each, the first by path and text: the file's path, and the line or
    the text of the value."""

    unfit: int
    unfit_at: tuple[str, str]
    undecoded: int
    undecoded_at: tuple[str, str]


def bad_lines(
    spark: SparkSession,
    kind: str,
    path: str,
    options: Mapping[str, str],
    schema: T.StructType,
) -> BadLines:
    """Count the lines at `path` that don't fit `schema`, by one job. Raises what Spark raises."""
    fields = [field for field in schema.fields if field.name != CORRUPT]
    wanted = T.StructType([*fields, T.StructField(_LINE, T.StringType())])
    plain_options = {key: value for key, value in options.items() if key.lower() not in _REPLACED}
    reader = spark.read.format(kind).schema(wanted).options(**plain_options)
    # Spark counts the values of a line only where it reads all columns.
    whole = reader.options(mode="PERMISSIVE", columnNameOfCorruptRecord=_LINE, columnPruning=False)
    rows = whole.load(path)
    texts = [
        F.col(quoted(field.name)) for field in fields if isinstance(field.dataType, T.StringType)
    ]
    line, place = F.col(_LINE), F.col(_PATH)
    undecoded: Column = F.lit(False)
    value: Column = F.lit(None).cast("string")
    for text in reversed(texts):
        is_bad = F.coalesce(F.contains(text, F.lit(_REPLACEMENT)), F.lit(False))
        undecoded, value = undecoded | is_bad, F.when(is_bad, text).otherwise(value)
    first = F.col(quoted(fields[0].name))
    with cancellable(spark):
        (counts,) = rows.agg(
            F.count(line).alias("unfit"),
            _least(line.isNotNull(), place, line).alias("line"),
            F.count_if(undecoded).alias("undecoded"),
            _least(undecoded, place, value).alias("value"),
            F.count(first),  # Spark refuses to read the lines alone
        ).collect()
    return BadLines(
        counts["unfit"], _place(counts["line"]), counts["undecoded"], _place(counts["value"])
    )


_REPLACED = ("mode", "columnnameofcorruptrecord", "inferschema")


def _least(condition: Column, place: Column, text: Column) -> Column:
    shown = F.substring(text, 1, _SHOWN_MAX).alias("text")
    return F.min(F.when(condition, F.struct(place.alias("path"), shown)))


def _place(row: Row | None) -> tuple[str, str]:
    return ("", "") if row is None else (row["path"], row["text"])
