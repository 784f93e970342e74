"""Writes rows of a primary-key table with known buckets into files of level 0.

The rows of each bucket wait in a buffer. When the buffers of a writer together hold more than
`write-buffer-size`, the largest is flushed: its rows are sorted and merged by key, and become files
that overlap in no key. So a bucket gets as many sorted runs as its rows fill buffers. Rows are
numbered as they come, on from the greatest sequence number of their bucket. Sources:
`MergeTreeWriter`, `MemoryPoolFactory`, `AbstractFileStoreWrite`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from paimon_magics.columnar.flushing import flushed
from paimon_magics.columnar.folding import MergeRule
from paimon_magics.columnar.merging import KIND, SEQUENCE
from paimon_magics.planning.options.values import memory_size_bytes
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.tables.schema.merge_options import merge_rule
from paimon_magics.tables.writing.bucket_assignment import Partition
from paimon_magics.tables.writing.key_value_files import (
    KeyValueFiles,
    KeyValueFileWriter,
    changelog_files,
    level_files,
    unsliced,
)
from paimon_magics.tables.writing.new_files import NewFile
from paimon_magics.tables.writing.open_files import OpenFiles, WritableTable
from paimon_magics.tables.writing.row_kinds import KindRule, kind_rule

if TYPE_CHECKING:
    from paimon_magics.tables.manifests.live_files import ManifestCache
    from paimon_magics.tables.table import Table
    from paimon_magics.tables.writing.sequence_numbers import Bucket

_BUFFER_BYTES = 128 * 2**20
_BUFFER_BYTES_MAX = 2**30  # a flush puts a column together, and Arrow holds 2 GiB of texts at most


@dataclass(frozen=True, slots=True, repr=False)
class FlushTable(WritableTable):
    """How to write a primary-key table. `changelogs` is None for a table whose writers write no
    changelog. The buffers of a writer hold up to `buffer_bytes`. `first_numbers` are the next
    sequence numbers of all buckets that have files; with None each writer reads the manifests of
    the newest snapshot."""

    changelogs: KeyValueFiles | None
    rule: MergeRule
    kinds: KindRule
    buffer_bytes: int
    first_numbers: tuple[tuple[Bucket, int], ...] | None = None

    def writer(
        self, commit_user: str, *, overwrite: bool, manifests: ManifestCache | None = None
    ) -> FlushWriter:
        """A writer of new files. With `overwrite` they replace others, and sequence numbers start
        anew. `manifests` is a cache of the table's manifests, where this process has one."""
        del commit_user  # the commit names it
        return FlushWriter(self, overwrite=overwrite, manifests=manifests)


class FlushWriter(OpenFiles["_BucketBuffer"]):
    """Writes rows of given buckets, with the interface of `NativeWriter`; rows of one bucket keep
    their order."""

    def __init__(
        self, table: FlushTable, *, overwrite: bool, manifests: ManifestCache | None = None
    ) -> None:
        super().__init__(table)
        self._table = table
        self._manifests = manifests
        self._next_numbers: Mapping[Bucket, int] | None = {} if overwrite else None
        if table.first_numbers is not None and not overwrite:
            self._next_numbers = dict(table.first_numbers)
        self._size_bytes = 0

    def write(self, rows: pa.RecordBatch, bucket: int | None) -> None:
        """Write rows of one partition and `bucket`. Raises ValueError for rows that the table can't
        take, and JobError for rows that its merge engine can't merge."""
        assert bucket is not None
        rows, kinds = self._table.kinds.applied(rows)
        if not rows.num_rows:
            return
        self._size_bytes += self.writer(rows, bucket).add(rows, kinds)
        while self._size_bytes > self._table.buffer_bytes:
            largest = max(self._open.values(), key=lambda buffer: buffer.size_bytes)
            self._size_bytes -= largest.size_bytes
            largest.flush()

    def messages(self) -> list[bytes]:
        """Finish all files, and return the commit messages of those that no message has yet."""
        self._size_bytes = 0
        return super().messages()

    def opened(self, partition: Partition, bucket: int, folder: str) -> _BucketBuffer:
        """The buffer of a new bucket. Names of files are unique without their folders."""
        identity, table = uuid.uuid4(), self._table
        data, changelog = (f"{prefix}{identity}" for prefix in table.prefixes)
        return _BucketBuffer(
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
        from paimon_magics.tables.snapshots.latest import latest_snapshot
        from paimon_magics.tables.writing.sequence_numbers import next_numbers, partition_row

        if self._next_numbers is None:
            latest = latest_snapshot(self._paimon)
            self._next_numbers = next_numbers(self._paimon, latest, self._manifests)
        if not self._next_numbers:
            return 0
        return self._next_numbers.get((partition_row(self._paimon, partition), bucket), 0)


class _BucketBuffer:
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
        numbers = np.arange(self._number, self._number + rows.num_rows, dtype=np.int64)
        self._number += rows.num_rows
        rows = unsliced(rows).append_column(SEQUENCE, pa.array(numbers))
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

    def finish(self) -> tuple[NewFile, ...]:
        """Write what the buffer holds, and finish the data files and the changelog files."""
        self.flush()
        return self._data.finish() + (self._changelog.finish() if self._changelog else ())

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
    return FlushTable.of(
        table,
        file_prefix,
        level_files(table, 0),
        changelogs=changelog_files(table, 0) if schema.changelog_producer == "input" else None,
        rule=merge_rule(schema),
        kinds=kind_rule(schema),
        buffer_bytes=buffer_bytes(schema),
    )
