"""Writing Arrow batches into a table's files, in the kernel or in a Spark task.

`write_batches` is one writer's whole life: it creates files under the transaction's prefix and
returns the commit messages of them. If it raises, the files that it still owned are gone; files
that were already handed over in messages are the transaction's to remove.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.bucket_hash import default_bucket, mod_bucket
from paimon_magics.tables.attempts import Attempt, attempt, ended_error
from paimon_magics.tables.native import NativeTable

__all__ = ["BucketRule", "WriteTask", "Written", "conform", "with_buckets", "write_batches"]


@dataclass(frozen=True, slots=True)
class BucketRule:
    """How a row's bucket follows from its key columns. `function` is default or mod."""

    keys: tuple[str, ...]
    buckets: int
    function: str = "default"

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """The bucket of every row, as int32."""
        columns = [batch.column(key) for key in self.keys]
        if self.function == "mod":
            return pa.array(mod_bucket(columns[0], self.buckets))
        return pa.array(default_bucket(columns, self.buckets))


@dataclass(frozen=True, slots=True)
class WriteTask:
    """What every writer of one statement must know; small and picklable.

    `schema` is the table's exact Arrow schema, serialised. `overwrite` tells that the files
    replace others, so that sequence numbers start anew. `attempts_folder` is what the paths of the
    writers' notes begin with (module `attempts`).
    """

    table: NativeTable
    commit_user: str
    schema: bytes
    partition_keys: tuple[str, ...]
    bucket_rule: BucketRule | None
    overwrite: bool
    attempts_folder: str | None

    def arrow_schema(self) -> pa.Schema:
        """The table's Arrow schema."""
        return pa.ipc.read_schema(pa.py_buffer(self.schema))


@dataclass(frozen=True, slots=True)
class Written:
    """What one writer made: commit messages (Java's serializer, version 14) and rows taken."""

    messages: tuple[bytes, ...]
    rows: int


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """`batch` with exactly the columns, order and types of `schema`.

    Values fit by now (Spark cast them); what is left are the differences between Spark's Arrow
    types and Paimon's: the session's zone instead of UTC, units of time, binary widths, names
    inside nested types. Timestamps lose digits downwards, also before 1970, as in Paimon's Java.
    """
    columns = [_conform_column(batch.column(field.name), field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def with_buckets(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    rule: BucketRule,
    names: tuple[str, str],
    source: int,
) -> Iterator[pa.RecordBatch]:
    """Each batch with two more columns: the bucket (int32) and the row's ordinal (int64).

    The ordinal orders rows by (`source`, position): the statement's order, which a shuffle loses.
    """
    bucket_name, ordinal_name = names
    position = source << 33
    for batch in batches:
        buckets = rule.of(conform(batch, schema))
        ordinals = pa.array(np.arange(position, position + batch.num_rows, dtype=np.int64))
        position += batch.num_rows
        yield batch.append_column(bucket_name, buckets).append_column(ordinal_name, ordinals)


def write_batches(task: WriteTask, batches: Iterable[pa.RecordBatch]) -> Written:
    """Write all batches and return the messages. Rows of one (partition, bucket) keep their order.

    Raises ValueError for rows that the table can't take, OSError for the store's failures, JobError
    when the transaction has ended.
    """
    with attempt(task.attempts_folder, dict(task.table.io_options)) as running:
        try:
            return _write_batches(task, batches, running)
        except BaseException as error:
            # The native writer's panics are no Exceptions, and would pass by everything that
            # turns a failure into an error of ours.
            if type(error).__name__ == "PanicException":
                raise RuntimeError(f"The native writer failed: {error}") from error
            raise


def _write_batches(
    task: WriteTask, batches: Iterable[pa.RecordBatch], running: Attempt | None
) -> Written:
    schema = task.arrow_schema()
    described = task.table
    if running is not None:
        described = described.with_file_prefix(f"{running.id}-")
    builder = described.open().new_batch_write_builder()._with_commit_user(task.commit_user)
    if task.overwrite:
        builder = builder.with_overwrite({})
    writer = builder.new_write()
    rows = 0
    try:
        for batch in batches:
            conformed = conform(batch, schema)
            if not conformed.num_rows:
                continue
            rows += conformed.num_rows
            buckets = _buckets(conformed, task)
            if running is not None:
                running.note(conformed.select(list(task.partition_keys)), buckets)
            if task.bucket_rule is None:
                writer.write_arrow(_unsliced(conformed))
                continue
            for bucket, group in _groups(conformed, task, buckets):
                writer.write_arrow(_unsliced(group), bucket)
        messages = writer.prepare_commit()
    finally:
        # Deletes what the writer still owns; after prepare_commit that is nothing.
        writer.close()
    if running is not None and running.is_over():
        builder.new_commit().abort(messages)
        raise ended_error()
    return Written(messages=tuple(message.serialize() for message in messages), rows=rows)


def _buckets(batch: pa.RecordBatch, task: WriteTask) -> pa.Array:
    """The bucket of every row; an unbucketed table's files lie in bucket 0."""
    if task.bucket_rule is None:
        return pa.array(np.zeros(batch.num_rows, dtype=np.int32))
    return task.bucket_rule.of(batch)


def _groups(
    batch: pa.RecordBatch, task: WriteTask, row_buckets: pa.Array
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each (partition, bucket) in their order."""
    keys = [row_buckets, *(batch.column(key) for key in task.partition_keys)]
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    for column in keys:
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        codes = codes * (len(encoded.dictionary) + 1) + np.asarray(encoded.indices)
        codes = np.unique(codes, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    edges = np.flatnonzero(np.diff(codes[order])) + 1
    buckets = np.asarray(keys[0])
    for rows in np.split(order, edges):
        contiguous = rows[-1] - rows[0] + 1 == len(rows)
        group = batch.slice(rows[0], len(rows)) if contiguous else batch.take(pa.array(rows))
        yield int(buckets[rows[0]]), group


def _unsliced(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, copied where nested columns begin in the middle of their buffers: the native
    writer mistakes the offsets of structs inside structs."""
    if any(pa.types.is_nested(column.type) and column.offset for column in batch.columns):
        return batch.take(pa.array(np.arange(batch.num_rows)))
    return batch


def _conform_column(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    if pa.types.is_timestamp(field.type) and pa.types.is_timestamp(column.type):
        return _conform_timestamp(column, field.type)
    if pa.types.is_time32(field.type) and pa.types.is_integer(column.type):
        millis = pc.cast(column, pa.int32()).view(pa.time32("ms"))
        return millis if field.type.unit == "ms" else pc.cast(millis, field.type, safe=False)
    if pa.types.is_nested(field.type):
        return _conform_nested(column, field.type)
    return pc.cast(column, field.type)


def _conform_timestamp(column: pa.Array, target: pa.TimestampType) -> pa.Array:
    if column.type.unit != target.unit:
        per_unit = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
        have, want = per_unit[column.type.unit], per_unit[target.unit]
        numbers = column.view(pa.int64())
        if want < have:
            divisor = have // want
            remainder = pc.subtract(
                numbers, pc.multiply(pc.divide(numbers, divisor), divisor)
            )  # Arrow divides towards zero
            numbers = pc.divide(numbers, divisor)
            numbers = pc.if_else(pc.less(remainder, 0), pc.subtract(numbers, 1), numbers)
        else:
            numbers = pc.multiply_checked(numbers, want // have)
        return numbers.view(target)
    # Both are microseconds since the epoch; only the zone they are shown in differs.
    return column.view(pa.int64()).view(target)


def _conform_nested(column: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_struct(target):
        children = [
            _conform_column(column.field(index), target.field(index))
            for index in range(target.num_fields)
        ]
        return pa.StructArray.from_arrays(
            children, fields=list(target), mask=column.is_null() if column.null_count else None
        )
    if pa.types.is_list(target):
        column = _compact(column)
        return pa.ListArray.from_arrays(
            _offsets(column), _conform_column(column.values, target.value_field), type=target
        )
    if pa.types.is_map(target):
        column = _compact(column)
        return pa.MapArray.from_arrays(
            _offsets(column),
            _conform_column(column.keys, target.key_field),
            _conform_column(column.items, target.item_field),
            type=target,
        )
    return pc.cast(column, target)


def _compact(column: pa.Array) -> pa.Array:
    """The same lists with offsets that begin at 0 and children that hold nothing else."""
    if column.offset == 0:
        return column
    return pa.concat_arrays([column.take(pa.array(np.arange(len(column))))])


def _offsets(column: pa.Array) -> pa.Array:
    """List offsets in which a NULL offset marks a NULL list, as `from_arrays` wants them."""
    if not column.null_count:
        return column.offsets
    nulls = np.append(np.asarray(column.is_null()), False)
    return pa.array(np.asarray(column.offsets), mask=nulls, type=pa.int32())
