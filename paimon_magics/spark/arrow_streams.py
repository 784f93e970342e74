"""The rows of a frame as Arrow batches, one after the other, in the frame's order.

Spark computes the last stage of the frame one partition after the other: the partition being read
and, meanwhile, the next partition. It uses public methods of DataFrame, so a session in this
process and Spark Connect work the same way: tasks make each batch one binary value, and
`toLocalIterator` fetches those. (`DataFrame.toArrow` collects all of them.)

Spark's driver holds these values of two partitions in memory, whatever their size. So if tasks run
on this machine, the batches of a partition after the first batches go through temporary files,
which are removed as they are read. Otherwise two partitions must fit into the driver's memory. This
process holds a few batches.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from paimon_magics.spark.arrow_stages import map_in_arrow
from paimon_magics.spark.job_watching import WorkKnown
from paimon_magics.spark.jvm import is_connect
from paimon_magics.spark.python_workers import keep_modules
from paimon_magics.spark.queries import cancel_jobs, cancellable
from paimon_magics.spark.sessions import runs_here
from paimon_magics.spark.spooled_rows import SpooledRows, write_file

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row

# Of one binary value: far below the 128 MB of a message of Spark Connect.
_MESSAGE_BYTES_MAX = 16 << 20
# Of the batches of a partition that go through Spark's driver.
_IN_MEMORY_BYTES_MAX = 16 << 20
_CAUSES_MAX = 10


def arrow_stream(frame: DataFrame, work: WorkKnown | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the frame in the types that Python tasks of Spark get.

    Nothing runs before the first batch is asked for. Closing the iterator, or an interrupt while it
    waits, cancels the Spark jobs. Raises what Spark raises.
    """
    spark, tag, is_over = frame.sparkSession, "", False
    if not frame.columns:
        return
    # The server of Spark Connect may be on another machine.
    spooled = SpooledRows() if runs_here(spark) and not is_connect(spark) else None
    stage = _AsMessages(None if spooled is None else str(spooled.folder))
    try:
        with cancellable(spark, work) as tag, _errors_of_jobs():
            messages = map_in_arrow(frame, stage, "message BINARY, file STRING").toLocalIterator(
                prefetchPartitions=True
            )
            message = next(messages, None)
        while message is not None:
            yield from _batches_in(message)
            with cancellable(spark, begun=tag), _errors_of_jobs():
                message = next(messages, None)
        is_over = True
    finally:
        if tag and not is_over:
            cancel_jobs(spark, tag)


@contextmanager
def _errors_of_jobs() -> Iterator[None]:
    """In the body, the error of a job is raised, as `toArrow` does: the JVM reports it inside the
    errors of threads that waited for the job. Spark Connect always raises it."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors.exceptions.captured import UnknownException, convert_exception

    try:
        yield
    except Py4JJavaError as error:
        cause, converted = error.java_exception, None
        for _ in range(_CAUSES_MAX):
            if cause is None:
                break
            converted = convert_exception(cause)
            if not isinstance(converted, UnknownException):
                break
            cause = cause.getCause()
        if converted is None:
            raise
        raise converted from None


def _batches_in(message: Row) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    content, path = message
    if path is None:
        with pa.ipc.open_stream(pa.py_buffer(content)) as rows:
            yield from rows
        return
    with pa.OSFile(path) as source, pa.ipc.open_stream(source) as rows:
        os.unlink(path)
        yield from rows


@dataclass(frozen=True)
class _AsMessages:
    """Runs in a task: makes each batch one binary value or, if it is large, several. With a
    `folder`, batches after the first batches go into files there, and the file names are
    returned."""

    folder: str | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        rest = iter(batches)
        sent_bytes = 0
        for batch in rest:
            yield from map(_as_message, _slices(batch))
            sent_bytes += batch.nbytes
            if self.folder is not None and sent_bytes >= _IN_MEMORY_BYTES_MAX:
                break
        slices = chain.from_iterable(map(_slices, rest))
        for first in slices:
            path = os.path.join(str(self.folder), f"{uuid.uuid4().hex}.arrow")
            write_file(path, first, slices)
            message = pa.nulls(1, pa.binary())
            yield pa.record_batch({"message": message, "file": pa.array([path])})
        keep_modules()


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of a batch in pieces that are not larger than a message may be."""
    parts = -(-batch.nbytes // _MESSAGE_BYTES_MAX)
    rows_each = max(1, -(-batch.num_rows // max(1, parts)))
    for start in range(0, batch.num_rows, rows_each):
        yield batch.slice(start, rows_each)


def _as_message(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content = sink.getvalue()
    ends = pa.array([0, content.size], pa.int32()).buffers()[1]
    message = pa.Array.from_buffers(pa.binary(), 1, [None, ends, content])  # no copy
    return pa.record_batch({"message": message, "file": pa.nulls(1, pa.string())})
