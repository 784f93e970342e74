"""The rows of files that COPY INTO loads: as their readers give them, with what is wrong with each.

Values of CSV and JSON files are read as texts, and cast to the table's columns. A row that can't be
loaded has a text in the column ERROR: its line is malformed, a value can't be cast, is too long,
or is NULL where the column takes none.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from paimon_magics.planning.copying.results import FileErrors
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.planning.writes.row_origins import ORIGIN
from paimon_magics.spark.casting import CHECK_FAILED, type_text
from paimon_magics.spark.files import check_whole_files, load_files
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.types import spark_type
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import AtomicType, DataType
from paimon_magics.tables.stores.avro_records import avro_batches, avro_schema

ERROR = "__paimon_magics_error"
"""Why a row can't be loaded; NULL if it can."""

RECORD = "__paimon_magics_record"
"""The line of a file that can't be read."""

FILE_URI = "__paimon_magics_file_uri"
"""The URI of a row's file, where Spark's own readers don't tell it."""

UNQUOTED_EMPTY = "\ue000NULL\ue000"
"""What Spark's reader of CSV takes for NULL, which it also puts for an empty field without quotes.
By default that is the empty text, so that a quoted one is NULL too."""

_FILE = "__paimon_magics_file"
_PATH = "_metadata.file_path"
_REPLACEMENT = "\ufffd"  # what Java's decoders put in place of bytes that are no characters
_SHOWN_MAX = 200
_FIRST_LINES = 3
_TASKS_MAX = 200
_UNDECODED = "bytes that are not characters of its encoding"


@dataclass(frozen=True, slots=True)
class SourceRows:
    """The rows of files. The `columns` of `frame` are for the table's columns of the same position;
    behind them may be RECORD. `is_text` says that their values are texts."""

    frame: DataFrame
    columns: tuple[Column, ...]
    is_text: bool
    replaces_characters: bool = False

    @property
    def names(self) -> list[str]:
        """The names of the frame's columns that are loaded."""
        return self.frame.columns[: len(self.columns)]

    @property
    def pairs(self) -> list[tuple[str, Column]]:
        """The columns of the frame, with those of the table that store them."""
        return list(zip(self.names, self.columns, strict=True))


# Else a part of a file would count as all of it, and the file as loaded.
_WHOLE_FILES = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}


def read_files(
    spark: SparkSession,
    kind: str,
    paths: Sequence[str],
    options: Mapping[str, str],
    schema: T.StructType | None = None,
) -> DataFrame:
    """The lazy frame of files, of Spark's format `kind`. Raises what Spark raises, for a damaged or
    missing file too, whatever the session's settings are; and as `check_whole_files`, where
    names or types come from the files."""
    if schema is None:
        check_whole_files(paths, options)
    reader = spark.read.format(kind).options(**options, **_WHOLE_FILES)
    with cancellable(spark):
        frame = load_files(reader if schema is None else reader.schema(schema), paths)
        frame.schema  # noqa: B018 - Spark Connect looks for the files only now
        return frame


def read_avro(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """The lazy frame of Avro files on this machine, with the columns of the first one and FILE_URI,
    without Spark's package for them. Raises what `avro_schema` raises."""
    schema = avro_schema(paths[0])
    with_uri = schema.append(pa.field(FILE_URI, pa.string()))
    numbers = spark.range(0, len(paths), 1, min(len(paths), _TASKS_MAX))
    tasks = AvroTasks(tuple(paths), schema.serialize().to_pybytes())
    spark_schema = from_arrow_schema(with_uri, prefer_timestamp_ntz=True)
    return numbers.mapInArrow(tasks, spark_schema)


@dataclass(frozen=True, slots=True)
class AvroTasks:
    """Runs in the task: reads the files with the numbers that it gets."""

    paths: tuple[str, ...]
    schema: bytes

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the files, with FILE_URI."""
        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        for batch in batches:
            for number in batch.column(0).to_pylist():
                path = self.paths[number]
                uri = file_uri(path)
                for rows in avro_batches(path, schema):
                    yield rows.append_column(FILE_URI, pa.array([uri] * rows.num_rows, pa.string()))


def file_uri(path: str) -> str:
    """The URI of a file on this machine, as Spark writes it."""
    return f"file://{quote(path)}"


def text_schema(names: Iterable[str], own_types: Mapping[str, T.DataType]) -> T.StructType:
    """The schema to read texts with: each column is one, unless it has a type in `own_types`; the
    last one is RECORD."""
    fields = [T.StructField(name, own_types.get(name, T.StringType())) for name in names]
    return T.StructType([*fields, T.StructField(RECORD, T.StringType())])


def without_record(schema: T.StructType) -> T.StructType:
    """The schema of `text_schema` without RECORD."""
    return T.StructType(schema.fields[:-1])


def first_lines(spark: SparkSession, path: str, options: Mapping[str, str]) -> list[str]:
    """The first lines of a text file."""
    with cancellable(spark):
        lines = load_files(spark.read.format("text").options(**options), [path])
        return [row[0] for row in lines.limit(_FIRST_LINES).collect()]


def with_nulls(frame: DataFrame, nulls: Sequence[str]) -> DataFrame:
    """The frame with NULL in place of these texts, in the columns of texts but RECORD."""
    if not nulls:
        return frame
    columns = []
    for field in frame.schema:
        value = F.col(quoted(field.name))
        if field.name != RECORD and isinstance(field.dataType, T.StringType):
            value = F.when(~value.isin(*nulls), value).alias(field.name)
        columns.append(value)
    return frame.select(*columns)


def without_empty_values(frame: DataFrame, types: Sequence[DataType]) -> DataFrame:
    """The frame with NULL in place of empty texts in the columns for types, by their position, that
    have no empty value."""
    columns = []
    for number, name in enumerate(frame.columns):
        value = F.col(quoted(name))
        if number < len(types) and not isinstance(spark_type(types[number]), T.StringType):
            value = F.when(value != "", value).alias(name)
        columns.append(value)
    return frame.select(*columns)


def checked_rows(rows: SourceRows) -> DataFrame:
    """The rows with ERROR and the path of their file, as Spark writes it."""
    frame = rows.frame
    error: SparkColumn = F.lit(None).cast("string")
    for name, column in reversed(rows.pairs):
        error = _error(frame, name, column, rows, error)
    if RECORD in frame.columns:
        line = F.substring(F.col(RECORD), 1, _SHOWN_MAX)
        malformed = F.concat(F.lit("Malformed record: "), line)
        error = F.when(F.col(RECORD).isNotNull(), malformed).otherwise(error)
    return frame.select("*", _uri(frame).alias(_FILE), error.alias(ERROR))


def _uri(frame: DataFrame) -> SparkColumn:
    return F.col(FILE_URI) if FILE_URI in frame.columns else F.col(_PATH)


def _error(
    frame: DataFrame, name: str, column: Column, rows: SourceRows, otherwise: SparkColumn
) -> SparkColumn:
    """Why the value of a column can't be stored, else `otherwise`."""
    value, shown = F.col(quoted(name)), column.name
    is_text = isinstance(frame.schema[name].dataType, T.StringType)
    target = spark_type(column.type)
    if not (is_text and isinstance(target, T.StringType)):
        failed = value.isNotNull() & value.try_cast(target).isNull()
        text = F.coalesce(F.substring(value.try_cast("string"), 1, _SHOWN_MAX), F.lit("a value"))
        otherwise = F.when(
            failed,
            F.concat(
                F.lit(f"Cast failure in column '{shown}': '"),
                text,
                F.lit(f"' can't be converted to {type_text(column.type)}."),
            ),
        ).otherwise(otherwise)
    match column.type:
        case AtomicType(name="CHAR" | "VARCHAR", parameters=(length,)):
            message = f"A value of column '{shown}' has more than {length} characters."
            too_long = F.length(F.rtrim(value.try_cast("string"))) > length
            otherwise = F.when(too_long, F.lit(message)).otherwise(otherwise)
        case _:
            pass
    if not column.type.nullable and column.default is None:
        message = f"Column '{shown}' is NOT NULL, but the row has NULL there."
        otherwise = F.when(value.isNull(), F.lit(message)).otherwise(otherwise)
    if is_text and rows.is_text and not rows.replaces_characters:
        message = f"A value of column '{shown}' has {_UNDECODED}."
        otherwise = F.when(_is_undecoded(value), F.lit(message)).otherwise(otherwise)
    return otherwise


def _is_undecoded(value: SparkColumn) -> SparkColumn:
    return F.contains(value, F.lit(_REPLACEMENT))


def errors_by_file(spark: SparkSession, checked: DataFrame) -> dict[str, FileErrors]:
    """What is wrong in each file of `checked_rows`, by the plain path of the file; by one job."""
    numbered = checked.withColumn("number", F.monotonically_increasing_id())
    counted = numbered.groupBy(_FILE).agg(
        F.count(F.lit(1)).alias("rows"),
        F.count(ERROR).alias("errors"),
        F.min_by(ERROR, F.when(F.col(ERROR).isNotNull(), F.col("number"))).alias("first"),
    )
    with cancellable(spark):
        counts = counted.collect()
    return {
        plain_path(unquote(row[_FILE])): FileErrors(row["rows"], row["errors"], row["first"])
        for row in counts
    }


def good_rows(checked: DataFrame) -> DataFrame:
    """The rows of `checked_rows` that can be loaded."""
    return checked.where(F.col(ERROR).isNull())


def rejected_rows(checked: DataFrame, rows: SourceRows, load: str) -> DataFrame:
    """The rows of `checked_rows` that can't be loaded, with the file, the line or the row as JSON,
    and why."""
    values = F.to_json(F.struct(*(F.col(quoted(name)) for name in rows.names)))
    record = F.coalesce(F.col(RECORD), values) if RECORD in checked.columns else values
    bad = checked.where(F.col(ERROR).isNotNull())
    return bad.select(
        F.lit(load).alias("load_id"),
        F.current_timestamp().alias("rejected_at"),
        F.col(_FILE).alias("file_path"),
        record.alias("record"),
        F.col(ERROR).alias("error"),
    )


@dataclass(frozen=True, slots=True)
class Origins:
    """The numbers by which the writers count the rows of each file: a checksum of the file's path,
    as Spark writes it, with `salt`, with which no two files have the same. It has the files' places
    by number, and by the path that Spark reads."""

    salt: str
    by_number: Mapping[int, str]
    by_path: Mapping[str, str]

    def of(self, frame: DataFrame) -> DataFrame:
        """The frame with the number of each row's file as the last column."""
        text = F.concat(_uri(frame), F.lit(self.salt)) if self.salt else _uri(frame)
        return frame.select("*", F.crc32(text.cast("binary")).alias(ORIGIN))


def origins_of(frame: DataFrame, places: Mapping[str, str]) -> Origins:
    """The numbers for the files that a frame reads; `places` are theirs by `plain_path`. Runs no
    job."""
    # A local path is `file:/x` in a file's metadata, or `file:///x`, as in the list of files.
    files = {
        form: places[plain_path(unquote(uri))]
        for uri in frame.inputFiles() or map(file_uri, places)
        for form in (uri, uri.replace("file:///", "file:/", 1))
    }
    salt = ""
    while True:
        numbers = {zlib.crc32(f"{uri}{salt}".encode()): place for uri, place in files.items()}
        if len(numbers) == len(files):
            return Origins(salt, numbers, places)
        salt += "."


def plain_path(path: str) -> str:
    """A path or a `file:` URI without escapes as a plain path; other URIs as they are."""
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    return path


def loaded_frame(rows: SourceRows, source: DataFrame) -> DataFrame:
    """The rows as an INSERT takes them: the table's columns alone, then ORIGIN. `source` is
    `rows.frame`, or some of its rows with further columns behind. A text that could not be decoded
    ends the job."""
    columns = []
    for name, column in rows.pairs:
        value = F.col(quoted(name))
        # Other types refuse such a text by themselves.
        is_text = isinstance(spark_type(column.type), T.StringType)
        if rows.is_text and is_text and not rows.replaces_characters:
            message = f"{CHECK_FAILED}column `{column.name}` has {_UNDECODED}"
            failed = F.raise_error(F.lit(message))
            value = F.when(_is_undecoded(value), failed).otherwise(value)
        columns.append(value.alias(column.name))
    return source.select(*columns, ORIGIN)
