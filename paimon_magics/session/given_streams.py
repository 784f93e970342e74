"""Streams of Arrow data from other libraries: opened, read, and kept for frames of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from paimon_magics.errors import InvalidValueError
from paimon_magics.session.planned_work import reads_of
from paimon_magics.spark.spooled_rows import SpooledRows

if TYPE_CHECKING:
    import pyarrow as pa

    from paimon_magics.spark.handles import DataFrame

__all__ = ["batches_of", "opened_stream", "spooled_rows"]


def opened_stream(producer: Any, kind: str) -> pa.RecordBatchReader:
    """Return a reader of what has `__arrow_c_stream__`; `kind` names its library in errors.

    Raises InvalidValueError if the producer fails, or has values without columns.
    """
    import pyarrow as pa

    try:
        return pa.RecordBatchReader.from_stream(producer)
    except Exception as error:
        raise _unreadable(kind, error) from error


def batches_of(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a reader. Raises InvalidValueError if its producer fails."""
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except Exception as error:
            raise _unreadable("Arrow", error) from error
        yield batch


def spooled_rows(frame: DataFrame) -> list[object]:
    """What keeps the temporary files that the frame of a stream reads, if there are any."""
    return [one for one in reads_of(frame).leases if isinstance(one, SpooledRows)]


def _unreadable(kind: str, error: Exception) -> InvalidValueError:
    return InvalidValueError(
        f"The rows of the {kind} stream can't be read: {error}.",
        hint="Its own library says why. Nothing was written.",
    )
