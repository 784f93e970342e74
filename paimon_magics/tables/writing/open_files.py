"""Writers of a table's files in a task: one for each partition and bucket, side by side."""

from __future__ import annotations

import pickle
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import pyarrow as pa

from paimon_magics.planning.reads.scans import OWN_PREFIXES
from paimon_magics.tables.pypaimon_internals import io_options
from paimon_magics.tables.writing.bucket_assignment import Partition, values_at
from paimon_magics.tables.writing.key_value_files import KeyValueFiles
from paimon_magics.tables.writing.new_files import NewFile, bucket_folder

if TYPE_CHECKING:
    from paimon_magics.tables.table import Table


class BucketWriter(Protocol):
    """Writes files of one bucket."""

    def finish(self) -> tuple[NewFile, ...]:
        """Finish all files, of data and of changes."""

    def abort(self) -> None:
        """Delete all files."""


_Writer = TypeVar("_Writer", bound=BucketWriter)


@dataclass(frozen=True, slots=True, repr=False)
class WritableTable:
    """How to write one table in a task; picklable. `body` is a pickle of pypaimon's table. The
    names of data and changelog files begin with `prefixes`."""

    name: str
    body: bytes
    files: KeyValueFiles
    partition_keys: tuple[str, ...]
    prefixes: tuple[str, str]
    io_options: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, table: Table, file_prefix: str, files: KeyValueFiles, **details: Any) -> Self:
        """The description of `table` for writers whose files' names begin with `file_prefix`."""
        return cls(
            name=str(table.name),
            body=pickle.dumps(table.paimon),
            files=files,
            partition_keys=table.schema.partition_keys,
            prefixes=(
                file_prefix + OWN_PREFIXES["data-file.prefix"],
                file_prefix + OWN_PREFIXES["changelog-file.prefix"],
            ),
            io_options=io_options(table.paimon),
            **details,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"  # the pickle and io_options may hold secrets

    def with_file_prefix(self, addition: str) -> Self:
        """The same table with `addition` appended to the prefixes of its new files' names."""
        data, changelog = self.prefixes
        return replace(self, prefixes=(data + addition, changelog + addition))


class OpenFiles(Generic[_Writer]):
    """Writers of new files of a table, each opened when the first rows of its bucket come. After
    `messages` it takes rows of other buckets.

    If the process dies, files stay that no snapshot names; the transaction's attempt noted their
    folders.
    """

    def __init__(self, table: WritableTable) -> None:
        self._paimon = pickle.loads(table.body)  # made by `WritableTable.of`, for this job
        self._partition_keys = table.partition_keys
        self._open: dict[tuple[Partition, int], _Writer] = {}
        self._finished: list[_Writer] = []

    def writer(self, rows: pa.RecordBatch, bucket: int) -> _Writer:
        """The writer of rows of one partition and bucket."""
        keys = [rows.column(key) for key in self._partition_keys]
        owner = (values_at(keys, 0) if keys else (), bucket)
        if owner not in self._open:
            self._open[owner] = self.opened(*owner, bucket_folder(self._paimon, *owner))
        return self._open[owner]

    @abstractmethod
    def opened(self, partition: Partition, bucket: int, folder: str) -> _Writer:
        """A new writer of files of a bucket, in its folder."""

    def messages(self) -> list[bytes]:
        """Finish all files, and return the commit messages of those that no message has yet."""
        from pypaimon.write.commit_message import CommitMessage

        from paimon_magics.tables.writing.commit_messages import write_message
        from paimon_magics.tables.writing.data_file_metas import meta_of_new_file

        messages = []
        for owner, writer in self._open.items():
            message = CommitMessage(*owner, [])
            for file in writer.finish():
                # Only changelog files don't count as compacted yet.
                files = message.new_files if file.is_compacted else message.changelog_files
                files.append(meta_of_new_file(self._paimon, replace(file, is_compacted=False)))
            messages.append(write_message(self._paimon, message))
        self._finished += self._open.values()
        self._open.clear()
        return messages

    def abort(self) -> None:
        """Delete all files; their messages must not be committed."""
        for writer in (*self._finished, *self._open.values()):
            writer.abort()

    def close(self) -> None:
        """Close the writer, and delete files that are in no returned message."""
        for writer in self._open.values():
            writer.abort()
