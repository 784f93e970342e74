"""How rows go between the JVM and Python while a statement writes.

Spark 4.1 and later end an Arrow batch by its bytes, and for that measure every column after every
row: as dear as copying the row. Batches of few rows need no such measure.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

__all__ = ["small_batches"]

_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_UNLIMITED = str(2**31 - 1)  # what Spark itself takes for no limit
_BATCH_ROWS = 4096  # with a page of text in each some megabytes

_lock = threading.Lock()
_open: WeakKeyDictionary[SparkSession, tuple[int, dict[str, str | None]]] = WeakKeyDictionary()
"""How many statements of a session need it now, and what it was before the first of them."""


@contextmanager
def small_batches(spark: SparkSession, schema: spark_types.StructType) -> Iterator[None]:
    """Jobs in the body send rows of `schema` in batches that are bounded by their rows alone.

    Never of more rows than the session's own `spark.sql.execution.arrow.maxRecordsPerBatch`. Rows
    of binary or nested columns can be of any size, and keep Spark's own bounds. A text column whose
    values take more than 512 KiB on average over a batch fails, as an Arrow column holds 2 GiB at
    most; see `is_oversized`.
    """
    if any(_is_wide(field.dataType) for field in schema.fields):
        yield
        return
    with _lock:
        users, before = _open.get(spark, (0, {}))
        if not users:
            before = {key: _value(spark, key) for key in (_ROWS, _BYTES)}
            _set(spark, {_ROWS: str(_fewer(before[_ROWS])), _BYTES: _UNLIMITED})
        _open[spark] = users + 1, before
    try:
        yield
    finally:
        with _lock:
            users, before = _open.pop(spark)
            if users > 1:
                _open[spark] = users - 1, before
            else:
                _set(spark, before)


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


def _value(spark: SparkSession, key: str) -> str | None:
    try:
        return spark.conf.get(key, None)
    except PySparkException:
        return None


def _set(spark: SparkSession, values: dict[str, str | None]) -> None:
    for key, value in values.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


def _fewer(rows: str | None) -> int:
    """The session's own rows of a batch, where they are fewer; 0 and less mean any number."""
    given = int(rows or 0)
    return min(given, _BATCH_ROWS) if given > 0 else _BATCH_ROWS
