"""Reads columns of data files that were written a moment ago, batch by batch.

Only files of our own writers are read, so that there is neither an older schema nor another time
zone to mind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from paimon_magics.columnar.orc_footers import orc_times

__all__ = ["written_batches"]

_BATCH_ROWS = 65_536
_BUFFER_BYTES = 1024 * 1024
_NANOSECONDS_MS = 2**63 // 1_000_000  # the milliseconds that fit into 64 bits of nanoseconds


def written_batches(source: Any, file_name: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The columns of `schema` in a file, all or those that can be read. Times before 1677 or after
    2262 can't be read from ORC files.

    The batches' types are those of the file. Raises ValueError for a format that is not known.
    """
    extension = file_name.rpartition(".")[2]
    if extension == "parquet":
        yield from _parquet(source, schema.names)
    elif extension == "orc":
        yield from _orc(source, schema)
    elif extension == "avro":
        yield from _avro(source, schema)
    else:
        raise ValueError(f"{file_name} has a format whose files get no indexes")


def _parquet(source: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(source, buffer_size=_BUFFER_BYTES) as file:
        # A task has one core: threads of Arrow would compete with the other tasks.
        yield from file.iter_batches(_BATCH_ROWS, columns=list(names), use_threads=False)


def _orc(source: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    from pyarrow import orc

    def read(offset: int, length: int) -> bytes:
        source.seek(offset)
        return bytes(source.read(length))

    names = list(schema.names)
    if any(pa.types.is_timestamp(field.type) for field in schema):
        source.seek(0, 2)
        times = orc_times(read, source.tell())
        ends = [end for end in (times.least_ms, times.greatest_ms) if end is not None]
        if not all(-_NANOSECONDS_MS < end < _NANOSECONDS_MS for end in ends):
            names = [field.name for field in schema if not pa.types.is_timestamp(field.type)]
    source.seek(0)
    file = orc.ORCFile(source)
    for stripe in range(file.nstripes):
        yield file.read_stripe(stripe, columns=names)


def _avro(source: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    import fastavro

    pending: list[Any] = []
    records: Iterator[Any] = fastavro.reader(source)
    for record in records:
        pending.append([_arrow_value(record[name]) for name in schema.names])
        if len(pending) >= _BATCH_ROWS:
            yield _batch(pending, schema)
            pending = []
    if pending:
        yield _batch(pending, schema)


def _batch(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(one, field.type) for one, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _arrow_value(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value
