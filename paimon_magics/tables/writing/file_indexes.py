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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from paimon_magics.columnar.file_indexes.collection import IndexCollection
from paimon_magics.planning.writes.index_rules import FileIndexes, file_indexes_of
from paimon_magics.tables.schema.arrow_casting import conform
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.writing.written_columns import written_batches

if TYPE_CHECKING:
    from paimon_magics.tables.table import Table

__all__ = [
    "INDEX_SUFFIX",
    "FileIndexRules",
    "FileIndexWriter",
    "StoredIndex",
    "file_index_rules",
]

INDEX_SUFFIX = ".index"
"""How the name of a file of indexes ends."""


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
