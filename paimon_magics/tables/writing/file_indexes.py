"""Puts file indexes beside data files, according to a table's options `file-index.*`.

A writer of our own passes the rows while it writes them (`FileIndexWriter`). The native writer and
pypaimon's writer support no indexes, and only they know where a file ends. So the indexed columns
of their finished files are read back (`FileIndexRules.put`). An index of up to
`file-index.in-manifest-threshold` is in the manifest, a larger one in a file beside the data file
(`DataFileIndexWriter`).
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from paimon_magics.columnar.file_indexes.collection import IndexCollection
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.writes.index_rules import FileIndexes, file_indexes_of
from paimon_magics.tables.schema.arrow_casting import conform
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.stores.file_formats import FORMATS, Reader, StoredColumns
from paimon_magics.tables.writing.new_files import file_path

if TYPE_CHECKING:
    from paimon_magics.tables.table import Table


INDEX_SUFFIX = ".index"
"""How the name of a file of indexes ends."""


_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class StoredIndex:
    """Where a file's index lies: in the manifest as `embedded`, in the file `file_name` beside the
    data file, or nowhere."""

    embedded: bytes | None = None
    file_name: str | None = None


class FileIndexWriter:
    """The index of one data file. `columns` are those of the file; missing columns are left out."""

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
class FinishedFiles:
    """Changes new files of other writers before they are in use. `table` is a pickle of pypaimon's
    table, `schema` the Arrow schema of its columns, serialized."""

    table: bytes = field(repr=False)  # it may hold credentials
    schema: bytes = field(repr=False)

    def put(self, messages: Iterable[bytes]) -> tuple[bytes, ...]:
        """Change the new files of the messages, and return the messages that name the result.

        If it fails, the files that it wrote are deleted. Raises ValueError for a value that can't
        be stored, and OSError for the store's failures.
        """
        # pypaimon, which takes a second to import, knows the paths of files.
        from paimon_magics.tables.writing.commit_messages import read_messages, write_message

        paimon = pickle.loads(self.table)  # made on the driver, for this job
        changed = list(read_messages(paimon, messages))
        written: list[str] = []
        try:
            for message in changed:
                self._change(paimon, message, written)
        except BaseException:
            for path in written:
                paimon.file_io.delete_quietly(path)
            raise
        return tuple(write_message(paimon, message) for message in changed)

    def remove(self, messages: Iterable[bytes]) -> None:
        """Delete the files of the messages that `put` wrote; they must not be committed."""
        from paimon_magics.tables.writing.commit_messages import read_messages

        paimon = pickle.loads(self.table)
        for message in read_messages(paimon, messages):
            for name in self._own_files(message):
                path = file_path(paimon, tuple(message.partition), message.bucket, name)
                paimon.file_io.delete_quietly(path)

    def _change(self, paimon: Any, message: Any, written: list[str]) -> None:
        """Change the files of one message; note the paths of files in `written` before."""
        raise NotImplementedError

    def _own_files(self, message: Any) -> Iterable[str]:
        """The names of the files of a message that `put` wrote."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class FileIndexRules(FinishedFiles):
    """The data that tasks need to index the files of other writers."""

    indexes: FileIndexes

    def _change(self, paimon: Any, message: Any, written: list[str]) -> None:
        for file in message.new_files:
            self._put(paimon, message, file, written)

    def _own_files(self, message: Any) -> Iterable[str]:
        return (name for file in message.new_files for name in file.extra_files or ())

    def _put(self, paimon: Any, message: Any, file: Any, written: list[str]) -> None:
        wanted = {index.column for index in self.indexes.indexes}
        columns = pa.ipc.read_schema(pa.py_buffer(self.schema))
        schema = pa.schema([field for field in columns if field.name in wanted])
        index = None
        path = file_path(paimon, tuple(message.partition), message.bucket, file.file_name)
        with contextlib.closing(paimon.file_io.new_input_stream(path)) as source:
            for batch in _written_batches(source, file.file_name, schema):
                read = pa.schema([field for field in schema if field.name in batch.schema.names])
                if index is None:
                    index = FileIndexWriter(self.indexes, read.names)
                index.add(conform(batch, read))
        if index is None:
            return

        def write(name: str, body: bytes) -> None:
            target = f"{path.rpartition('/')[0]}/{name}"
            written.append(target)
            with paimon.file_io.new_output_stream(target) as stream:
                stream.write(body)

        stored = index.finish(file.file_name, write)
        if stored.embedded is not None:
            file.embedded_index = stored.embedded
        if stored.file_name is not None:
            file.extra_files = [*(file.extra_files or ()), stored.file_name]


def file_index_rules(table: Table) -> FileIndexRules | None:
    """The index rules for the writers of a table; None if the table has no file indexes.

    Raises InvalidTableError for options that request an impossible index.
    """
    indexes = file_indexes_of(table.schema)
    if not indexes.indexes:
        return None
    schema = arrow_schema(table.schema).serialize().to_pybytes()
    return FileIndexRules(pickle.dumps(table.paimon), schema, indexes)


def _written_batches(source: Any, file_name: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The columns of `schema` in a new file of our own writers, in the types of the file. Without
    times where the file has some before 1677 or after 2262, which can't be read from ORC files.

    Raises ValueError for a format that is not known.
    """
    read = FORMATS.get(file_name.rpartition(".")[2])
    if read is None:
        raise ValueError(f"{file_name} has a format whose files get no indexes")
    fields = list(schema)
    try:
        yield from _columns(read, source, fields)
    except UnsupportedStatementError:  # before the first batch
        yield from _columns(read, source, [f for f in fields if not pa.types.is_timestamp(f.type)])


def _columns(read: Reader, source: Any, fields: Sequence[pa.Field]) -> Iterator[pa.RecordBatch]:
    names = tuple(field.name for field in fields)
    columns = StoredColumns(names, {field.name: field.type for field in fields})
    return (batch for _, batch in read(source, columns, _BATCH_ROWS))
