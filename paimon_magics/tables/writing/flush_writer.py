"""Writes rows of a primary-key table with known buckets into files of level 0.

The rows of each bucket wait in a buffer. When the buffers of a writer together hold more than
`write-buffer-size`, the largest is flushed: its rows are sorted and merged by key, and become files
that overlap in no key. So a bucket gets as many sorted runs as its rows fill buffers. Rows are
numbered as they come, on from the greatest sequence number of their bucket. Sources:
`MergeTreeWriter`, `MemoryPoolFactory`, `AbstractFileStoreWrite`.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from paimon_magics.columnar.flushing import flushed
from paimon_magics.columnar.folding import MergeRule
from paimon_magics.columnar.merging import KIND, SEQUENCE
from paimon_magics.planning.options.values import memory_size_bytes
from paimon_magics.planning.reads.scans import OWN_PREFIXES
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.tables.pypaimon_internals import store_options
from paimon_magics.tables.schema.merge_options import merge_rule
from paimon_magics.tables.writing.bucket_assignment import Partition, values_at
from paimon_magics.tables.writing.key_value_files import (
    KeyValueFiles,
    KeyValueFileWriter,
    changelog_files,
    level_files,
)
from paimon_magics.tables.writing.new_files import NewFile
from paimon_magics.tables.writing.row_kinds import KindRule, kind_rule

if TYPE_CHECKING:
    from paimon_magics.tables.manifests.live_files import ManifestCache
    from paimon_magics.tables.table import Table
    from paimon_magics.tables.writing.sequence_numbers import Bucket

_BUFFER_BYTES = 128 * 2**20
_BUFFER_BYTES_MAX = 2**30  # a flush puts a column together, and Arrow holds 2 GiB of texts at most


@dataclass(frozen=True, slots=True)
class FlushTable:
    """How to write one table in a task; picklable. `body` is a pickle of pypaimon's table. The
    names of data and changelog files begin with `prefixes`. `changelogs` is None for a table whose
    writers write no changelog. The buffers of a writer hold up to `buffer_bytes`. `first_numbers`
    are the next sequence numbers of all buckets that have files; with None each writer reads the
    manifests of the newest snapshot."""

    name: str
    body: bytes
    files: KeyValueFiles
    changelogs: KeyValueFiles | None
    rule: MergeRule
    kinds: KindRule
    partition_keys: tuple[str, ...]
    prefixes: tuple[str, str]
    buffer_bytes: int
    io_options: tuple[tuple[str, str], ...]
    first_numbers: tuple[tuple[Bucket, int], ...] | None = None

    def __repr__(self) -> str:
        return f"FlushTable({self.name})"  # the pickle and io_options may hold credentials

    def writer(
        self, commit_user: str, *, overwrite: bool, manifests: ManifestCache | None = None
    ) -> FlushWriter:
        """A writer of new files. With `overwrite` they replace others, and sequence numbers start
        anew. `manifests` is a cache of the table's manifests, where this process has one."""
        del commit_user  # the commit names it
        return FlushWriter(self, overwrite=overwrite, manifests=manifests)

    def with_file_prefix(self, addition: str) -> FlushTable:
        """The same table with `addition` appended to the prefixes of its new files' names."""
        data, changelog = self.prefixes
        return replace(self, prefixes=(data + addition, changelog + addition))


class FlushWriter:
    """Writes rows of given buckets, with the interface of `NativeWriter`; rows of one bucket keep
    their order. After `messages` it takes rows of other buckets."""

    def __init__(
        self, table: FlushTable, *, overwrite: bool, manifests: ManifestCache | None = None
    ) -> None:
        self._table = table
        self._manifests = manifests
        self._paimon = pickle.loads(table.body)  # made by `flush_table`, for this job
        self._overwrite = overwrite
        self._buckets: dict[tuple[Partition, int], _Bucket] = {}
        self._next_numbers: Mapping[tuple[bytes, int], int] | None = None
        self._size_bytes = 0
        self._told: list[_Bucket] = []

    def write(self, rows: pa.RecordBatch, bucket: int | None) -> None:
        """Write rows of one partition and `bucket`. Raises ValueError for rows that the table can't
        take, and JobError for rows that its merge engine can't merge."""
        assert bucket is not None
        rows, kinds = self._table.kinds.applied(rows)
        if not rows.num_rows:
            return
        keys = [rows.column(key) for key in self._table.partition_keys]
        owner = (values_at(keys, 0) if keys else (), bucket)
        if owner not in self._buckets:
            self._buckets[owner] = self._begun(*owner)
        self._size_bytes += self._buckets[owner].add(rows, kinds)
        while self._size_bytes > self._table.buffer_bytes:
            largest = max(self._buckets.values(), key=lambda one: one.size_bytes)
            self._size_bytes -= largest.size_bytes
            largest.flush()

    def messages(self) -> list[bytes]:
        """Finish all files, and return the commit messages of those that no message has yet."""
        from pypaimon.write.commit_message import CommitMessage

        from paimon_magics.tables.writing.commit_messages import write_message
        from paimon_magics.tables.writing.data_file_metas import meta_of_new_file

        found = []
        for (partition, number), bucket in self._buckets.items():
            bucket.flush()
            data, changelog = (
                [meta_of_new_file(self._paimon, file) for file in files]
                for files in bucket.finished()
            )
            message = CommitMessage(partition, number, data, changelog_files=changelog)
            found.append(write_message(self._paimon, message))
        self._told += self._buckets.values()
        self._buckets.clear()
        self._size_bytes = 0
        return found

    def abort(self) -> None:
        """Delete all files; their messages must not be committed."""
        for bucket in (*self._told, *self._buckets.values()):
            bucket.abort()

    def close(self) -> None:
        """Close the writer, and delete files that are in no returned message."""
        for bucket in self._buckets.values():
            bucket.abort()

    def _begun(self, partition: Partition, bucket: int) -> _Bucket:
        from pypaimon.utils.file_store_path_factory import canonical_data_file_path

        path = canonical_data_file_path(self._paimon, partition, bucket, "file")
        folder = str(path).rpartition("/")[0]
        identity = uuid.uuid4()  # names are told apart without their folders
        data, changelog = (f"{prefix}{identity}" for prefix in self._table.prefixes)
        table = self._table
        return _Bucket(
            table.rule,
            KeyValueFileWriter(table.files, folder, data),
            None
            if table.changelogs is None
            else KeyValueFileWriter(table.changelogs, folder, changelog),
            self._first_number(partition, bucket),
        )

    def _first_number(self, partition: Partition, bucket: int) -> int:
        """The sequence number of the first row of a bucket, after all that the newest snapshot
        has, or the one that the table's description was made of."""
        if self._overwrite:
            return 0
        from paimon_magics.tables.snapshots.latest import latest_snapshot
        from paimon_magics.tables.writing.sequence_numbers import next_numbers, partition_row

        if self._next_numbers is None and self._table.first_numbers is not None:
            self._next_numbers = dict(self._table.first_numbers)
        if self._next_numbers is None:
            latest = latest_snapshot(self._paimon)
            self._next_numbers = next_numbers(self._paimon, latest, self._manifests)
        return self._next_numbers.get((partition_row(self._paimon, partition), bucket), 0)


class _Bucket:
    """The buffer and the files of one bucket."""

    def __init__(
        self,
        rule: MergeRule,
        data: KeyValueFileWriter,
        changelog: KeyValueFileWriter | None,
        number: int,
    ) -> None:
        self._rule = rule
        self._data = data
        self._changelog = changelog
        self._number = number
        self._batches: list[pa.RecordBatch] = []
        self.size_bytes = 0

    def add(self, rows: pa.RecordBatch, kinds: Any) -> int:
        """Take rows into the buffer; return their size in bytes."""
        if rows.get_total_buffer_size() > 2 * rows.nbytes:
            # A slice would keep the batch in memory that it was cut from.
            rows = rows.take(pa.array(np.arange(rows.num_rows)))
        numbers = np.arange(self._number, self._number + rows.num_rows, dtype=np.int64)
        self._number += rows.num_rows
        rows = rows.append_column(SEQUENCE, pa.array(numbers))
        rows = rows.append_column(KIND, pa.array(kinds))
        self._batches.append(rows)
        self.size_bytes += rows.nbytes
        return int(rows.nbytes)

    def flush(self) -> None:
        """Write what the buffer holds into files of its own."""
        if not self._batches:
            return
        batches, self._batches, self.size_bytes = self._batches, [], 0
        for part in flushed(batches, self._rule, wants_changelog=self._changelog is not None):
            self._data.write(part.rows)
            if self._changelog is not None and part.changelog is not None:
                self._changelog.write(part.changelog)
        self._data.finish()
        if self._changelog is not None:
            self._changelog.finish()

    def finished(self) -> tuple[list[NewFile], list[NewFile]]:
        """The data files and the changelog files."""
        writers = (self._data, self._changelog)
        data, changelog = (() if writer is None else writer.finish() for writer in writers)
        return [replace(file, is_compacted=False) for file in data], list(changelog)

    def abort(self) -> None:
        """Delete all files."""
        self._data.abort()
        if self._changelog is not None:
            self._changelog.abort()


def buffer_bytes(schema: TableSchema) -> int:
    """How much the buffers of one writer may hold together: `write-buffer-size`, 1 GiB at most."""
    stored_option = schema.stored_option("write-buffer-size")
    if stored_option is None:
        return _BUFFER_BYTES
    return min(memory_size_bytes("write-buffer-size", stored_option), _BUFFER_BYTES_MAX)


def flush_table(table: Table, file_prefix: str) -> FlushTable:
    """The description of `table` for writers whose files' names begin with `file_prefix`. Raises
    InvalidTableError for an option's value that can't be read."""
    schema = table.schema
    options = store_options(table.paimon) or {}
    return FlushTable(
        name=str(table.name),
        body=pickle.dumps(table.paimon),
        files=level_files(table, 0),
        changelogs=changelog_files(table, 0) if schema.changelog_producer == "input" else None,
        rule=merge_rule(schema),
        kinds=kind_rule(schema),
        partition_keys=schema.partition_keys,
        prefixes=(
            file_prefix + OWN_PREFIXES["data-file.prefix"],
            file_prefix + OWN_PREFIXES["changelog-file.prefix"],
        ),
        buffer_bytes=buffer_bytes(schema),
        io_options=tuple(sorted((str(k), str(v)) for k, v in options.items())),
    )
