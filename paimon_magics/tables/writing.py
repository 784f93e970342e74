"""Writing Arrow batches into a table's files, in the kernel or in a Spark task.

`write_batches` is one writer's whole life: it creates files under the transaction's prefix and
returns the commit messages of them. If it raises, the files that it still owned are gone; files
that were already handed over in messages are the transaction's to remove.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.bucket_hash import default_bucket, mod_bucket
from paimon_magics.tables.attempts import attempt
from paimon_magics.tables.dynamic_buckets import (
    Assign,
    DynamicBuckets,
    IndexWriter,
    IndexWritten,
    Partition,
)
from paimon_magics.tables.native import NativeTable, NativeWriter
from paimon_magics.tables.python_writing import PythonTable, PythonWriter

__all__ = [
    "BucketRule",
    "DynamicBuckets",
    "WriteTask",
    "Written",
    "conform",
    "with_assigned_buckets",
    "with_owners",
    "write_batches",
]

_OPEN_PARTITIONS_MAX = 64  # an open partition takes half a megabyte and more

_Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BucketRule:
    """How a row's bucket follows from its key columns. `function` is default or mod.

    `by_partition` has the partitions whose number of buckets is not `buckets`.
    """

    keys: tuple[str, ...]
    buckets: int
    function: str = "default"
    by_partition: tuple[tuple[Partition, int], ...] = ()

    def owners(self, batch: pa.RecordBatch, partition_keys: Sequence[str]) -> npt.NDArray[np.int32]:
        """The bucket of every row: rows of one bucket must meet in one task."""
        if not self.by_partition:
            return self._of(batch, self.buckets)
        counts = dict(self.by_partition)
        partitions = [batch.column(key) for key in partition_keys]
        if not partitions:
            return self._of(batch, counts.get((), self.buckets))
        found = np.empty(batch.num_rows, dtype=np.int32)
        for rows in _row_groups(partitions):
            count = counts.get(_values(partitions, rows[0]), self.buckets)
            found[rows] = self._of(batch.take(pa.array(rows)), count)
        return found

    def _of(self, batch: pa.RecordBatch, buckets: int) -> npt.NDArray[np.int32]:
        columns = [batch.column(key) for key in self.keys]
        if self.function == "mod":
            return mod_bucket(columns[0], buckets)
        return default_bucket(columns, buckets)


@dataclass(frozen=True, slots=True)
class WriteTask:
    """What every writer of one statement must know; small and picklable.

    `schema` is the table's exact Arrow schema, serialised. Buckets follow from `bucket_rule`, are
    assigned as `dynamic_buckets` says, or do not matter (neither is there). With
    `single_writer_rows_max` one writer must take all rows, and refuses more than so many (keys that
    can move between partitions: it has to know where each one lives). `overwrite` tells that the
    files replace others, so that sequence numbers start anew. `attempts_folder` holds the
    markers of running writers (module `attempts`).
    """

    table: NativeTable | PythonTable
    commit_user: str
    schema: bytes
    partition_keys: tuple[str, ...]
    bucket_rule: BucketRule | None
    overwrite: bool
    attempts_folder: str | None
    dynamic_buckets: DynamicBuckets | None = None
    single_writer_rows_max: int | None = None

    def arrow_schema(self) -> pa.Schema:
        """The table's Arrow schema."""
        return pa.ipc.read_schema(pa.py_buffer(self.schema))


@dataclass(frozen=True, slots=True)
class Written:
    """What one writer made: commit messages (Java's serializer, version 14) and rows taken.

    `index_files` belong to the messages, see `dynamic_buckets.with_index_files`.
    """

    messages: tuple[bytes, ...]
    rows: int
    index_files: tuple[IndexWritten, ...] = ()


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """`batch` with exactly the columns, order and types of `schema`.

    Values fit by now (Spark cast them); what is left are the differences between Spark's Arrow
    types and Paimon's: the session's zone instead of UTC, units of time, binary widths, names
    inside nested types. Timestamps lose digits downwards, also before 1970, as in Paimon's Java.
    """
    columns = [_conform_column(batch.column(field.name), field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def with_owners(
    batches: Iterable[pa.RecordBatch], task: WriteTask, names: tuple[str, str], source: int
) -> Iterator[pa.RecordBatch]:
    """Each batch with two more columns: the row's owner (int32) and its ordinal (int64).

    Rows with equal owners in one partition must meet in one task: the owner is the bucket, or the
    assigner of dynamic buckets. The ordinal orders rows by (`source`, position): the statement's
    order, which a shuffle loses.
    """
    owner_name, ordinal_name = names
    rule = task.bucket_rule or task.dynamic_buckets
    # Only these columns must have Paimon's exact types.
    wanted = list(dict.fromkeys([*rule.keys, *task.partition_keys])) if rule is not None else []
    schema = task.arrow_schema().empty_table().select(wanted).schema
    position = source << 33
    for batch in batches:
        if rule is None:
            owners = pa.array(np.zeros(batch.num_rows, dtype=np.int32))
        else:
            owners = pa.array(rule.owners(conform(batch, schema), task.partition_keys))
        ordinals = pa.array(np.arange(position, position + batch.num_rows, dtype=np.int64))
        position += batch.num_rows
        yield batch.append_column(owner_name, owners).append_column(ordinal_name, ordinals)


def with_assigned_buckets(
    batches: Iterable[pa.RecordBatch], task: WriteTask, name: str
) -> Iterator[pa.RecordBatch]:
    """Each batch with its column `name` made the bucket of the row, by the hash index.

    All rows of one assigner in one partition must come here.
    """
    dynamic = task.dynamic_buckets
    assert dynamic is not None
    assign = dynamic.assigner()
    wanted = list(dict.fromkeys([*dynamic.keys, *task.partition_keys]))
    schema = task.arrow_schema().empty_table().select(wanted).schema
    for batch in batches:
        keys = conform(batch, schema)
        buckets = _assigned(keys, task.partition_keys, dynamic.hashes(keys), assign)
        position = batch.schema.get_field_index(name)
        yield batch.set_column(position, name, pa.array(buckets))


def write_batches(
    task: WriteTask,
    batches: Iterable[pa.RecordBatch],
    *,
    bucket_column: str | None = None,
    in_partition_order: bool = False,
) -> Written:
    """Write all batches and return the messages. Rows of one (partition, bucket) keep their order.

    `bucket_column` has the bucket of each row where it was assigned before. With
    `in_partition_order` rows of a partition arrive one after the other, so that memory does not
    grow with the number of partitions.

    Raises ValueError for rows that the table can't take, OSError for the store's failures, JobError
    when the transaction has ended.
    """
    with attempt(task.attempts_folder):
        try:
            return _write_batches(task, batches, bucket_column, in_partition_order)
        except BaseException as error:
            # The native writer's panics are no Exceptions, and would pass by everything that
            # turns a failure into an error of ours.
            if type(error).__name__ == "PanicException":
                raise RuntimeError(f"The native writer failed: {error}") from error
            raise


def _write_batches(
    task: WriteTask,
    batches: Iterable[pa.RecordBatch],
    bucket_column: str | None,
    in_partition_order: bool,
) -> Written:
    schema = task.arrow_schema()
    groups = _Groups(task, bucket_column)
    writer = _Writer(task, in_partition_order)
    rows = 0
    try:
        for batch in batches:
            conformed = conform(batch, schema)
            rows += conformed.num_rows
            if not conformed.num_rows:
                continue
            if rows > (task.single_writer_rows_max or rows):
                raise ValueError(
                    f"more than {task.single_writer_rows_max:,} rows for a table whose keys can "
                    "move between partitions; raise the setting cross_partition_rows_max"
                )
            for partition, bucket, group in groups.of(batch, conformed):
                writer.write(partition, bucket, group)
        index_files = groups.index.write() if groups.index is not None else ()
        messages = writer.finish()
    finally:
        writer.close()
    return Written(messages=messages, rows=rows, index_files=index_files)


class _Writer:
    """One engine's writer, of which an open partition takes memory until it is finished.

    Where rows arrive in the order of their partitions, it is finished and begun anew after so many
    of them; a partition that is over never comes back.
    """

    def __init__(self, task: WriteTask, in_partition_order: bool) -> None:
        self._task = task
        self._writer = self._begun()
        self._in_partition_order = in_partition_order
        self._last: Partition | None = None
        self._open = 0
        self._messages: list[bytes] = []

    def write(self, partition: Partition | None, bucket: int | None, rows: pa.RecordBatch) -> None:
        """Take rows of one bucket (None: the writer finds it) of one partition (None: of any)."""
        if self._in_partition_order and partition != self._last:
            if self._open >= _OPEN_PARTITIONS_MAX:
                self._take_messages()
                self._writer.close()
                self._writer = self._begun()
                self._open = 0
            self._open += 1
            self._last = partition
        self._writer.write(_unsliced(rows), bucket)

    def finish(self) -> tuple[bytes, ...]:
        """The messages of everything that was written."""
        self._take_messages()
        return tuple(self._messages)

    def close(self) -> None:
        """Delete what no message was taken for."""
        self._writer.close()

    def _take_messages(self) -> None:
        self._messages += self._writer.messages()

    def _begun(self) -> NativeWriter | PythonWriter:
        return self._task.table.writer(self._task.commit_user, overwrite=self._task.overwrite)


class _Groups:
    """Takes batches apart by (partition, bucket); notes in `index` what went where."""

    def __init__(self, task: WriteTask, bucket_column: str | None) -> None:
        self._task = task
        self._bucket_column = bucket_column
        dynamic = task.dynamic_buckets
        self.index = IndexWriter(dynamic) if dynamic is not None else None
        self._assign = dynamic.assigner() if dynamic is not None else None

    def of(
        self, batch: pa.RecordBatch, conformed: pa.RecordBatch
    ) -> Iterator[tuple[Partition | None, int | None, pa.RecordBatch]]:
        """The rows of each bucket of each partition, all in their order: partition, bucket, rows.

        Both are None where the native writer is to find them.
        """
        task, dynamic = self._task, self._task.dynamic_buckets
        partitions = [conformed.column(key) for key in task.partition_keys]
        hashes, buckets = None, None
        if dynamic is not None:
            hashes = dynamic.hashes(conformed)
            if self._bucket_column is not None:
                buckets = np.asarray(batch.column(self._bucket_column))
            else:
                assert self._assign is not None
                buckets = _assigned(conformed, task.partition_keys, hashes, self._assign)
        elif task.bucket_rule is not None:
            buckets = task.bucket_rule.owners(conformed, task.partition_keys)
        owners = partitions if buckets is None else [pa.array(buckets), *partitions]
        if task.single_writer_rows_max is not None or not owners:
            yield None, None, conformed
            return
        for rows in sorted(_row_groups(owners), key=lambda rows: int(rows[0])):
            contiguous = rows[-1] - rows[0] + 1 == len(rows)
            group = (
                conformed.slice(rows[0], len(rows))
                if contiguous
                else conformed.take(pa.array(rows))
            )
            partition = _values(partitions, rows[0])
            bucket = None if buckets is None else int(buckets[rows[0]])
            if self.index is not None and hashes is not None and bucket is not None:
                self.index.add(partition, bucket, hashes[rows])
            yield partition, bucket, group


def _assigned(
    batch: pa.RecordBatch,
    partition_keys: Sequence[str],
    hashes: npt.NDArray[np.int32],
    assign: Assign,
) -> npt.NDArray[np.int32]:
    """The bucket of each row."""
    partitions = [batch.column(key) for key in partition_keys]
    if not partitions:
        return assign((), hashes)
    buckets = np.empty(batch.num_rows, dtype=np.int32)
    for rows in _row_groups(partitions):
        buckets[rows] = assign(_values(partitions, rows[0]), hashes[rows])
    return buckets


def _row_groups(columns: Sequence[pa.Array]) -> list[_Rows]:
    """The positions of the rows with equal values, in their order, for each such value."""
    if not len(columns[0]):
        return []
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        codes = codes * (len(encoded.dictionary) + 1) + np.asarray(encoded.indices)
        codes = np.unique(codes, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    edges = np.flatnonzero(np.diff(codes[order])) + 1
    return np.split(order, edges)


def _values(columns: Sequence[pa.Array], row: int) -> tuple[Any, ...]:
    return tuple(column[int(row)].as_py() for column in columns)


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
