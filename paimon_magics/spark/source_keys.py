"""The values by which the source of a MERGE is joined, or their range, found by one job."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

from paimon_magics.planning.row_changes.source_keys import KeyRange, KeyValue, SourceKey
from paimon_magics.spark.python_workers import keep_modules
from paimon_magics.spark.types import plain_type
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.tables.row_changes.looked_up_keys import INTEGERS_MAX, TEXTS_MAX

_CHARACTERS_MAX = 1_000
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_OTHER_ROWS = (
    "The source of this MERGE returned rows that it did not return before: its result changes with "
    "each read. Write it to a table first."
)


def type_of(frame: DataFrame, name: str) -> AtomicType | None:
    """The Paimon type of a column; None if files can't be compared with it."""
    return plain_type(frame.schema[name].dataType)


def key_ranges(frame: DataFrame, keys: Mapping[str, SourceKey]) -> dict[str, KeyRange]:
    """Return the ranges of the columns of `frame` that have the values of `keys`, by one job. There
    is no range for a key with NULLs that match NULLs, or for values that Python can't represent
    exactly. Raises what Spark raises."""
    ends: list[SparkColumn] = [F.count(F.lit(1))]
    for name in keys:
        value = _comparable(frame, name)
        ends += [F.count(F.col(quoted(name))), F.min(value), F.max(value)]
    row = frame.agg(*(end.alias(f"end_{at}") for at, end in enumerate(ends))).collect()[0]
    total = row[0]
    ranges: dict[str, KeyRange] = {}
    for at, (name, key) in enumerate(keys.items()):
        count, least, greatest = row[1 + 3 * at : 4 + 3 * at]
        if key.null_safe and count < total:
            continue
        data_type = frame.schema[name].dataType
        low, high = _value(least, data_type), _value(greatest, data_type)
        if (low is None) == (least is None) and (high is None) == (greatest is None):
            ranges[name] = KeyRange(key, low, high)
    return ranges


def distinct_values(frame: DataFrame, names: Sequence[str]) -> dict[str, pa.Array]:
    """Return the distinct values, NULL left out, of those of the columns that have few enough for
    `LookedUpKeys`, by one job. Raises what Spark raises."""
    wanted = frame.select(*map(quoted, names))
    parts = wanted.mapInArrow(_Distinct(), _DISTINCT).collect()
    distinct: dict[str, pa.Array] = {}
    for name in names:
        mine = [row["values"] for row in parts if row["name"] == name]
        if None in mine:
            continue
        kind = pa.string() if isinstance(frame.schema[name].dataType, _TEXT) else pa.int64()
        read = [pa.ipc.open_stream(bytes(message)).read_all().column(0) for message in mine]
        chunks = [chunk for column in read for chunk in column.chunks]
        values = pc.unique(pa.chunked_array(chunks, kind))
        if _are_few(values):
            distinct[name] = values
    return distinct


_DISTINCT = "name STRING, values BINARY"
_TEXT = spark_types.StringType


def _are_few(values: pa.Array) -> bool:
    return len(values) <= (TEXTS_MAX if pa.types.is_string(values.type) else INTEGERS_MAX)


class _Distinct:
    """Runs in the task: returns the distinct values of each column, NULL for too many."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        distinct: dict[str, pa.Array | None] = {}
        for batch in batches:
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                before = distinct.get(name, column[:0])
                if before is None:
                    continue
                values = pc.unique(pa.chunked_array([before, pc.drop_null(column)]))
                distinct[name] = values if _are_few(values) else None
        keep_modules()
        for name, values in distinct.items():
            yield pa.RecordBatch.from_pydict(
                {"name": [name], "values": pa.array([_stream(values)], pa.binary())}
            )


def _stream(values: pa.Array | None) -> bytes | None:
    if values is None:
        return None
    if pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    rows = pa.RecordBatch.from_arrays(
        [values.cast(pa.string() if text else pa.int64())], ["values"]
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue().to_pybytes())


def within(frame: DataFrame, ranges: Mapping[str, KeyRange]) -> DataFrame:
    """The rows of `frame`; a job on them fails at a row outside the ranges of its columns, because
    its matches would not be read. If Spark loses persisted rows with an executor, it recomputes
    them, and the source may then return other rows."""
    for name, key_range in ranges.items():
        value = F.col(quoted(name))
        is_known = F.lit(False) if key_range.key.null_safe else value.isNull()
        if key_range.least is not None and key_range.greatest is not None:
            of_type = frame.schema[name].dataType
            low, high = (F.lit(end).cast(of_type) for end in (key_range.least, key_range.greatest))
            is_known = is_known | ((value >= low) & (value <= high))
        # NULL is not known either. With a function that counts as random Spark leaves the filter
        # where it is: it would ask the same of the table's rows, which equal these in a join.
        failure = F.raise_error(F.lit(_OTHER_ROWS)).cast("boolean")
        frame = frame.where(F.when(is_known, F.spark_partition_id() >= 0).otherwise(failure))
    return frame


def _comparable(frame: DataFrame, name: str) -> SparkColumn:
    """A column in a form that Python gets exactly, in the same order."""
    value = F.col(quoted(name))
    match frame.schema[name].dataType:
        case spark_types.DateType():  # Python's dates end in the year 9999
            return F.unix_date(value)
        case spark_types.StringType():  # there are texts that are no UTF-8
            return value.cast("binary")
        case _:
            return value


def _value(value: object, data_type: spark_types.DataType) -> KeyValue | None:
    """The value; None if Python can't represent it exactly."""
    match data_type, value:
        case spark_types.DateType(), int():
            day = value + _EPOCH
            is_day = 0 < day <= datetime.date.max.toordinal()
            return datetime.date.fromordinal(day) if is_day else None
        case spark_types.StringType(), bytes() | bytearray():
            try:
                text = bytes(value).decode()
            except UnicodeDecodeError:
                return None
            return text if len(text) <= _CHARACTERS_MAX else None
        case _:
            return value  # type: ignore[return-value]
