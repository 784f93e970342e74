"""Copies of the files of a snapshot into another table: Paimon's `CopyFilesProcedure`.

Files are copied as they are, byte by byte, into the same partitions and buckets, with new names.
Rows keep their levels and sequence numbers, so that a table with a key merges as before. Deletion
vectors and hash indexes come along, and name the files by their new names; so do file indexes.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pypaimon.index.index_file_handler import IndexFileHandler
from pypaimon.manifest.index_manifest_entry import IndexManifestEntry
from pypaimon.manifest.index_manifest_file import IndexManifestFile
from pypaimon.manifest.schema.simple_stats import SimpleStats
from pypaimon.table.row.generic_row import GenericRow, GenericRowSerializer
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import InvalidTableError, UnsupportedStatementError
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.compaction.steps import balanced
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.tables.compaction.planning import partition_schema
from paimon_magics.tables.compaction.rewriting import partition_row
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.manifests.names import ADD
from paimon_magics.tables.manifests.partitions import partition_values
from paimon_magics.tables.reading.data_files import FileAccess
from paimon_magics.tables.reading.table_files import data_paths, file_access, own_store
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.splits.stored_files import files_of_partitions, stores_elsewhere
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.stores.s3_access import io_options
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.attempts import attempt
from paimon_magics.tables.writing.commit_messages import stored_metas, write_message
from paimon_magics.tables.writing.dynamic_buckets import INDEX_FOLDER
from paimon_magics.tables.writing.key_value_files import FileCreation
from paimon_magics.tables.writing.new_files import bucket_folder

_CHUNK_BYTES = 8 << 20
_INDEXES = (IndexManifestFile.DELETION_VECTORS_INDEX, IndexManifestFile.HASH_INDEX)
# Options by which files are laid out, and which both tables must have alike.
_LAYOUT = ("bucket", "file.format", "deletion-vectors.enabled", "row-tracking.enabled")

Report = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class CopyUnit:
    """A data file with the files beside it (`extra`): where they are, and the `folder` that their
    copies go to. `row` is its place in the plan, `partition` a serialized `BinaryRow`."""

    row: int
    partition: bytes
    bucket: int
    path: str
    extra: tuple[str, ...]
    folder: str
    size_bytes: int
    rows: int


CopiedFile = tuple[int, str, tuple[str, ...]]
"""The place of a file in the plan, the name of its copy, and the names of those beside it."""


def check_copied(source: Table, target: TableSchema, name: object) -> None:
    """Raise InvalidTableError unless a table `name` with the schema `target` can take the files of
    `source` as they are, UnsupportedStatementError for files that can't be copied alone."""
    ours = source.schema
    if ours.data_evolution_enabled:
        raise UnsupportedStatementError(
            f"`{source.name}` has 'data-evolution.enabled' = 'true': its files belong together by "
            "their row ids, which another table gives anew.",
            hint=f"INSERT INTO `{name}` SELECT … copies its rows.",
        )
    differences = [
        f"'{key}' is {target.option(key)} there and {ours.option(key)} here"
        for key in _LAYOUT
        if target.option(key) != ours.option(key)
    ]
    for what, theirs, own in (
        ("the primary key", target.primary_keys, ours.primary_keys),
        ("the partition columns", target.partition_keys, ours.partition_keys),
        ("the bucket key", target.bucket_keys, ours.bucket_keys),
    ):
        if theirs != own:
            shown = (", ".join(keys) or "none" for keys in (theirs, own))
            differences.append("{} is {} there and {} here".format(what, *shown))
    columns = {column.name: column for column in target.columns}
    differences += [
        f"the column `{column.name}` is another one there, or missing"
        for column in ours.columns
        if not _same(columns.get(column.name), column)
    ]
    if differences:
        raise InvalidTableError(
            f"`{name}` can't take the files of `{source.name}`: {differences[0]}.",
            hint="Copy to a new table, or INSERT INTO it what the other one has.",
        )


def _same(first: Column | None, second: Column | None) -> bool:
    if first is None or second is None:
        return first is second
    return (first.id, first.name, first.type) == (second.id, second.name, second.type)


@dataclass(frozen=True)
class TableCopy:
    """What is copied of pypaimon's `snapshot` of `source`: `files` (MANIFEST_ENTRIES), as `units`,
    and the entries `indexes` of its index manifest."""

    source: Table
    target: Table
    files: pa.Table
    units: tuple[CopyUnit, ...]
    indexes: tuple[IndexManifestEntry, ...]

    @property
    def size_bytes(self) -> int:
        """The size of the data files."""
        return sum(unit.size_bytes for unit in self.units)

    @property
    def rows(self) -> int:
        """The stored rows of the data files."""
        return sum(unit.rows for unit in self.units)

    @property
    def partitions(self) -> list[tuple[Any, ...]]:
        """The partitions that have files."""
        return list(partition_values(self.source.paimon, self.files)[0])

    def copying(self, transaction: Transaction) -> FileCopying:
        """The callable that copies a file for the transaction."""
        stores = frozenset({own_store(self.source)}) | stores_elsewhere(self.files)
        return FileCopying(
            access=file_access(self.source, stores),
            creation=_creation(self.target),
            partitions=partition_schema(self.target.schema),
            stem=f"{transaction.file_prefix}copy-",  # see `attempts.attempt_of_file`
            attempts_folder=transaction.attempts_folder,
            io_options=io_options(self.target.paimon),
        )

    def messages(self, transaction: Transaction, copied: Iterable[CopiedFile]) -> tuple[bytes, ...]:
        """Copy the index files, and return the commit messages of everything."""
        names = {row: (name, extra) for row, name, extra in copied}
        partitions, of_files = partition_values(self.source.paimon, self.files)
        metas = stored_metas(self.source.paimon, self.files)
        counts = self.files["total_buckets"].to_pylist()
        schemas = TableSchemas(self.source.paimon)
        messages: dict[tuple[Any, ...], CommitMessage] = {}
        renamed: dict[tuple[Any, ...], dict[str, str]] = {}
        for unit, meta in zip(self.units, metas, strict=True):
            partition = partitions[int(of_files[unit.row])]
            place = (partition, unit.bucket)
            name, extra = names[unit.row]
            total = counts[unit.row]
            message = messages.setdefault(
                place,
                CommitMessage(
                    partition, unit.bucket, [], total_buckets=total if total > 0 else None
                ),
            )
            renamed.setdefault(place, {})[meta.file_name] = name
            message.new_files.append(
                replace(
                    _relabelled(meta, schemas.columns(meta.schema_id), self.target),
                    file_name=name,
                    extra_files=list(extra),
                    external_path=None,
                    first_row_id=None,
                )
            )
        for place, entry in self._copied_indexes(transaction, renamed):
            messages[place].index_adds.append(entry)
        return tuple(write_message(self.target.paimon, each) for each in messages.values())

    def _copied_indexes(
        self, transaction: Transaction, renamed: Mapping[tuple[Any, ...], Mapping[str, str]]
    ) -> Iterable[tuple[tuple[Any, ...], IndexManifestEntry]]:
        """Copy the index files; yield their entries, by partition and bucket."""
        source, target = self.source.paimon, self.target.paimon
        access = file_access(self.source, frozenset({own_store(self.source)}))
        creation = _creation(self.target)
        beside_data = self.target.schema.flag("index-file-in-data-file-dir")
        with attempt(transaction.attempts_folder, io_options(target)) as running:
            for entry in self.indexes:
                values, bucket = tuple(entry.partition.values), entry.bucket
                if (values, bucket) not in renamed:
                    continue  # an index of a bucket without files
                encoded = GenericRowSerializer.to_bytes(entry.partition)
                row = partition_row(encoded, partition_schema(self.target.schema))
                running.note(row, [bucket if beside_data else INDEX_FOLDER])
                stem = f"{transaction.file_prefix}copy-{running.name_part}"
                name = f"{stem}{uuid.uuid4().hex[:12]}-index"
                meta = entry.index_file
                path = source.path_factory().bucket_index_path(values, bucket, meta, source.file_io)
                new, is_external = target.path_factory().new_bucket_index_path(values, bucket, name)
                _copy(access, creation, path, new)
                ranges = meta.dv_ranges
                if ranges is not None:
                    by_name = renamed[values, bucket]
                    ranges = {
                        by_name[old]: replace(vector, data_file_name=by_name[old])
                        for old, vector in ranges.items()
                        if old in by_name
                    }
                copied = replace(
                    meta,
                    file_name=name,
                    dv_ranges=ranges,
                    external_path=new if is_external else None,
                )
                partition = GenericRow(list(values), target.partition_keys_fields)
                yield (values, bucket), IndexManifestEntry(ADD, partition, bucket, copied)
            running.check_open()


def plan_table_copy(
    source: Table,
    target: Table,
    snapshot: Any,
    partitions: frozenset[bytes] | None,
    manifests: ManifestCache,
) -> TableCopy:
    """Plan the copy of pypaimon's `snapshot`; `partitions` (serialized) are the chosen ones, None
    is all.

    Raises InvalidTableError for files whose columns the target would read as others, and
    UnsupportedStatementError for files and indexes that can't be copied.
    """
    files = files_of_partitions(live_files(manifests, snapshot), partitions)
    _check_schemas(source, target, files)
    indexes = _indexes(source, snapshot, partitions)
    columns = (files[name].to_pylist() for name in ("partition", "bucket", "extra_files"))
    sizes = zip(files["file_size"].to_pylist(), files["row_count"].to_pylist(), strict=True)
    paths = data_paths(source, files).to_pylist()
    values, of_files = partition_values(source.paimon, files)
    units = []
    for row, (partition, bucket, extra, (size, rows)) in enumerate(
        zip(*columns, sizes, strict=True)
    ):
        folder = bucket_folder(target.paimon, values[int(of_files[row])], bucket)
        beside = tuple(extra or ())
        units.append(CopyUnit(row, partition, bucket, paths[row], beside, folder, size, rows))
    return TableCopy(source, target, files, tuple(units), indexes)


def _indexes(
    source: Table, snapshot: Any, partitions: frozenset[bytes] | None
) -> tuple[IndexManifestEntry, ...]:
    if not snapshot.index_manifest:
        return ()
    entries = []
    for entry in IndexFileHandler(source.paimon).scan(snapshot):
        kind = entry.index_file.index_type
        if kind not in _INDEXES:
            raise UnsupportedStatementError(
                f"`{source.name}` has a global index ({kind}), whose row ids another table gives "
                "anew.",
                hint="CREATE TABLE … AS SELECT copies its rows.",
            )
        if partitions is None or GenericRowSerializer.to_bytes(entry.partition) in partitions:
            entries.append(entry)
    return tuple(entries)


def _check_schemas(source: Table, target: Table, files: pa.Table) -> None:
    """Raise InvalidTableError for files of a schema in which a column is missing, or has another
    name or type: the target reads all of them by its own schema, and finds columns by name."""
    schemas = TableSchemas(source.paimon)
    for schema_id in sorted(set(files["schema_id"].to_pylist())):
        stored = schemas.columns(schema_id)
        by_id = {column.id: column for column in stored}
        for column in target.schema.columns:
            if not _same(by_id.get(column.id), column):
                raise InvalidTableError(
                    f"Files of `{source.name}` lack the column `{column.name}`, or have it with "
                    f"another name or type (schema {schema_id}): they can't be copied as they are.",
                    hint=f"CREATE TABLE … AS SELECT * FROM `{source.name.table}` copies its rows.",
                )


def _relabelled(meta: Any, stored: Sequence[Column], target: Table) -> Any:
    """A file's metadata with the number of the target's schema, and bounds of columns of that."""
    columns = target.schema.columns
    meta = replace(meta, schema_id=int(target.paimon.table_schema.id))
    if [column.name for column in stored] == [column.name for column in columns]:
        return meta
    # The file has columns that the target lacks, so that its bounds may be of them.
    bounded = meta.value_stats_cols
    if bounded is not None and {*bounded} <= {column.name for column in columns}:
        return meta
    return replace(meta, value_stats=SimpleStats.empty_stats(), value_stats_cols=[])


# Copying, in a Spark task or in a thread.
#
# If the process dies, files stay that no snapshot names. The transaction's attempt noted their
# folders, and they are removed when it ends.


@dataclass(frozen=True)
class FileCopying:
    """Copies data files; picklable. `stem` begins the names of the copies."""

    access: FileAccess
    creation: FileCreation
    partitions: pa.Schema
    stem: str
    attempts_folder: str | None
    io_options: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return f"FileCopying({self.stem})"  # io_options may hold credentials

    def __call__(self, unit: CopyUnit, report: Report | None = None) -> CopiedFile:
        """Copy one file with those beside it. Raises OSError for the stores' failures, JobError
        when the transaction has ended."""
        written: list[str] = []
        folder = unit.path.rpartition("/")[0]
        old = unit.path.rpartition("/")[2]
        with attempt(self.attempts_folder, self.io_options) as running:
            running.note(partition_row(unit.partition, self.partitions), [unit.bucket])
            suffix = old.partition(".")[2]
            stem = f"{self.stem}{running.name_part}{unit.row}-{uuid.uuid4().hex[:8]}"
            name = f"{stem}.{suffix}" if suffix else stem
            extra = tuple(
                name + each.removeprefix(old) if each.startswith(old) else f"{stem}-{at}-{each}"
                for at, each in enumerate(unit.extra)
            )
            try:
                for before, after in zip((old, *unit.extra), (name, *extra), strict=True):
                    written.append(f"{unit.folder}/{after}")
                    _copy(self.access, self.creation, f"{folder}/{before}", written[-1])
                if report is not None:
                    report(unit.rows, unit.size_bytes)
                running.check_open()
            except BaseException:
                for path in written:
                    self.creation.delete(path)
                raise
        return unit.row, name, extra


@dataclass(frozen=True)
class CopyUnits:
    """Files divided among the tasks of a job: one after the other in each group."""

    copying: FileCopying
    groups: tuple[tuple[CopyUnit, ...], ...]

    @classmethod
    def of(cls, copying: FileCopying, units: Sequence[CopyUnit], slots: int) -> CopyUnits:
        """At most `slots` groups with about as much to copy."""
        return cls(copying, balanced(units, lambda unit: unit.size_bytes, slots))

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self.groups)

    def run(self, number: int, report: Report) -> list[CopiedFile]:
        """Copy the files of a group."""
        return [self.copying(unit, report) for unit in self.groups[number]]


def _creation(table: Table) -> FileCreation:
    return FileCreation(None if local_path(table.location) is not None else table.paimon.file_io)


def _copy(access: FileAccess, creation: FileCreation, path: str, new: str) -> None:
    with (
        contextlib.closing(access.open(path)) as stream,
        contextlib.closing(creation.open(new)) as sink,
    ):
        while chunk := stream.read(_CHUNK_BYTES):
            sink.write(chunk)
