"""Frames that Python holds: recognized by type, and converted to Spark's or Arrow's.

Frames of this process go to Spark through Arrow, as a whole; streams of Arrow data go batch by
batch. No value loses anything on the way: a type without a counterpart in Spark becomes the next
wider one, or is refused with its column.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from paimon_magics.errors import InvalidValueError, value_text
from paimon_magics.planning.formatting import count_text
from paimon_magics.session.planned_work import Reads, made_of, note_reads, reads_of
from paimon_magics.session.value_inputs import columns_of, inferred_array
from paimon_magics.spark.narrowing import narrowed
from paimon_magics.spark.rows import frame_of_rows
from paimon_magics.spark.spooled_rows import SpooledRows, frame_of_stream
from paimon_magics.statements.data_types import RowField

if TYPE_CHECKING:
    import pyarrow as pa

    from paimon_magics.spark.handles import DataFrame, SparkSession


_HINT = (
    "Give a DataFrame of Spark, pandas or polars, Arrow data (anything with `__arrow_c_stream__`), "
    "or a list of rows with names: dictionaries, named tuples, or PySpark `Row`s."
)
_FILE_HINT = (
    "To read a file, use a query: CREATE TABLE t AS SELECT * FROM csv.`my.csv`, or "
    "session.write(session.run('SELECT * FROM csv.`my.csv`'), 't', create=True)."
)
_UINT64_DIGITS = 20
_DECIMAL_DIGITS_MAX = 38


def frame_kind(value: object) -> str | None:
    """Return the library of a frame: "Spark", "pandas-on-Spark", "pandas", "polars", "Arrow",
    "Outcome", or the module of another Arrow producer; None if the value is not a frame.

    Imports no library: the library of a frame has been imported already.
    """
    module, name = type(value).__module__.partition(".")[0], type(value).__name__
    if module == "pyspark" and hasattr(value, "mapInArrow"):
        return "Spark"
    if module == "pyspark" and hasattr(value, "to_spark") and hasattr(value, "columns"):
        return "pandas-on-Spark"
    if (module, name) in (("pandas", "DataFrame"), ("geopandas", "GeoDataFrame")):
        return "pandas"
    if (module, name) in (("polars", "DataFrame"), ("polars", "LazyFrame")):
        return "polars"
    if (module, name) in (("pyarrow", "Table"), ("pyarrow", "RecordBatch")) or (
        module == "pyarrow" and name == "RecordBatchReader"
    ):
        return "Arrow"
    if module == "paimon_magics" and name == "Outcome":
        return "Outcome" if getattr(value, "dataframe", None) is not None else None
    if hasattr(type(value), "__arrow_c_stream__") and not name.endswith(("Series", "Array")):
        return module.strip("_")  # DuckDB's relations, and other producers of Arrow data
    return None


def is_own(value: object) -> bool:
    """Whether a program gives the rows themselves, not a query that Spark runs."""
    return frame_kind(value) not in ("Spark", "pandas-on-Spark", "Outcome")


def has_rows(value: object) -> bool:
    """Whether a value is a frame, or a list of rows, which `spark_frame` takes as well."""
    return _is_list(value) or frame_kind(value) is not None


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def frame_text(value: object) -> str:
    """A frame in words: `a pandas frame of 1,234 rows`; without the rows of a lazy frame."""
    kind = frame_kind(value)
    if kind == "Outcome":
        return "the rows of an Outcome"
    rows = getattr(value, "num_rows", getattr(value, "height", None))
    if kind == "pandas":
        rows = len(value)  # type: ignore[arg-type]
    counted = f" of {count_text(rows, 'row')}" if isinstance(rows, int) else ""
    article = "an" if kind == "Arrow" else "a"
    return f"{article} {kind} {'table' if kind == 'Arrow' else 'frame'}{counted}"


def column_names(value: Any) -> Sequence[str]:
    """The column names of a frame, if they are known without a computation; else ()."""
    match frame_kind(value):
        case "pandas" | "polars" if not hasattr(value, "collect"):
            return [str(name) for name in value.columns]
        case "Arrow":
            return list(value.schema.names)
        case _:
            return ()


def spark_frame(spark: SparkSession, value: Any, *, void: bool = False) -> DataFrame:
    """Return the frame as a Spark DataFrame. What has no values at all, such as the elements of
    empty lists, is of the type STRING, with `void` of VOID, which can be cast to every type. Raises
    InvalidValueError for a value that is not a frame, for values or types without a counterpart in
    Spark, and for a frame of another session.

    The rows of a stream may be in temporary files, which are there for as long as the frame, or
    its `spooled_rows`.
    """
    match frame_kind(value):
        case "Spark":
            frame_of_spark: DataFrame = value
        case "pandas-on-Spark":
            frame_of_spark = value.to_spark()
        case "Outcome":
            frame_of_spark = value.dataframe
        case _:
            reader = stream_of(value)
            if reader is None:
                return frame_of_rows(spark, _for_spark(arrow_of(value), void=void))
            schema = _for_spark(reader.schema.empty_table(), void=void).schema
            batches = _batches_for_spark(reader, void=void)
            frame, spooled = frame_of_stream(spark, schema, batches)
            return note_reads(frame, Reads(leases=(spooled,))) if spooled is not None else frame
    if type(frame_of_spark).__module__.startswith("pyspark.sql.connect") != type(
        spark
    ).__module__.startswith("pyspark.sql.connect"):
        raise InvalidValueError(
            "The frame belongs to another Spark session than this one.",
            hint="Make the frame with session.spark, or pass frame.toArrow().",
        )
    planned = narrowed(frame_of_spark, "run")
    return frame_of_spark if planned is frame_of_spark else made_of(planned, frame_of_spark)


def stream_of(value: Any) -> pa.RecordBatchReader | None:
    """Return a reader of the rows of an Arrow producer that may yield one batch after the other,
    as readers and DuckDB's relations do; None for other values. It can be read once.

    Raises InvalidValueError if the producer fails, or has values without columns.
    """
    import pyarrow as pa

    if isinstance(value, pa.RecordBatchReader):
        return value
    kind = frame_kind(value)
    known = ("Spark", "pandas-on-Spark", "pandas", "polars", "Arrow", "Outcome")
    if kind is None or kind in known:
        return None
    return _opened_stream(value, kind)


def _batches_for_spark(reader: pa.RecordBatchReader, *, void: bool) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in _batches_of(reader):
        yield from _for_spark(pa.Table.from_batches([batch]), void=void).to_batches()


def arrow_of(value: Any) -> pa.Table:
    """Return the rows of a frame, neither one of Spark's nor a stream, as an Arrow table with its
    own types.

    Raises InvalidValueError for a value that is not a frame, and for a column whose values are of
    several types, which it names.
    """
    import pyarrow as pa

    if _is_list(value):
        return _arrow_of_rows(value)
    match frame_kind(value):
        case "pandas":
            return _arrow_of_pandas(value)
        case "polars":
            frame = value.collect() if hasattr(value, "collect") else value
            for name, kind in frame.schema.items():
                if "Object" in str(kind):  # Arrow would get memory addresses
                    raise _no_type(name, str(kind))
            return frame.to_arrow()
        case "Arrow":
            if isinstance(value, pa.RecordBatch):
                return pa.Table.from_batches([value])
            assert isinstance(value, pa.Table)
            return value
        case _:
            raise InvalidValueError(
                f"{value_text(value, begins=True)} can't be written.",
                hint=_HINT if not isinstance(value, str) else _FILE_HINT,
            )


def _no_type(column: str, kind: str) -> InvalidValueError:
    return InvalidValueError(
        f"Column `{column}` is of the type {kind}, which neither Spark nor Paimon has.",
        hint=f"Convert `{column}` to numbers or strings first.",
    )


def notes_on(value: Any) -> tuple[str, ...]:
    """Notes for the user who writes a frame: that a named index of pandas is not written."""
    if frame_kind(value) != "pandas":
        return ()
    names = [f"`{name}`" for name in value.index.names if name is not None]
    if not names:
        return ()
    return (
        f"The frame's index {', '.join(names)} was not written; frame.reset_index() makes a column "
        "of it.",
    )


def paimon_columns(schema: pa.Schema) -> tuple[RowField, ...]:
    """Return the columns of a Paimon table for such rows. Raises InvalidValueError."""
    from paimon_magics.tables.schema.types import from_arrow_type

    return tuple(
        RowField(
            field.name,
            from_arrow_type(_plain_type(field.type, field.name, times_as_numbers=False)),
        )
        for field in schema
    )


def _arrow_of_rows(rows: Sequence[Any]) -> pa.Table:
    import pyarrow as pa

    columns = columns_of(rows)
    if columns is None:
        raise InvalidValueError(
            f"A {type(rows).__name__} can't be written unless it holds dictionaries, or other rows "
            "with names.",
            hint=_HINT,
        )
    return pa.table({name: inferred_array(values, name) for name, values in columns.items()})


def _arrow_of_pandas(frame: Any) -> pa.Table:
    import pyarrow as pa

    if getattr(frame.columns, "nlevels", 1) > 1:
        raise InvalidValueError(
            "The columns of the pandas frame have several levels.",
            hint="Give each column one name: frame.columns = ['_'.join(c) for c in frame.columns].",
        )
    names = [str(name) for name in frame.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidValueError(
            f"The pandas frame has several columns named `{twice[0]}`.", hint="Rename one of them."
        )
    columns = {name: frame.iloc[:, position] for position, name in enumerate(names)}
    return pa.table({name: _array(series, name) for name, series in columns.items()})


def _array(series: Any, name: str) -> pa.Array | pa.ChunkedArray:
    """A column of a pandas frame, which marks missing values with NaN, NaT or NA."""
    import pyarrow as pa

    if str(series.dtype) == "object":
        missing = series.isna()
        return inferred_array(
            [None if m else v for v, m in zip(series, missing, strict=True)], name
        )
    if str(series.dtype) == "category":
        inferred_array(list(series.cat.categories), name)
    try:
        return pa.array(series, from_pandas=True)
    except UnicodeEncodeError:
        return inferred_array(list(series), name)  # raises: it names the row
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise _no_type(name, str(series.dtype)) from error


def _for_spark(table: pa.Table, *, void: bool) -> pa.Table:
    """Return the table in types that Spark takes; a time of day becomes Paimon's number of
    milliseconds. `void` is as in `spark_frame`.

    Raises InvalidValueError for a type without a counterpart in Spark, and for values that would be
    cut.
    """
    import pyarrow as pa

    columns, fields = [], []
    for field, column in zip(table.schema, table.columns, strict=True):
        wanted = _plain_type(field.type, field.name, times_as_numbers=True, void=void)
        try:
            if pa.types.is_time(field.type):
                column = column.cast(pa.time32("ms"))
            if column.type != wanted:
                column = column.cast(wanted)
        except (pa.ArrowException, ValueError) as error:
            raise InvalidValueError(
                f"Column `{field.name}` has a value that {_unit(wanted)} would cut: {error}.",
                hint="Round the values first, or convert them to strings.",
            ) from error
        columns.append(column)
        fields.append(pa.field(field.name, wanted, field.nullable))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _unit(wanted: Any) -> str:
    import pyarrow as pa

    if pa.types.is_timestamp(wanted):
        return "a timestamp of microseconds"
    return "a time of milliseconds" if wanted == pa.int32() else f"the type {wanted}"


def _plain_type(kind: Any, column: str, *, times_as_numbers: bool, void: bool = False) -> Any:
    """Return the type that Spark has for Arrow's; raises InvalidValueError with the column."""
    import pyarrow as pa

    of = pa.types

    def plain(inner: Any) -> Any:
        return _plain_type(inner, column, times_as_numbers=False, void=void)

    if void and of.is_null(kind):
        return kind
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name.startswith("arrow."):
        return plain(kind.storage_type)
    if of.is_dictionary(kind) or of.is_run_end_encoded(kind):
        return plain(kind.value_type)
    if of.is_time(kind):
        return pa.int32() if times_as_numbers else pa.time32("ms")
    if of.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if of.is_fixed_size_list(kind) or of.is_list(kind) or of.is_large_list(kind):
        return pa.list_(plain(kind.value_type))
    if of.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if of.is_struct(kind):
        inner = [pa.field(field.name, plain(field.type), field.nullable) for field in kind]
        return pa.struct(inner)
    if of.is_fixed_size_binary(kind):
        return pa.binary()
    if kind in _nearest():
        return _nearest()[kind]
    if of.is_decimal(kind) and kind.precision <= _DECIMAL_DIGITS_MAX:
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, pa.BaseExtensionType) or not _is_atomic(pa, kind):
        raise InvalidValueError(
            f"Column `{column}` has Arrow's type {kind}, which neither Spark nor Paimon has.",
            hint=f"Convert `{column}` first: durations to seconds, other types to strings.",
        )
    return kind


@functools.cache
def _nearest() -> Mapping[Any, Any]:
    """For each type that Spark lacks, the next wider one that holds all its values."""
    import pyarrow as pa

    return {
        pa.null(): pa.string(),
        pa.large_string(): pa.string(),
        pa.string_view(): pa.string(),
        pa.large_binary(): pa.binary(),
        pa.binary_view(): pa.binary(),
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(_UINT64_DIGITS, 0),
        pa.float16(): pa.float32(),
        pa.date64(): pa.date32(),
    }


def _is_atomic(pa: Any, kind: Any) -> bool:
    of = pa.types
    return bool(
        of.is_boolean(kind)
        or of.is_signed_integer(kind)
        or of.is_floating(kind)
        or of.is_date(kind)
        or kind in (pa.string(), pa.binary())
    )


# Streams of Arrow data from other libraries: opened, read, and kept for frames of them.


def _opened_stream(producer: Any, kind: str) -> pa.RecordBatchReader:
    """Return a reader of a value with `__arrow_c_stream__`; `kind` names its library in errors.

    Raises InvalidValueError if the producer fails, or has values without columns.
    """
    import pyarrow as pa

    try:
        return pa.RecordBatchReader.from_stream(producer)
    except Exception as error:
        raise _unreadable(kind, error) from error


def _batches_of(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a reader. Raises InvalidValueError if its producer fails."""
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except Exception as error:
            raise _unreadable("Arrow", error) from error
        yield batch


def spooled_rows(frame: DataFrame) -> list[object]:
    """The owner of the temporary files that the frame of a stream reads, if there are any."""
    return [lease for lease in reads_of(frame).leases if isinstance(lease, SpooledRows)]


def _unreadable(kind: str, error: Exception) -> InvalidValueError:
    return InvalidValueError(
        f"The rows of the {kind} stream can't be read: {error}.",
        hint="Nothing was written. The error comes from the stream's own library.",
    )
