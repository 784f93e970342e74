"""Puts file indexes beside data files, as the options `file-index.*` of a table ask.

A writer of our own gives the rows while it writes them (`FileIndexWriter`). The native writer and
pypaimon's know no indexes and alone know where a file ends; their files get indexes as soon as they
are finished (`FileIndexRules.put`), from the indexed columns, which are read back. Up to
`file-index.in-manifest-threshold` an index lies in the manifest, else in a file of its own beside
the data file (`DataFileIndexWriter`).
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from paimon_magics.columnar.file_footers import orc_times
from paimon_magics.columnar.file_indexes.collection import IndexCollection
from paimon_magics.planning.writes.index_rules import FileIndexes, file_indexes_of
from paimon_magics.tables.schema.arrow_casting import conform
from paimon_magics.tables.schema.types import arrow_schema

if TYPE_CHECKING:
    from paimon_magics.tables.table import Table


INDEX_SUFFIX = ".index"
"""How the name of a file of indexes ends."""


_BATCH_ROWS = 65_536
_BUFFER_BYTES = 1024 * 1024
_NANOSECONDS_MS = 2**63 // 1_000_000  # the milliseconds that fit into 64 bits of nanoseconds


@dataclass(frozen=True, slots=True)
class StoredIndex:
    """Where a file's index lies: in the manifest as `embedded`, in the file `file_name` beside the
    data file, or nowhere."""

    embedded: bytes | None = None
    file_name: str | None = None


class FileIndexWriter:
    """The index of one data file. `columns` are those of the file; what isn't there is left out."""

    def __init__(self, rules: FileIndexes, columns: Sequence[str]) -> None:
        indexes = [index for index in rules.indexes if index.column in columns]
        self._collection = IndexCollection(indexes) if indexes else None
        self._in_manifest_max_bytes = rules.in_manifest_max_bytes

    def add(self, rows: pa.RecordBatch) -> None:
        """Take further rows, in the table's exact types and the order of the file. Raises
        ValueError, with the column's name, for a value that an index can't hold."""
        if self._collection is not None:
            self._collection.add(rows)

    def finish(self, file_name: str, write: Callable[[str, bytes], None]) -> StoredIndex:
        """Finish the index of the data file `file_name`. `write` gets the name and the content of
        a file beside it, if there must be one."""
        body = None if self._collection is None else self._collection.finish()
        if body is None:
            return StoredIndex()
        if len(body) <= self._in_manifest_max_bytes:
            return StoredIndex(embedded=body)
        name = file_name + INDEX_SUFFIX
        write(name, body)
        return StoredIndex(file_name=name)


@dataclass(frozen=True, slots=True)
class FileIndexRules:
    """What tasks need to index the files of other writers. `table` is a pickle of pypaimon's table,
    `schema` the table's Arrow schema, serialised."""

    indexes: FileIndexes
    table: bytes
    schema: bytes

    def __repr__(self) -> str:
        return f"FileIndexRules({self.indexes})"  # the pickle may hold credentials

    def put(self, messages: Iterable[bytes]) -> tuple[bytes, ...]:
        """Index the new files of the messages, and return the messages that tell of it.

        Nobody else uses the files yet. If it fails, the index files that it wrote are deleted.
        Raises ValueError, with the column's name, for a value that an index can't hold, and OSError
        for the store's failures.
        """
        # pypaimon, which takes a second to import, knows the paths of files.
        from paimon_magics.tables.writing.commit_messages import read_messages, write_message

        paimon = pickle.loads(self.table)  # made by `file_index_rules`, for this job
        found = list(read_messages(paimon, messages))
        written: list[str] = []
        try:
            for message in found:
                for file in message.new_files:
                    self._put(paimon, message, file, written)
        except BaseException:
            for path in written:
                paimon.file_io.delete_quietly(path)
            raise
        return tuple(write_message(paimon, message) for message in found)

    def remove(self, messages: Iterable[bytes]) -> None:
        """Delete the index files that the messages name; they must not be committed."""
        from paimon_magics.tables.writing.commit_messages import read_messages

        paimon = pickle.loads(self.table)
        for message in read_messages(paimon, messages):
            for file in message.new_files:
                for name in file.extra_files or ():
                    paimon.file_io.delete_quietly(_path(paimon, message, name))

    def _put(self, paimon: Any, message: Any, file: Any, written: list[str]) -> None:
        wanted = {index.column for index in self.indexes.indexes}
        schema = pa.schema(
            [
                field
                for field in pa.ipc.read_schema(pa.py_buffer(self.schema))
                if field.name in wanted
            ]
        )
        index = None
        path = _path(paimon, message, file.file_name)
        with contextlib.closing(paimon.file_io.new_input_stream(path)) as source:
            for batch in written_batches(source, file.file_name, schema):
                read = pa.schema([field for field in schema if field.name in batch.schema.names])
                if index is None:
                    index = FileIndexWriter(self.indexes, read.names)
                index.add(conform(batch, read))
        if index is None:
            return

        def write(name: str, body: bytes) -> None:
            target = _path(paimon, message, name)
            written.append(target)
            with paimon.file_io.new_output_stream(target) as stream:
                stream.write(body)

        stored = index.finish(file.file_name, write)
        if stored.embedded is not None:
            file.embedded_index = stored.embedded
        if stored.file_name is not None:
            file.extra_files = [*(file.extra_files or ()), stored.file_name]


def file_index_rules(table: Table) -> FileIndexRules | None:
    """What the writers of a table need; None if it asks for no file index.

    Raises InvalidTableError for options that ask for what can't be.
    """
    indexes = file_indexes_of(table.schema)
    if not indexes.indexes:
        return None
    schema = arrow_schema(table.schema).serialize().to_pybytes()
    return FileIndexRules(indexes, pickle.dumps(table.paimon), schema)


def _path(paimon: Any, message: Any, name: str) -> str:
    from pypaimon.utils.file_store_path_factory import canonical_data_file_path

    return str(canonical_data_file_path(paimon, tuple(message.partition), message.bucket, name))


# Reads columns of data files that were written a moment ago, batch by batch.
#
# Only files of our own writers are read, so that there is neither an older schema nor another time
# zone to mind.


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
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _arrow_value(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value
