"""Writes Arrow batches to a table's files, in the kernel or in a Spark task.

`write_batches` runs one writer from beginning to end. It creates files with the transaction's
prefix and returns their commit messages. If it raises, it has deleted the files that no message
names yet; the transaction's cleanup removes the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.python_values import beyond_years
from paimon_magics.errors import InvalidValueError
from paimon_magics.faults import reach
from paimon_magics.tables.schema.arrow_casting import conform
from paimon_magics.tables.writing.attempts import Attempt, attempt, ended_error
from paimon_magics.tables.writing.bucket_counts import (
    Partition,
    row_groups,
    values_at,
)
from paimon_magics.tables.writing.dynamic_buckets import (
    Assign,
    IndexWriter,
    IndexWritten,
)
from paimon_magics.tables.writing.float_bounds import OddFloats
from paimon_magics.tables.writing.format_writers import repeats_values
from paimon_magics.tables.writing.native_writer import NativeTable, NativeWriter
from paimon_magics.tables.writing.own_writers import (
    AppendWriter,
    FlushTable,
    FlushWriter,
    PostponedWriter,
)
from paimon_magics.tables.writing.python_writer import PythonWriter
from paimon_magics.tables.writing.row_counters import LossyRows, RowOrigins, UnseenRows
from paimon_magics.tables.writing.write_spec import WriteSpec, Written

if TYPE_CHECKING:
    from paimon_magics.tables.manifests.live_files import ManifestCache

GROUP_SHIFT = 53
"""The number of bits below a group's number in an order column; they order the group's rows."""

GROUP_BITS = 10
"""The number of bits of a group's number: the rest of a positive LONG."""

_EngineWriter = NativeWriter | PythonWriter | PostponedWriter | FlushWriter | AppendWriter

_BATCH_ROWS = 131_072
_BATCH_BYTES = 16 * 2**20
_OPEN_PARTITIONS_MAX = 64  # an open partition takes half a megabyte and more
_OPEN_BYTES_MAX = 128 * 2**20  # limit for all open partitions before they are finished


class TooManyPartitionsError(Exception):
    """A writer met more partitions than its task allows: the rows must be gathered first."""


def with_owners(
    batches: Iterable[pa.RecordBatch], task: WriteSpec, name: str
) -> Iterator[pa.RecordBatch]:
    """Add the column `name` (int32) to each batch: the row's bucket, or the hash of its key if
    buckets are dynamic."""
    rule, dynamic = task.bucket_rule, task.dynamic_buckets
    keys = dynamic.keys if dynamic is not None else rule.keys if rule is not None else ()
    # Only these columns must have Paimon's exact types.
    wanted = list(dict.fromkeys([*keys, *task.partition_keys]))
    schema = task.arrow_schema().empty_table().select(wanted).schema
    for batch in gathered(batches):
        conformed = conform(batch, schema)
        if dynamic is not None:
            numbers = dynamic.hashes(conformed)
        else:
            assert rule is not None
            numbers = rule.owners(conformed, task.partition_keys)
        yield batch.append_column(name, pa.array(numbers))


def with_assigned_buckets(
    batches: Iterable[pa.RecordBatch], task: WriteSpec, hash_column: str, name: str
) -> Iterator[pa.RecordBatch]:
    """Set the column `name` of each batch to the row's bucket, by the hash index.

    All rows of one assigner and one partition must come to the same call.
    """
    dynamic = task.dynamic_buckets
    assert dynamic is not None
    assign = dynamic.assigner()
    schema = task.arrow_schema().empty_table().select(list(task.partition_keys)).schema
    for batch in gathered(batches):
        keys = conform(batch, schema) if task.partition_keys else batch
        hashes = np.asarray(batch.column(hash_column))
        buckets = _assigned(keys, task.partition_keys, hashes, assign)
        position = batch.schema.get_field_index(name)
        yield batch.set_column(position, name, pa.array(buckets))


def write_batches(
    task: WriteSpec,
    batches: Iterable[pa.RecordBatch],
    *,
    bucket_column: str | None = None,
    hash_column: str | None = None,
    order_column: str | None = None,
    manifests: ManifestCache | None = None,
) -> Written:
    """Write all batches and return the messages. Rows of one (partition, bucket) keep their order.

    `bucket_column` and `hash_column` (of dynamic buckets) have the bucket and the key's hash of
    each row if they were computed before. The rows are sorted by `order_column` (int64): above its
    lowest `GROUP_SHIFT` bits it numbers groups of partitions, which arrive one after the other, so
    that memory does not grow with the number of partitions. `manifests` is a cache of the table's
    manifests, where this process has one.

    Raises ValueError for rows that the table can't take, OSError for the store's failures, JobError
    when the transaction has ended, TooManyPartitionsError.
    """
    with attempt(task.attempts_folder, task.table.io_options) as running:
        try:
            groups = _Groups(task, running, bucket_column, hash_column)
            writer = _Writer(task, running, manifests)
            return _write_batches(batches, groups, order_column, writer)
        except BaseException as error:
            # A native writer's panic is no Exception, and would become no error of ours.
            if type(error).__name__ == "PanicException":
                raise RuntimeError(f"The native writer failed: {error}") from error
            raise


def _write_batches(
    batches: Iterable[pa.RecordBatch], groups: _Groups, order_column: str | None, writer: _Writer
) -> Written:
    task, running = groups.task, groups.running
    schema = task.arrow_schema()
    index_files: tuple[IndexWritten, ...] = ()
    rows = 0
    unseen, lossy, origins = UnseenRows(), LossyRows(), RowOrigins()
    changes = [change for change in (task.conversion, task.file_indexes) if change is not None]
    try:
        for batch in map(unseen.written, gathered(batches)):
            conformed = conform(origins.noted(lossy.noted(batch)), schema)
            if not conformed.num_rows:
                continue
            writer.begin(conformed)
            rows += conformed.num_rows
            if rows > (task.single_writer_rows_max or rows):
                raise InvalidValueError(
                    f"There are more than {task.single_writer_rows_max:,} rows for a table whose "
                    "keys can move between partitions.",
                    hint="Nothing was written. Write fewer rows at a time, or raise the setting "
                    "cross_partition_rows_max.",
                )
            order = None if order_column is None else np.asarray(batch.column(order_column))
            for first, partition, bucket, group in groups.of(batch, conformed):
                if task.partitions_max is not None and partition is not None:
                    writer.allow(partition, task.partitions_max)
                if order is not None and partition is not None:
                    writer.reach(int(order[first]) >> GROUP_SHIFT, partition)
                writer.write(bucket, group)
        index_files = groups.write_index()
        messages = writer.finish()
        writer.odd_floats.mend(messages)
        for change in changes:
            messages = change.put(messages)
        reach("attempt.written")
    finally:
        writer.close()
    if running.is_over():
        writer.abort()
        groups.abort(index_files)
        for change in changes:
            change.remove(messages)
        raise ended_error()
    odd_floats = frozenset(writer.odd_floats.found)
    return Written(
        messages, rows, index_files, odd_floats, unseen.counts, lossy.counts, origins.counts
    )


class _Writer:
    """A writer of either engine, which is replaced from time to time to bound its memory.

    Each open partition takes memory until the engine's writer is finished. If partitions arrive
    group by group, it is finished and restarted between two groups, after `_OPEN_PARTITIONS_MAX`
    partitions or `_OPEN_BYTES_MAX` bytes; no earlier partition comes back. A FlushWriter finishes
    its files and goes on, so that it reads the sequence numbers of all buckets once.
    """

    def __init__(self, task: WriteSpec, running: Attempt, manifests: ManifestCache | None) -> None:
        self._task = task
        self._table = task.table
        self._manifests = manifests
        if running.name_part:
            self._table = self._table.with_file_prefix(running.name_part)
        self._writers: list[_EngineWriter] = []
        self._group: int | None = None
        self._open: set[Partition] = set()
        self._open_bytes = 0
        self.odd_floats = OddFloats(task.float_columns)
        self._messages: list[bytes] = []

    def begin(self, rows: pa.RecordBatch) -> None:
        """Open the writer by the first rows; called before each batch, does nothing for others."""
        if self._writers:
            return
        if isinstance(self._table, NativeTable) and not repeats_values(rows):
            self._table = self._table.without_dictionaries()
        self._writers.append(self._begun())

    def reach(self, group: int, partition: Partition) -> None:
        """Rows of this partition come next. No more rows of earlier groups follow."""
        if group != self._group:
            if len(self._open) >= _OPEN_PARTITIONS_MAX or self._open_bytes >= _OPEN_BYTES_MAX:
                self._messages += self._writers[-1].messages()
                if not isinstance(self._writers[-1], FlushWriter):
                    self._writers[-1].close()
                    self._writers.append(self._begun())
                self._open.clear()
                self._open_bytes = 0
            self._group = group
        self._open.add(partition)

    def allow(self, partition: Partition, partitions_max: int) -> None:
        """Count the partition; raise TooManyPartitionsError for more than `partitions_max`."""
        self._open.add(partition)
        if len(self._open) > partitions_max:
            raise TooManyPartitionsError

    def write(self, bucket: int | None, rows: pa.RecordBatch) -> None:
        """Write rows of one partition and bucket, or of any if `bucket` is None."""
        self._open_bytes += rows.nbytes
        self.odd_floats.note(rows)
        self._writers[-1].write(_unsliced(rows), bucket)

    def finish(self) -> tuple[bytes, ...]:
        """The messages of everything that was written."""
        return (*self._messages, *(self._writers[-1].messages() if self._writers else ()))

    def abort(self) -> None:
        """Delete all files that were written; call it after `finish`."""
        for writer in self._writers:
            writer.abort()

    def close(self) -> None:
        """Close the last writer, and delete its files that are in no message."""
        if self._writers:
            self._writers[-1].close()

    def _begun(self) -> _EngineWriter:
        user, overwrite = self._task.commit_user, self._task.overwrite
        if isinstance(self._table, FlushTable):
            return self._table.writer(user, overwrite=overwrite, manifests=self._manifests)
        return self._table.writer(user, overwrite=overwrite)


class _Groups:
    """Splits batches by (partition, bucket), and keeps the index of dynamic buckets.

    Notes each folder for the attempt before files are written in it.
    """

    def __init__(
        self,
        task: WriteSpec,
        running: Attempt,
        bucket_column: str | None,
        hash_column: str | None,
    ) -> None:
        self.task = task
        self.running = running
        self._bucket_column = bucket_column
        self._hash_column = hash_column
        dynamic = task.dynamic_buckets
        self._index = IndexWriter(dynamic, running) if dynamic is not None else None
        self._assign = dynamic.assigner() if dynamic is not None else None

    def of(
        self, batch: pa.RecordBatch, conformed: pa.RecordBatch
    ) -> Iterator[tuple[int, Partition | None, int | None, pa.RecordBatch]]:
        """For each bucket of each partition: the position of its first row, partition, bucket, and
        its rows in their order.

        Partition and bucket are None if the engine's writer finds them.
        """
        task, dynamic = self.task, self.task.dynamic_buckets
        keys = conformed.select(list(task.partition_keys))
        _check_years(keys)
        hashes, buckets = None, None
        if dynamic is not None:
            if self._hash_column is not None:
                hashes = np.asarray(batch.column(self._hash_column))
            else:
                hashes = dynamic.hashes(conformed)
        if self._bucket_column is not None:
            buckets = np.asarray(batch.column(self._bucket_column))
        elif hashes is not None:
            assert self._assign is not None
            buckets = _assigned(conformed, task.partition_keys, hashes, self._assign)
        elif task.bucket_rule is not None:
            buckets = task.bucket_rule.owners(conformed, task.partition_keys)
        owners = keys.columns if buckets is None else [pa.array(buckets), *keys.columns]
        if task.single_writer_rows_max is not None or not owners:
            self._note(keys, buckets)
            yield 0, None, None, conformed
            return
        groups = sorted(row_groups(owners), key=lambda rows: int(rows[0]))
        firsts = np.array([rows[0] for rows in groups], dtype=np.int64)
        self._note(keys.take(pa.array(firsts)), None if buckets is None else buckets[firsts])
        for rows in groups:
            contiguous = rows[-1] - rows[0] + 1 == len(rows)
            group = (
                conformed.slice(rows[0], len(rows))
                if contiguous
                else conformed.take(pa.array(rows))
            )
            partition = values_at(keys.columns, rows[0])
            bucket = None if buckets is None else int(buckets[rows[0]])
            if self._index is not None and hashes is not None and bucket is not None:
                self._index.add(partition, bucket, hashes[rows], keys.slice(rows[0], 1))
            yield int(rows[0]), partition, bucket, group

    def _note(self, keys: pa.RecordBatch, buckets: npt.NDArray[np.int32] | None) -> None:
        """Note where files will be created. The rows name each folder at least once."""
        if not self.running.id:
            return
        if buckets is None:
            buckets = np.full(len(keys), self.task.common_bucket, dtype=np.int32)
        self.running.note(keys, pa.array(buckets))
        reach("attempt.noted")

    def write_index(self) -> tuple[IndexWritten, ...]:
        """Write the index files of the buckets that got new keys."""
        return () if self._index is None else self._index.write()

    def abort(self, written: Sequence[IndexWritten]) -> None:
        """Delete the index files."""
        if self._index is not None:
            self._index.abort(written)


def _check_years(partitions: pa.RecordBatch) -> None:
    """Raise InvalidValueError for a partition of a year that not all readers of partitions have."""
    for name, values in zip(partitions.schema.names, partitions.columns, strict=True):
        text = beyond_years(values)
        if text is not None:
            raise InvalidValueError(
                f"The partition column `{name}` can't be {text}: dates and times of partitions "
                "are of the years 1 to 9999.",
                hint="Correct the value, or write the rows into a table that is not partitioned by "
                "this column.",
            )


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in larger batches: each batch costs some milliseconds regardless of its
    size."""
    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= _BATCH_ROWS or size_bytes >= _BATCH_BYTES:
            yield _one_batch(waiting)
            waiting, rows, size_bytes = [], 0, 0
    if waiting:
        yield _one_batch(waiting)


def _one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The same rows as one batch, which is not copied where it is one already."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


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
    for rows in row_groups(partitions):
        buckets[rows] = assign(values_at(partitions, rows[0]), hashes[rows])
    return buckets


def _unsliced(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, copied if nested columns begin in the middle of their buffers: the native
    writer gets the offsets of structs in structs wrong."""
    if any(pa.types.is_nested(column.type) and column.offset for column in batch.columns):
        return batch.take(pa.array(np.arange(batch.num_rows)))
    return batch
