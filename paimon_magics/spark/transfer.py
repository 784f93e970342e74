"""Sets the size of the Arrow batches between the JVM and Python while a statement writes.

Spark 4.1 and later limit the bytes of an Arrow batch. To do so, they measure every column after
every row, which costs as much as copying the row. Batches of few rows need no such limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import types as spark_types

from paimon_magics.planning.row_changes.merged_updates import ALL_SEEN
from paimon_magics.planning.writes.losses import added_losses
from paimon_magics.planning.writes.row_origins import added_origins
from paimon_magics.spark.session_settings import Values, statement_settings
from paimon_magics.tables.writing.write_spec import Written

_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_UNLIMITED = str(2**31 - 1)  # Spark's own value for no limit
_BATCH_ROWS = 4096  # some megabytes with a page of text in each row


@contextmanager
def small_batches(spark: SparkSession, schema: spark_types.StructType) -> Iterator[None]:
    """Jobs in the body send rows of `schema` in batches that are limited by their rows alone.

    No batch has more rows than the session's own `spark.sql.execution.arrow.maxRecordsPerBatch`.
    Rows with binary or nested columns can be of any size, and keep Spark's own limits. A text
    column whose values take more than 512 KiB on average over a batch makes the job fail, since an
    Arrow column holds 2 GiB at most; see `is_oversized`.
    """
    if any(_is_wide(field.dataType) for field in schema.fields):
        yield
        return
    with statement_settings(spark, (_ROWS, _BYTES), _small):
        yield


def _small(before: Values) -> Values:
    return {_ROWS: str(_fewer(before[_ROWS])), _BYTES: _UNLIMITED}


def collected(
    spark: SparkSession, schema: spark_types.StructType, frame: Callable[[], DataFrame]
) -> tuple[list[Row], bool]:
    """The rows that the tasks of a new `frame()` return, which get rows of `schema` in small
    batches; and whether the job had to run twice because one of these batches was too large."""
    try:
        with small_batches(spark, schema):
            return frame().collect(), False
    except Exception as error:
        if not is_oversized(error):
            raise
        # In a new frame, because a frame that has run keeps the size of its batches.
        return frame().collect(), True


def all_written(parts: Sequence[Written]) -> Written:
    """What several tasks have written together."""
    return Written(
        messages=tuple(message for part in parts for message in part.messages),
        rows=sum(part.rows for part in parts),
        index_files=tuple(file for part in parts for file in part.index_files),
        odd_floats=frozenset[str]().union(*(part.odd_floats for part in parts)),
        unseen=sum((part.unseen for part in parts), ALL_SEEN),
        losses=added_losses(loss for part in parts for loss in part.losses),
        origins=added_origins(part.origins for part in parts),
    )


def is_oversized(error: BaseException) -> bool:
    """Whether a job failed because a batch of `small_batches` was too large for Arrow."""
    text = str(error)
    return "OversizedAllocationException" in text or "org.apache.arrow.memory.Out" in text


def _is_wide(data_type: spark_types.DataType) -> bool:
    return not isinstance(
        data_type,
        spark_types.StringType
        | spark_types.NumericType
        | spark_types.BooleanType
        | spark_types.DateType
        | spark_types.TimestampType
        | spark_types.TimestampNTZType,
    )


def _fewer(rows: str | None) -> int:
    """The rows of a batch: the session's own number where it is less; 0 and less mean no limit."""
    limit = int(rows or 0)
    return min(limit, _BATCH_ROWS) if limit > 0 else _BATCH_ROWS
