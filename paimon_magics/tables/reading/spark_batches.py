"""Converts batches for Spark's `mapInArrow`. Light to import, because Spark's tasks load it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.binlog import side_by_side

IS_PAIR = "is_pair"


def spark_batches(
    batches: Iterator[pa.RecordBatch], batch_rows: int, variants: Collection[str] = ()
) -> Iterator[pa.RecordBatch]:
    """The rows in Spark's types, in batches of at least `batch_rows` rows; the last may have fewer.

    `variants` are the columns with VARIANT values, which are structs in Arrow.
    """
    pending: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        if rows >= batch_rows:
            yield _joined(pending, variants)
            pending, rows = [], 0
    if pending:
        yield _joined(pending, variants)


def names_apart(number: int) -> tuple[str, str]:
    """The names of the two columns that come in place of an array of a binlog."""
    return f"{number}_before", f"{number}_after"


def pairs_apart(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of a binlog with two columns of values for each array, behind its columns that are no
    arrays and `IS_PAIR`, which tells whether an array has two values."""
    singles = sum(not pa.types.is_list(data_type) for data_type in batch.schema.types)
    is_pair, columns = side_by_side(batch.columns[singles:], batch.num_rows)
    names = [name for at in range(len(columns) // 2) for name in names_apart(at)]
    return pa.RecordBatch.from_arrays(
        [*batch.columns[:singles], pa.array(is_pair), *columns],
        names=[*batch.schema.names[:singles], IS_PAIR, *names],
    )


def _spark_arrow_type(data_type: pa.DataType) -> pa.DataType:
    """The Arrow type that Spark's `mapInArrow` takes in place of `data_type`.

    Spark has timestamps in microseconds and no TIME: a TIME becomes its milliseconds as INT.
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
        return pa.struct([field.with_type(_spark_arrow_type(field.type)) for field in data_type])
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        field = data_type.value_field
        return pa.list_(field.with_type(_spark_arrow_type(field.type)))
    if pa.types.is_map(data_type):
        return pa.map_(
            data_type.key_field.with_type(_spark_arrow_type(data_type.key_type)),
            data_type.item_field.with_type(_spark_arrow_type(data_type.item_type)),
        )
    return data_type


def _joined(batches: Sequence[pa.RecordBatch], variants: Collection[str]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches).combine_chunks()
    columns = []
    for name, chunked in zip(table.column_names, table.columns, strict=True):
        column = _for_spark(_single(chunked))
        columns.append(column.cast(_marked(column.type)) if name in variants else column)
    return pa.RecordBatch.from_arrays(columns, names=table.column_names)


def _marked(data_type: pa.DataType) -> pa.DataType:
    """The type with the mark by which Spark tells a VARIANT from any other struct."""
    if pa.types.is_struct(data_type):
        if [field.name for field in data_type] == ["value", "metadata"]:
            metadata = data_type.field("metadata").with_metadata({"variant": "true"})
            return pa.struct([data_type.field("value"), metadata])
        return pa.struct([field.with_type(_marked(field.type)) for field in data_type])
    if pa.types.is_list(data_type):
        return pa.list_(data_type.value_field.with_type(_marked(data_type.value_type)))
    if pa.types.is_map(data_type):
        item = data_type.item_field.with_type(_marked(data_type.item_type))
        return pa.map_(data_type.key_field, item)
    return data_type


def _single(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], type=column.type)


def _for_spark(column: pa.Array) -> pa.Array:
    target = _spark_arrow_type(column.type)
    if target == column.type:
        return column
    if pa.types.is_time32(column.type):
        unit = 1 if column.type.unit == "ms" else 1000
        return pc.multiply(column.view(pa.int32()), pa.scalar(unit, pa.int32()))
    # Nanoseconds lose their last three digits, downwards, as in Paimon's own Spark connector.
    return pc.cast(column, target, safe=False)
