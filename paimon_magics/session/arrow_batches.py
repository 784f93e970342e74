"""The rows of an Outcome as a stream of Arrow batches, without all of them in memory."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Self

from paimon_magics.boundary import knows_other_words, short_errors
from paimon_magics.session.planned_work import work_of
from paimon_magics.spark.arrow_streams import arrow_stream
from paimon_magics.spark.failures import translate
from paimon_magics.spark.nullable_fields import with_nullable_fields
from paimon_magics.spark.variants import with_json_texts

if TYPE_CHECKING:
    import pyarrow

    from paimon_magics.spark.handles import DataFrame

__all__ = ["ArrowBatches"]

_OTHER_WORDS = {
    **dict.fromkeys(("to_arrow", "to_table", "fetch_arrow_table"), "read_all()"),
    **dict.fromkeys(("to_pandas", "read_pandas", "df"), "read_all().to_pandas()"),
}


@short_errors
@knows_other_words(_OTHER_WORDS)
class ArrowBatches:
    """An iterator over Arrow batches, which can be read once, from its first row to its last.

    `schema` is that of all batches. `close()`, or the end of a `with` block, cancels the Spark jobs
    of a stream that is not read to its end, as an interrupt does. It has Arrow's PyCapsule
    interface, by which it is given to other libraries, and becomes a reader of pyarrow:
    `pyarrow.RecordBatchReader.from_stream(batches)`.
    """

    def __init__(self, frame: DataFrame, schema: pyarrow.Schema, statement: str) -> None:
        self.schema = schema
        self._batches = _batches(frame, schema, statement)

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        return self

    def __next__(self) -> pyarrow.RecordBatch:
        return next(self._batches)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what Spark still does for the stream; there are no more batches."""
        self._batches.close()

    def read_next_batch(self) -> pyarrow.RecordBatch:
        """The next batch; raises StopIteration behind the last one."""
        return next(self._batches)

    def read_all(self) -> pyarrow.Table:
        """The rows that have not been read yet, as a table in this process's memory."""
        import pyarrow as pa

        return pa.Table.from_batches(self._batches, self.schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_batches(self.schema, self)
        return reader.__arrow_c_stream__(requested_schema)


def _batches(
    frame: DataFrame, schema: pyarrow.Schema, statement: str
) -> Generator[pyarrow.RecordBatch]:
    """Yield the rows of the frame in the types of `schema`; raises errors of ours. The frame keeps
    the snapshots that are read for as long as this generator exists."""
    try:
        for batch in arrow_stream(with_nullable_fields(with_json_texts(frame)), work_of(frame)):
            yield batch if batch.schema == schema else batch.cast(schema)
    except Exception as error:
        raise translate(error, statement=statement) from error
