"""Plans new file indexes for the files of a snapshot, and makes the commit messages.

Files get the indexes that the table's options `file-index.*` ask for now. A commit of the kind
COMPACT deletes each file and adds it with its new index. A file that has no index before and after
is left alone, and so is a file whose index stays the same. Source: `RewriteFileIndexProcedure`,
`FileIndexProcessor`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.compaction.steps import balanced
from paimon_magics.planning.reads.splits import StoredFile
from paimon_magics.planning.schemas.feature_rules import check_file_index_type
from paimon_magics.planning.writes.index_rules import FileIndexes, file_indexes_of
from paimon_magics.statements.data_types import MapType
from paimon_magics.tables.compaction.append_plan import stored_files_of
from paimon_magics.tables.compaction.planning import (
    CompactionScope,
    files_of_scope,
    partition_schema,
)
from paimon_magics.tables.compaction.rewriting import partition_row
from paimon_magics.tables.manifests.live_files import ManifestCache, undeleted
from paimon_magics.tables.manifests.names import DELETE
from paimon_magics.tables.manifests.partitions import partition_values
from paimon_magics.tables.reading.data_files import FileReader
from paimon_magics.tables.reading.table_files import own_store, reader_of_schema
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.splits.stored_files import stores_elsewhere
from paimon_magics.tables.stores.s3_access import io_options
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.attempts import attempt
from paimon_magics.tables.writing.commit_messages import BucketKey, stored_metas
from paimon_magics.tables.writing.file_indexes import INDEX_SUFFIX, FileIndexWriter, StoredIndex
from paimon_magics.tables.writing.key_value_files import FileCreation

_INDEX_COLUMNS = ("schema_id", "embedded_file_index", "extra_files")
_Identity = tuple[str, int, tuple[str, ...], bytes | None]


Report = Callable[[int, int], None]


@dataclass(frozen=True)
class IndexRewriting:
    """The files of a snapshot (MANIFEST_ENTRIES) that may get other indexes; `units` are those
    that are read. `indexes` are those of files of a schema, by its id. `deleted` are the files
    that the snapshot's manifests delete."""

    table: Table
    snapshot_id: int
    files: pa.Table
    deleted: frozenset[_Identity]
    units: tuple[IndexUnit, ...]
    indexes: Mapping[int, FileIndexes]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.units

    @property
    def rewritten_bytes(self) -> int:
        """The size of all files that are read."""
        return sum(unit.size_bytes for unit in self.units)

    def unit_keys(self) -> list[BucketKey]:
        """The partition, serialized, and bucket of each unit; several may have the same."""
        return [(unit.partition, unit.bucket) for unit in self.units]

    def only(self, places: Sequence[int]) -> IndexRewriting:
        """The plan of the units at these places."""
        return replace(self, units=tuple(self.units[at] for at in places))

    def rewrite(self, transaction: Transaction) -> IndexRewrite:
        """The callable that indexes a file for the transaction."""
        table = self.table
        schemas = TableSchemas(table.paimon)
        elsewhere = stores_elsewhere(self.files)
        readers = {
            schema_id: reader_of_schema(
                table,
                schema_id,
                schemas,
                {index.column for index in indexes.indexes},
                elsewhere,
            )
            for schema_id, indexes in self.indexes.items()
        }
        is_local = {own_store(table), *elsewhere} == {"file"}
        return IndexRewrite(
            readers=readers,
            indexes=self.indexes,
            partitions=partition_schema(table.schema),
            creation=FileCreation(None if is_local else table.paimon.file_io),
            stem=f"{transaction.file_prefix}index-",  # see `attempts.attempt_of_file`
            attempts_folder=transaction.attempts_folder,
            io_options=io_options(table.paimon),
        )

    def messages(self, indexed: Iterable[IndexedFile]) -> list[CommitMessage]:
        """The commit messages of all files whose index has changed, one for each bucket."""
        indexes = dict(indexed)
        rows = [unit.row for unit in self.units]
        files = self.files.take(pa.array(rows, pa.int64()))
        partitions, of_files = partition_values(self.table.paimon, files)
        counts = files["total_buckets"].to_pylist()
        metas = stored_metas(self.table.paimon, files)
        messages: dict[tuple[int, int], CommitMessage] = {}
        for at, (unit, meta) in enumerate(zip(self.units, metas, strict=True)):
            index = indexes[unit.row]
            others = [name for name in meta.extra_files if not name.endswith(INDEX_SUFFIX)]
            extra = others if index.file_name is None else [*others, index.file_name]
            if extra == meta.extra_files and index.embedded == (meta.embedded_index or None):
                continue
            partition = int(of_files[at])
            message = messages.setdefault(
                (partition, unit.bucket),
                CommitMessage(partitions[partition], unit.bucket, [], total_buckets=counts[at]),
            )
            message.compact_before.append(meta)
            message.compact_after.append(
                replace(meta, extra_files=extra, embedded_index=index.embedded)
            )
        return list(messages.values())


def needs_merged_manifests(plan: IndexRewriting, messages: Iterable[CommitMessage]) -> bool:
    """Whether a file gets back an index that it had before, while manifests still delete the file
    with that index. Some readers ignore the order of entries, so manifests must be merged before
    the commit."""
    return any(
        _identity(file) in plan.deleted for message in messages for file in message.compact_after
    )


def _identity(file: Any) -> _Identity:
    """What identifies a file besides its bucket: `FileEntry.Identifier`."""
    extra, embedded = tuple(file.extra_files or ()), file.embedded_index or None
    return file.file_name, file.level, extra, embedded


def plan_index_rewriting(
    table: Table, snapshot: Any, scope: CompactionScope, manifests: ManifestCache
) -> IndexRewriting:
    """Plan new indexes for the files of `snapshot`, pypaimon's. Raises InvalidTableError for
    options that request an impossible index."""
    entries = manifests.listed_entries([snapshot.base_manifest_list, snapshot.delta_manifest_list])
    files = files_of_scope(undeleted(entries), scope)
    gone = entries.filter(pc.field("kind") == DELETE)
    deleted = frozenset(_identity(meta) for meta in stored_metas(table.paimon, gone))
    schemas = TableSchemas(table.paimon)
    wanted = file_indexes_of(table.schema)
    ids = set(files["schema_id"].to_pylist())
    indexes = {schema_id: _indexes_in(table, wanted, schemas, schema_id) for schema_id in ids}
    columns = (files[name].to_pylist() for name in _INDEX_COLUMNS)
    rows = [
        row
        for row, (schema_id, body, extra) in enumerate(zip(*columns, strict=True))
        if indexes[schema_id].indexes
        or body
        or any(name.endswith(INDEX_SUFFIX) for name in extra or ())
    ]
    chosen = files.take(pa.array(rows, pa.int64()))
    stored = stored_files_of(table, chosen, {})
    columns = (chosen[name].to_pylist() for name in ("partition", "bucket"))
    units = tuple(
        IndexUnit(row, partition, bucket, file.path.rpartition("/")[0], file)
        for row, partition, bucket, file in zip(range(len(rows)), *columns, stored, strict=True)
    )
    return IndexRewriting(table, int(snapshot.id), chosen, deleted, units, indexes)


def _indexes_in(
    table: Table, wanted: FileIndexes, schemas: TableSchemas, schema_id: int
) -> FileIndexes:
    """The indexes of files of a schema, by the schema's column names; without columns that it
    lacks, or whose type can't have the index."""
    ids = {column.name: column.id for column in table.schema.columns}
    stored = {column.id: column for column in schemas.columns(schema_id)}
    indexes = []
    for index in wanted.indexes:
        column = stored.get(ids[index.column])
        if column is None:
            continue
        data_type = column.type
        if index.map_key is not None and isinstance(data_type, MapType):
            data_type = data_type.value
        try:
            check_file_index_type(index.kind, column.name, data_type)
        except InvalidTableError:
            continue
        indexes.append(replace(index, column=column.name))
    return replace(wanted, indexes=tuple(indexes))


# Builds the file indexes of files that exist, in a Spark task or in a thread.
#
# Each file is read once, with its deleted rows: an index counts the rows as they are in the file.
# The data file itself stays unchanged. If the process dies, index files stay that no snapshot
# names. The transaction's attempt noted their folders, and they are removed when it ends. Source:
# `FileIndexProcessor`.


@dataclass(frozen=True, slots=True)
class IndexUnit:
    """A file that gets new indexes. `row` is its position in the plan; its index file, if it must
    have one, lies in `folder`, beside the file. `partition` is a serialized `BinaryRow`."""

    row: int
    partition: bytes
    bucket: int
    folder: str
    file: StoredFile

    @property
    def size_bytes(self) -> int:
        """The size of the file."""
        return self.file.size_bytes


IndexedFile = tuple[int, StoredIndex]
"""The position of a file, and where its index lies."""


@dataclass(frozen=True)
class IndexRewrite:
    """Indexes files; small and picklable. `indexes` are those of files of a schema, by its id, in
    that schema's columns. `readers` read them. `stem` begins the names of index files."""

    readers: Mapping[int, FileReader]
    indexes: Mapping[int, FileIndexes]
    partitions: pa.Schema
    creation: FileCreation
    stem: str
    attempts_folder: str | None
    io_options: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return f"IndexRewrite({self.stem})"  # io_options may hold credentials

    def __call__(self, unit: IndexUnit, report: Report | None = None) -> IndexedFile:
        """Index one file. Raises TableDamagedError for a file that can't be read, ValueError with
        the column's name for a value that an index can't hold, OSError for the store's failures,
        JobError when the transaction has ended."""
        schema_id = unit.file.schema_id
        names = [field.name for field in self.readers[schema_id].wanted]
        index = FileIndexWriter(self.indexes[schema_id], names)
        if names:
            for batch in self.readers[schema_id].batches(replace(unit.file, deletions=None)):
                index.add(batch)
                if report is not None:
                    report(batch.num_rows, 0)
        if report is not None:
            report(0, unit.size_bytes)
        written: list[str] = []
        with attempt(self.attempts_folder, self.io_options) as running:
            running.note(partition_row(unit.partition, self.partitions), [unit.bucket])

            def write(name: str, body: bytes) -> None:
                path = f"{unit.folder}/{name}"
                written.append(path)
                with contextlib.closing(self.creation.open(path)) as sink:
                    sink.write(body)

            try:
                stored = index.finish(f"{self.stem}{running.name_part}{unit.row}", write)
                running.check_open()
            except BaseException:
                for path in written:
                    self.creation.delete(path)
                raise
        return unit.row, stored


@dataclass(frozen=True)
class IndexUnits:
    """Files divided among the tasks of a job: one after the other in each group."""

    rewrite: IndexRewrite
    groups: tuple[tuple[IndexUnit, ...], ...]

    @classmethod
    def of(cls, rewrite: IndexRewrite, units: Sequence[IndexUnit], slots: int) -> IndexUnits:
        """At most `slots` groups with about as much to read."""
        return cls(rewrite, balanced(units, lambda unit: unit.size_bytes, slots))

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self.groups)

    def run(self, number: int, report: Report) -> list[IndexedFile]:
        """Index the files of a group."""
        return [self.rewrite(unit, report) for unit in self.groups[number]]
