"""Writers of our own: of append tables, of primary-key tables whose buckets are known, and of rows
that wait for their buckets.

Each has one writer of files for each partition and bucket, side by side, and the interface of
`NativeWriter`. Light to import, because Spark's tasks load it.
"""

from __future__ import annotations

import pickle
import uuid
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.flushing import flushed
from paimon_magics.columnar.folding import MergeRule
from paimon_magics.columnar.merging import KIND, SEQUENCE
from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.compaction.append_tables import AppendRules
from paimon_magics.planning.options.values import memory_size_bytes
from paimon_magics.planning.reads.scans import OWN_PREFIXES
from paimon_magics.planning.reads.views import DELETE, KIND_NAMES, UPDATE_BEFORE
from paimon_magics.planning.schemas.feature_rules import is_blob_column
from paimon_magics.planning.schemas.format_rules import fits_format
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.planning.writes.file_rules import NO_STATISTICS, data_file_rules
from paimon_magics.statements.data_types import VectorType
from paimon_magics.tables.schema.merge_rule import merge_rule
from paimon_magics.tables.stores.s3_access import io_options
from paimon_magics.tables.writing.bucket_counts import Partition, values_at
from paimon_magics.tables.writing.key_value_files import (
    KeyValueFiles,
    KeyValueFileWriter,
    changelog_files,
    level_files,
    unsliced,
)
from paimon_magics.tables.writing.new_files import NewFile, bucket_folder

if TYPE_CHECKING:
    from paimon_magics.tables.manifests.live_files import ManifestCache
    from paimon_magics.tables.table import Table
    from paimon_magics.tables.writing.sequence_numbers import Bucket


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
        # Writers whose files no message has yet, and those whose files are in messages.
        self._complete: list[tuple[tuple[Partition, int], _Writer, tuple[NewFile, ...]]] = []
        self._finished: list[_Writer] = []

    def writer(self, rows: pa.RecordBatch, bucket: int, open_max: int | None = None) -> _Writer:
        """The writer of rows of one partition and bucket. If it would exceed `open_max`, the files
        of the other writers are finished first."""
        keys = [rows.column(key) for key in self._partition_keys]
        owner = (values_at(keys, 0) if keys else (), bucket)
        if owner not in self._open:
            if open_max is not None and len(self._open) >= open_max:
                self.finish_files()
            self._open[owner] = self.opened(*owner, bucket_folder(self._paimon, *owner))
        return self._open[owner]

    @abstractmethod
    def opened(self, partition: Partition, bucket: int, folder: str) -> _Writer:
        """A new writer of files of a bucket, in its folder."""

    def messages(self) -> list[bytes]:
        """Finish all files, and return the commit messages of those that no message has yet."""
        from pypaimon.write.commit_message import CommitMessage

        from paimon_magics.tables.writing.commit_messages import meta_of_new_file, write_message

        self.finish_files()
        messages = []
        for owner, _, files in self._complete:
            message = CommitMessage(*owner, [])
            for file in files:
                # Only changelog files don't count as compacted yet.
                place = message.new_files if file.is_compacted else message.changelog_files
                place.append(meta_of_new_file(self._paimon, replace(file, is_compacted=False)))
            messages.append(write_message(self._paimon, message))
        self._finished += (writer for _, writer, _ in self._complete)
        self._complete.clear()
        return messages

    def finish_files(self) -> None:
        """Finish the open files. Rows that come later go to others."""
        for owner in list(self._open):
            files = self._open[owner].finish()
            self._complete.append((owner, self._open.pop(owner), files))

    def abort(self) -> None:
        """Delete all files; their messages must not be committed."""
        for writer in self._finished:
            writer.abort()
        self.close()

    def close(self) -> None:
        """Close the writer, and delete files that are in no returned message."""
        for writer in (*(writer for _, writer, _ in self._complete), *self._open.values()):
            writer.abort()


# The kinds of rows that are written to a primary-key table, and rows that it does not take.


@dataclass(frozen=True, slots=True)
class KindRule:
    """How a row's kind is determined: from the column KIND beside the table's columns, from the
    column `field` of the table, or else each row is a +I. Rows of the kinds `dropped` are not
    written. Sources: `RowKindGenerator`, `RowKindFilter`."""

    field: str | None
    dropped: frozenset[int] = frozenset()

    def applied(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.int8]]:
        """The rows to write, without KIND, and their kinds. Raises InvalidValueError for an unknown
        kind, and for NULL in a column that is NOT NULL."""
        kinds = self._kinds(rows)
        if KIND in rows.schema.names:
            rows = rows.drop_columns([KIND])
        if self.dropped:
            is_written = ~np.isin(kinds, sorted(self.dropped))
            if not is_written.all():
                rows, kinds = rows.filter(pa.array(is_written)), kinds[is_written]
        for field in rows.schema:
            if not field.nullable and rows.column(field.name).null_count:
                raise _null_in(field.name)
        return rows, kinds

    def _kinds(self, rows: pa.RecordBatch) -> npt.NDArray[np.int8]:
        if KIND in rows.schema.names:
            return np.asarray(rows.column(KIND)).astype(np.int8, copy=False)
        if self.field is None:
            return np.zeros(rows.num_rows, dtype=np.int8)
        texts = rows.column(self.field)
        kinds = pc.index_in(texts, pa.array(KIND_NAMES, texts.type))
        if kinds.null_count:
            wrong = texts.filter(kinds.is_null())[0].as_py()
            raise InvalidValueError(
                f"The column `{self.field}` has {wrong!r}, which is not a row kind.",
                hint=f"Nothing was written. Row kinds are {', '.join(KIND_NAMES)}.",
            )
        return np.asarray(kinds).astype(np.int8)


def _null_in(column: str) -> InvalidValueError:
    return InvalidValueError(
        f"The column `{column}` is NOT NULL, and a row has NULL in it.",
        hint="Nothing was written. Filter such rows, or give them a value by coalesce(…).",
    )


def kind_rule(schema: TableSchema) -> KindRule:
    """The rule of a table: `rowkind.field`, `ignore-delete`, `ignore-update-before`."""
    dropped = set()
    if schema.flag("ignore-delete"):
        dropped |= {UPDATE_BEFORE, DELETE}
    if schema.flag("ignore-update-before"):
        dropped.add(UPDATE_BEFORE)
    return KindRule(schema.rowkind_field, frozenset(dropped))


# Rows of an append table, in the order in which they come.
#
# The rows of each partition and bucket wait until they fill a row group; together they take
# `_WAITING_BYTES_MAX` at most, since the largest part is written when they take more. A file is
# finished at about `target-file-size`. Source: `AppendOnlyWriter`.


_WAITING_BYTES_MAX = 128 * 2**20  # in memory, before encoding
_ROW_GROUP_ROWS = 256 * 1024


@dataclass(frozen=True, slots=True, repr=False)
class AppendTable(WritableTable):
    """How to write an append table. Rows whose bucket does not matter lie in bucket 0. A writer has
    `open_files_max` files open, without a limit if that is None."""

    open_files_max: int | None = None

    def writer(self, commit_user: str, *, overwrite: bool) -> AppendWriter:
        """A writer of new files; see `NativeTable.writer`."""
        del commit_user, overwrite  # the commit names it, and numbers the rows
        return AppendWriter(self)


class AppendWriter(OpenFiles[KeyValueFileWriter]):
    """Writes rows as they come, with the interface of `NativeWriter`."""

    def __init__(self, table: AppendTable) -> None:
        super().__init__(table)
        self._table = table
        self._required = [f.name for f in table.files.stored_schema() if not f.nullable]

    def write(self, rows: pa.RecordBatch, bucket: int | None) -> None:
        """Write rows of one partition. Raises InvalidValueError for NULL in a column that is NOT
        NULL."""
        for name in self._required:
            if rows.column(name).null_count:
                raise _null_in(name)
        self.writer(rows, bucket or 0, self._table.open_files_max).write(unsliced(rows))
        while sum(writer.waiting_bytes for writer in self._open.values()) > _WAITING_BYTES_MAX:
            max(self._open.values(), key=lambda writer: writer.waiting_bytes).write_waiting()

    def opened(self, partition: Partition, bucket: int, folder: str) -> KeyValueFileWriter:
        """A new writer. Its name is unique: files are told apart without their folders."""
        stem = f"{self._table.prefixes[0]}{uuid.uuid4()}"
        return KeyValueFileWriter(self._table.files, folder, stem)


def appends_itself(schema: TableSchema) -> bool:
    """Whether rows are written by this module: those of append tables whose files hold all columns
    and nothing else."""
    return (
        not schema.is_primary_key_table
        and not schema.row_tracking_enabled
        and not schema.data_evolution_enabled
        and schema.stored_option("data-file.external-paths") is None
        and not any(
            is_blob_column(column.type) or isinstance(column.type, VectorType)
            for column in schema.columns
        )
    )


def append_table(table: Table, file_prefix: str) -> AppendTable:
    """The description of `table` for writers whose files' names begin with `file_prefix`. Raises
    InvalidTableError for an option's value that can't be read."""
    schema = table.schema
    files = level_files(table, 0)
    rules = replace(files.rules, format=schema.file_format, row_group_rows=_ROW_GROUP_ROWS)
    target_bytes = AppendRules.of(schema).target_bytes
    files = replace(files, rules=rules, target_bytes=target_bytes, system="none")
    return AppendTable.of(table, file_prefix, files)


# Rows of a primary-key table with known buckets, into files of level 0.
#
# The rows of each bucket wait in a buffer. When the buffers of a writer together hold more than
# `write-buffer-size`, the largest is flushed: its rows are sorted and merged by key, and become
# files that overlap in no key. So a bucket gets as many sorted runs as its rows fill buffers. Rows
# are numbered as they come, on from the greatest sequence number of their bucket. Sources:
# `MergeTreeWriter`, `MemoryPoolFactory`, `AbstractFileStoreWrite`.


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
        """A writer of new files. With `overwrite` they replace others, and sequence numbers
        restart. `manifests` is a cache of the table's manifests, if this process has one."""
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


# Rows of a primary-key table that get their buckets later, by a compaction.
#
# They lie in the folder `bucket-postpone` of their partition, neither sorted nor merged. All files
# of one writer share a prefix and are read in their order, so that the rows of a key keep theirs.
# Source: `PostponeBucketFileStoreWrite`, `PostponeBucketWriter`.


POSTPONED_BUCKET = -2
"""The bucket of rows that wait for theirs (`BucketMode.POSTPONE_BUCKET`)."""

_WRITER = "-w-"


@dataclass(frozen=True, slots=True, repr=False)
class PostponedTable(WritableTable):
    """How to write a table whose rows wait for their buckets."""

    kinds: KindRule

    def writer(self, commit_user: str, *, overwrite: bool) -> PostponedWriter:
        """A writer of new files; see `NativeTable.writer`."""
        del overwrite  # rows are renumbered in any case
        return PostponedWriter(self, commit_user)


class PostponedWriter(OpenFiles[KeyValueFileWriter]):
    """Writes rows as they come, with the interface of `NativeWriter`."""

    def __init__(self, table: PostponedTable, commit_user: str) -> None:
        super().__init__(table)
        self._table = table
        identity = uuid.uuid4()
        number = identity.int % (2**31 - 1)
        self._stem = f"{table.prefixes[0]}u-{commit_user}-s-{number}{_WRITER}{identity}"
        self._rows = 0

    def write(self, rows: pa.RecordBatch, bucket: int | None) -> None:
        """Write rows of one partition. Raises InvalidValueError for NULL in a column that is NOT
        NULL."""
        del bucket  # they wait for it
        rows, kinds = self._table.kinds.applied(rows)
        if not rows.num_rows:
            return
        numbers = np.arange(self._rows, self._rows + rows.num_rows, dtype=np.int64)
        self._rows += rows.num_rows
        writer = self.writer(rows, POSTPONED_BUCKET)
        rows = rows.append_column(SEQUENCE, pa.array(numbers))
        writer.write(rows.append_column(KIND, pa.array(kinds)))

    def opened(self, partition: Partition, bucket: int, folder: str) -> KeyValueFileWriter:
        """A new writer of the folder."""
        return KeyValueFileWriter(self._table.files, folder, self._stem)


def postponed_table(table: Table, file_prefix: str) -> PostponedTable:
    """The description of `table` for writers whose files' names begin with `file_prefix`.

    Files are Avro where that holds the table's types, without statistics of values.
    """
    schema = table.schema
    rules = data_file_rules(schema, 0)
    rules = replace(
        rules,
        format="avro" if fits_format(schema, "avro") else rules.format,
        statistics=dict.fromkeys(schema.column_names, NO_STATISTICS),
    )
    files = replace(level_files(table, 0), rules=rules, indexes=None)
    spec = PostponedTable.of(table, file_prefix, files, kinds=kind_rule(schema))
    return replace(spec, prefixes=(f"{file_prefix}data-", ""))


def postponed_writer_of(file_name: str) -> str:
    """The prefix that all files of a writer share (`getWriterPrefix`); the whole name for a file
    that is named otherwise."""
    return file_name.rpartition(_WRITER)[0] or file_name
