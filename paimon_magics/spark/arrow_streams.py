"""The rows of a frame as Arrow batches, one after the other, in the frame's order.

Spark computes the last stage of the frame one partition after the other: the one that is read, and
the next one meanwhile. So no more than two partitions are in the memory of Spark's driver, and a
few batches in that of this process. Public methods of DataFrame do it, so a session in this process
and Spark Connect work alike: tasks make each batch one binary value, and `toLocalIterator` fetches
those. (`DataFrame.toArrow` collects all of them.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from paimon_magics.spark.arrow_stages import map_in_arrow
from paimon_magics.spark.progress import WorkKnown
from paimon_magics.spark.python_workers import keep_modules
from paimon_magics.spark.queries import cancel_jobs, cancellable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["arrow_stream"]

# Of one binary value: far below the 128 MB of a message of Spark Connect.
_MESSAGE_BYTES_MAX = 16 << 20
_CAUSES_MAX = 10


def arrow_stream(frame: DataFrame, work: WorkKnown | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the frame in the types that Python tasks of Spark get.

    Nothing runs before the first batch is asked for. Closing the iterator, or an interrupt while it
    waits, cancels the Spark jobs. Raises what Spark raises.
    """
    import pyarrow as pa

    spark, tag, is_over = frame.sparkSession, "", False
    if not frame.columns:
        return
    try:
        with cancellable(spark, work) as tag, _errors_of_jobs():
            messages = map_in_arrow(frame, _as_messages, "message BINARY").toLocalIterator(
                prefetchPartitions=True
            )
            message = next(messages, None)
        while message is not None:
            with pa.ipc.open_stream(pa.py_buffer(message[0])) as reader:
                yield from reader
            with cancellable(spark, begun=tag), _errors_of_jobs():
                message = next(messages, None)
        is_over = True
    finally:
        if tag and not is_over:
            cancel_jobs(spark, tag)


@contextmanager
def _errors_of_jobs() -> Iterator[None]:
    """In the body, what a job raised is raised, as `toArrow` does: the JVM tells of it inside of
    errors of those that waited for the job. On Spark Connect that is so anyway."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors.exceptions.captured import UnknownException, convert_exception

    try:
        yield
    except Py4JJavaError as error:
        cause, found = error.java_exception, None
        for _ in range(_CAUSES_MAX):
            if cause is None:
                break
            found = convert_exception(cause)
            if not isinstance(found, UnknownException):
                break
            cause = cause.getCause()
        if found is None:
            raise
        raise found from None


def _as_messages(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run in a task: each batch as one binary value or, if it is large, several."""
    import pyarrow as pa

    for batch in batches:
        parts = -(-batch.nbytes // _MESSAGE_BYTES_MAX)
        rows_each = max(1, -(-batch.num_rows // max(1, parts)))
        for start in range(0, batch.num_rows, rows_each):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch.slice(start, rows_each))
            content = sink.getvalue()
            ends = pa.array([0, content.size], pa.int32()).buffers()[1]
            message = pa.Array.from_buffers(pa.binary(), 1, [None, ends, content])  # no copy
            yield pa.record_batch({"message": message})
    keep_modules()
