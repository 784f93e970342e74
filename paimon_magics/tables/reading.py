"""Batches of rows as Spark's `mapInArrow` takes them. Light to import: tasks load it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["spark_arrow_type", "spark_batches"]


def spark_batches(batches: Iterator[pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The rows in batches of at least `batch_rows` rows but for the last, in Spark's types."""
    pending: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        if rows >= batch_rows:
            yield _joined(pending)
            pending, rows = [], 0
    if pending:
        yield _joined(pending)


def spark_arrow_type(data_type: pa.DataType) -> pa.DataType:
    """The Arrow type that Spark's `mapInArrow` takes in place of `data_type`.

    Spark knows timestamps in microseconds and no times of day: TIME becomes its milliseconds.
    """
    if pa.types.is_timestamp(data_type):
        return pa.timestamp("us", tz=data_type.tz)
    if pa.types.is_time32(data_type) or pa.types.is_time64(data_type):
        return pa.int32()
    if pa.types.is_fixed_size_binary(data_type) or pa.types.is_large_binary(data_type):
        return pa.binary()
    if pa.types.is_large_string(data_type):
        return pa.string()
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(spark_arrow_type(field.type)) for field in data_type])
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        field = data_type.value_field
        return pa.list_(field.with_type(spark_arrow_type(field.type)))
    if pa.types.is_map(data_type):
        return pa.map_(
            data_type.key_field.with_type(spark_arrow_type(data_type.key_type)),
            data_type.item_field.with_type(spark_arrow_type(data_type.item_type)),
        )
    return data_type


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches).combine_chunks()
    columns = [_for_spark(_single(table.column(i))) for i in range(table.num_columns)]
    return pa.RecordBatch.from_arrays(columns, names=table.column_names)


def _single(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], type=column.type)


def _for_spark(column: pa.Array) -> pa.Array:
    target = spark_arrow_type(column.type)
    if target == column.type:
        return column
    if pa.types.is_time32(column.type):
        unit = 1 if column.type.unit == "ms" else 1000
        return pc.multiply(column.view(pa.int32()), pa.scalar(unit, pa.int32()))
    # Nanoseconds lose their last three digits, downwards, as in Paimon's own Spark connector.
    return pc.cast(column, target, safe=False)
