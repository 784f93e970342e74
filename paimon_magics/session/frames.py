"""Writing a frame that Python holds: Spark's, Arrow's, pandas' or polars'."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from paimon_magics.errors import InvalidValueError, PaimonMagicsError, nearest
from paimon_magics.session.connection import Connection
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.writing import run_insert
from paimon_magics.statements.names import quoted
from paimon_magics.statements.parsing import parse_statement
from paimon_magics.statements.statement import Insert, TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["WriteMode", "write_frame_to"]

WriteMode = Literal["append", "overwrite", "dynamic"]
_MODES = ("append", "overwrite", "dynamic")


def write_frame_to(connection: Connection, frame: Any, name: TableName, mode: str) -> Outcome:
    """Write `frame` to the table as `INSERT … BY NAME` does: columns match by name, those that are
    left out get their default or NULL.

    `mode` is `append`, `overwrite` (the whole table) or `dynamic` (the partitions that receive
    rows; of a table without partitions, all of it). Raises InvalidValueError for another mode or
    what is no frame, and what an INSERT raises.
    """
    if mode not in _MODES:
        raise InvalidValueError(
            f"There is no mode '{mode}'.", hint=nearest(mode, _MODES, what="modes")
        )
    target = ".".join(quoted(part) for part in (name.database or "", name.object_name) if part)
    verb = "INTO" if mode == "append" else "OVERWRITE"
    # Planned as the statement that it is equal to; the source's text is never looked at.
    insert = parse_statement(f"INSERT {verb} {target} BY NAME SELECT * FROM frame")
    assert isinstance(insert, Insert)
    given = _spark_frame(connection.spark, frame)
    partition_mode = "dynamic" if mode == "dynamic" else "static"
    try:
        outcome = run_insert(connection, insert, {}, frame=given, mode=partition_mode)
    except PaimonMagicsError as error:
        error.statement = error.position = None  # there is no text that a place could be shown in
        raise
    outcome.statement = f"write({name}, mode={mode!r})"
    return outcome


def _spark_frame(spark: SparkSession, frame: Any) -> DataFrame:
    """The frame as Spark's. Frames of this process are sent to Spark whole."""
    import pyarrow as pa

    module = type(frame).__module__.partition(".")[0]
    match module:
        case "pyspark" if hasattr(frame, "mapInArrow"):
            found: DataFrame = frame
            return found
        case "pandas" if hasattr(frame, "columns"):
            return spark.createDataFrame(_plain(pa.Table.from_pandas(frame, preserve_index=False)))
        case "polars" if hasattr(frame, "collect"):  # a lazy frame
            return spark.createDataFrame(_plain(frame.collect().to_arrow()))
        case "polars" if hasattr(frame, "to_arrow") and hasattr(frame, "columns"):
            return spark.createDataFrame(_plain(frame.to_arrow()))
        case "pyarrow" if isinstance(frame, pa.Table):
            return spark.createDataFrame(_plain(frame))
        case "pyarrow" if isinstance(frame, pa.RecordBatch):
            return spark.createDataFrame(_plain(pa.Table.from_batches([frame])))
        case "pyarrow" if isinstance(frame, pa.RecordBatchReader):
            return spark.createDataFrame(_plain(frame.read_all()))
    raise InvalidValueError(
        f"A {type(frame).__name__} can't be written.",
        hint="Give a Spark, pandas or polars DataFrame, or an Arrow table, batch or reader.",
    )


def _plain(table: Any) -> Any:
    """The table without what Spark does not take: dictionaries and views; and times as the number
    of milliseconds that Paimon's are."""
    import pyarrow as pa

    fields = []
    for position, field in enumerate(table.schema):
        data_type = field.type
        if pa.types.is_time(data_type):
            times = table.column(position).cast(pa.time32("ms"), safe=False).cast(pa.int32())
            table = table.set_column(position, field.name, times)
            data_type = pa.int32()
        if pa.types.is_dictionary(data_type):
            data_type = data_type.value_type
        if pa.types.is_large_string(data_type) or data_type == pa.string_view():
            data_type = pa.string()
        elif pa.types.is_large_binary(data_type) or data_type == pa.binary_view():
            data_type = pa.binary()
        fields.append(field.with_type(data_type))
    return table.cast(pa.schema(fields))
