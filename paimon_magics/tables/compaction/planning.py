"""Plans the compaction of a primary-key table on one snapshot, and divides it among tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.manifest.index_manifest_entry import IndexManifestEntry
from pypaimon.manifest.schema.manifest_entry import ManifestEntry
from pypaimon.table.row.generic_row import GenericRow
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.columnar.merging import KIND, SEQUENCE
from paimon_magics.columnar.row_filters import RecordExpiry
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.compaction.keyed_tables import Moment, PickOptions
from paimon_magics.planning.compaction.sort_orders import SortOrder
from paimon_magics.planning.compaction.steps import LookupRules, Rewrite
from paimon_magics.planning.options.changelog_producers import NO_CHANGELOG
from paimon_magics.planning.options.values import double_value, duration_ms
from paimon_magics.planning.reads.scans import OWN_PREFIXES
from paimon_magics.planning.reads.splits import Deletions, Section
from paimon_magics.planning.schemas.table_schema import TableSchema, column_list
from paimon_magics.planning.writes.file_rules import data_file_format
from paimon_magics.tables.compaction.merged_sections import ALL_KEYS, KeyBounds, section_cuts
from paimon_magics.tables.compaction.rewriting import RewriteSpec, RewriteTask
from paimon_magics.tables.compaction.units import BucketUnit, UnitRules, bucket_units
from paimon_magics.tables.manifests.column_statistics import column_bounds
from paimon_magics.tables.manifests.columns import columns_of_entries
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files, undeleted
from paimon_magics.tables.manifests.names import ADD, DELETE
from paimon_magics.tables.reading.data_files import FileReader
from paimon_magics.tables.reading.table_files import data_paths, files_reader
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.schema.merge_rule import merge_rule
from paimon_magics.tables.schema.types import arrow_type
from paimon_magics.tables.splits.stored_files import files_of_partitions
from paimon_magics.tables.stores.s3_access import io_options
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import BucketKey, bucket_key
from paimon_magics.tables.writing.deletion_vector_files import VectorIndex
from paimon_magics.tables.writing.key_value_files import changelog_files, level_files, target_bytes

_Part = tuple[tuple[Section, ...], KeyBounds, int]  # with the number of parts of a section

_DIVIDED = 1.5  # a section that is so many times as large as a task's part is divided
_RANGE_BYTES_MIN = 8 << 20  # a smaller range of keys costs more than another task saves


@dataclass(frozen=True, slots=True)
class CompactionScope:
    """What is compacted: all files of a bucket (`is_full`), or what a writer would pick.

    `partitions` (serialized) and `buckets` limit it. Rows that replaced all others in the snapshot
    `overwritten_snapshot` get no changelog, unless there are later snapshots. With `order` all rows
    of an append table are sorted. With `takes_all` a full compaction takes every file of a
    primary-key table, even without a benefit.
    """

    is_full: bool
    partitions: frozenset[bytes] | None = None
    buckets: frozenset[BucketKey] | None = None
    overwritten_snapshot: int | None = None
    order: SortOrder | None = None
    takes_all: bool = False
    picks_again: bool = False


@dataclass(frozen=True)
class CompactionPlan:
    """Which files of a snapshot are compacted at a `moment`. The positions in `units` are those of
    `files` (columns of MANIFEST_ENTRIES, and `path`). `written` are messages of the same commit
    that the plan follows. Its tasks are numbered from `first_task`."""

    table: Table
    snapshot_id: int
    files: pa.Table
    units: tuple[BucketUnit, ...]
    reader: FileReader
    lookups: LookupRules
    moment: Moment
    manifests: ManifestCache
    tells_changes: bool = True
    expiry: RecordExpiry | None = None
    written: tuple[CommitMessage, ...] = ()
    first_task: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compact."""
        return not self.units

    @property
    def rewritten_bytes(self) -> int:
        """The size of all files that are read and written again."""
        return sum(
            file.size_bytes
            for unit in self.units
            for rewrite in unit.rewrites
            for file in rewrite.files
        )

    @property
    def read_bytes(self) -> int:
        """The size of all files that are read, with files that rows are looked up in, and upgraded
        files whose rows are read for a changelog or for deletions."""
        return sum(self.unit_bytes())

    def unit_bytes(self) -> list[int]:
        """The size of all files that are read for each unit."""
        return [self._read_bytes(unit) for unit in self.units]

    def unit_keys(self) -> list[BucketKey]:
        """The partition, serialized, and bucket of each unit."""
        return [(unit.partition, unit.bucket) for unit in self.units]

    def only(self, places: Sequence[int]) -> CompactionPlan:
        """The plan of the units at these places."""
        return replace(self, units=tuple(self.units[at] for at in places))

    def _read_bytes(self, unit: BucketUnit) -> int:
        size_bytes = 0
        for step in (*unit.rewrites, *unit.reads):
            size_bytes += sum(file.size_bytes for file in step.files)
            if self.lookups.looks_up_in(step.files, unit.pick.output_level):
                above = [unit.looked_up(section) for section in unit.sections(step)]
                size_bytes += sum(f.size_bytes for runs in above for run in runs for f in run)
        return size_bytes

    def tasks(self, slots: int) -> list[RewriteTask]:
        """The rewrites of all units. A large rewrite is divided by sections and key ranges, so that
        `slots` tasks have about equal work."""
        part_bytes = max(self.rewritten_bytes // max(slots, 1), _RANGE_BYTES_MIN)
        keys = self.table.schema.trimmed_primary_keys
        tasks: list[RewriteTask] = []
        for unit in self.units:
            for rewrite in unit.rewrites:
                for part in self._parts(unit, rewrite, keys, part_bytes):
                    tasks.append(self._task(self.first_task + len(tasks), unit, rewrite, part))
            for read in unit.reads:
                part = (unit.sections(read), ALL_KEYS, 1)
                task = self._task(self.first_task + len(tasks), unit, read, part)
                tasks.append(replace(task, writes=False))
        return tasks

    def _task(self, number: int, unit: BucketUnit, rewrite: Rewrite, part: _Part) -> RewriteTask:
        sections, bounds, share = part
        level = unit.pick.output_level
        looks_up = self.lookups.looks_up_in(rewrite.files, level)
        drops = unit.drops_deletes if rewrite.drops_deletes is None else rewrite.drops_deletes
        tells = self.tells_changes and self.lookups.tells_changes_of(rewrite.files, level)
        return RewriteTask(
            number=number,
            partition=unit.partition,
            bucket=unit.bucket,
            folder=folder_of(self.table, self.files.slice(next(iter(unit.rows.values())), 1)),
            sections=sections,
            output_level=level,
            drops_deletes=drops,
            bounds=bounds,
            share=share,
            looks_up=looks_up,
            above=tuple(unit.looked_up(section) for section in sections) if looks_up else (),
            changelog=self.lookups.producer if tells else NO_CHANGELOG,
        )

    def spec(self, transaction: Transaction) -> RewriteSpec:
        """The specification for the tasks of this plan."""
        schema = self.table.schema
        levels = {unit.pick.output_level for unit in self.units if unit.rewrites or unit.reads}
        return RewriteSpec(
            files=self.reader,
            rule=merge_rule(schema),
            outputs={level: level_files(self.table, level) for level in levels},
            changelogs={level: changelog_files(self.table, level) for level in levels},
            partitions=partition_schema(schema),
            stems=(
                transaction.file_prefix + OWN_PREFIXES["data-file.prefix"],
                transaction.file_prefix + OWN_PREFIXES["changelog-file.prefix"],
            ),
            attempts_folder=transaction.attempts_folder,
            io_options=io_options(self.table.paimon),
            expiry=self.expiry,
            marks_deletions=schema.deletion_vectors_enabled,
            unchanged_columns=_unchanged_columns(schema),
        )

    def _parts(
        self, unit: BucketUnit, rewrite: Rewrite, keys: Sequence[str], part_bytes: int
    ) -> list[_Part]:
        """Sections that follow each other, or ranges of one section, of about `part_bytes`, with
        the number of ranges of the section."""
        parts: list[_Part] = []
        together: list[Section] = []
        size = 0
        for section in unit.sections(rewrite):
            own = sum(file.size_bytes for run in section for file in run)
            if own >= _DIVIDED * part_bytes:
                parts += [(tuple(together), ALL_KEYS, 1)] if together else []
                together, size = [], 0
                ranges = self._ranges(section, keys, round(own / part_bytes))
                parts += [((section,), bounds, len(ranges)) for bounds in ranges]
                continue
            together.append(section)
            size += own
            if size >= part_bytes:
                parts.append((tuple(together), ALL_KEYS, 1))
                together, size = [], 0
        return parts + ([(tuple(together), ALL_KEYS, 1)] if together else [])

    def _ranges(self, section: Section, keys: Sequence[str], count: int) -> list[KeyBounds]:
        reader = replace(
            self.reader,
            wanted=tuple(f for f in self.reader.wanted if f.name in keys),
            system=(),
        )
        ends = [None, *section_cuts(reader, keys, section, count), None]
        return [KeyBounds(first, end) for first, end in pairwise(ends)]


def plan_compaction(
    table: Table,
    snapshot: Any,
    scope: CompactionScope,
    moment: Moment,
    manifests: ManifestCache | None = None,
    written: Sequence[CommitMessage] = (),
) -> CompactionPlan:
    """Plan a compaction of `snapshot`, pypaimon's, on which `written` messages of a compaction come
    first. `manifests` is a cache of the table's manifests.

    Raises TableDamagedError for manifests that are missing or damaged, InvalidTableError for an
    option's value that can't be read.
    """
    schema = table.schema
    manifests = manifests or ManifestCache(table.paimon)
    files = files_of_scope(files_after(table, live_files(manifests, snapshot), written), scope)
    deletions = deletions_after(table, manifests.deletions(snapshot.index_manifest), written)
    paths = data_paths(table, files)
    expiry = record_expiry(schema, moment)
    rules = _rules(schema, scope, moment, pc.max(files["level"]).as_py() or 0)
    rules = replace(rules, may_expire=expired_files(table, expiry))
    files, units = bucket_units(files, paths, schema, deletions, rules)
    reader = files_reader(table, files, system=(SEQUENCE, KIND))
    return CompactionPlan(
        table,
        int(snapshot.id),
        files,
        tuple(units),
        reader,
        rules.lookups,
        moment,
        manifests,
        tells_changes=int(snapshot.id) != scope.overwritten_snapshot,
        expiry=expiry,
        written=tuple(written),
    )


def partition_schema(schema: TableSchema) -> pa.Schema:
    """The Arrow schema of the partition columns."""
    return pa.schema([(key, arrow_type(schema.column(key).type)) for key in schema.partition_keys])


def _rules(
    schema: TableSchema, scope: CompactionScope, moment: Moment, highest_level: int
) -> UnitRules:
    ratio = double_value(
        "compaction.small-file-ratio", schema.option("compaction.small-file-ratio") or "0"
    )
    picks = PickOptions.of(schema)
    if scope.takes_all:
        picks = replace(picks, rewrites_all_files=True)
    levels = range(max(picks.level_count, highest_level + 1))
    formats = [data_file_format(schema, level) for level in levels]
    return UnitRules(
        picks=picks,
        is_full=scope.is_full,
        moment=moment,
        min_size_bytes=int(target_bytes(schema) * ratio),
        lookups=LookupRules.of(schema, formats, picks.level_count - 1),
    )


def files_of_scope(files: pa.Table, scope: CompactionScope) -> pa.Table:
    """The files of the scope; files of postponed buckets belong to none."""
    in_scope = np.asarray(files["bucket"]) >= 0
    partitions, buckets = scope.partitions, scope.buckets
    if partitions is None and buckets is not None:
        partitions = frozenset(partition for partition, _ in buckets)
    if buckets is not None:
        in_scope &= np.isin(np.asarray(files["bucket"]), sorted({bucket for _, bucket in buckets}))
    files = files_of_partitions(files.filter(pa.array(in_scope)), partitions)
    if buckets is None:
        return files
    # An INSERT asks for few buckets of many: only theirs and few others' files are left here.
    columns = (files[name].to_pylist() for name in ("partition", "bucket"))
    chosen = [key in buckets for key in zip(*columns, strict=True)]
    return files.filter(pa.array(chosen, pa.bool_()))


def _unchanged_columns(schema: TableSchema) -> tuple[str, ...] | None:
    """The columns by which an update is one (`changelog-producer.row-deduplicate`)."""
    if not schema.flag("changelog-producer.row-deduplicate"):
        return None
    ignored = column_list(schema.stored_option("changelog-producer.row-deduplicate-ignore-fields"))
    return tuple(name for name in schema.column_names if name not in ignored)


def folder_of(table: Table, file: pa.Table) -> str:
    """The folder of the bucket of a file, wherever the file itself lies."""
    inside = file.set_column(
        file.schema.get_field_index("external_path"),
        "external_path",
        pc.cast(pa.nulls(file.num_rows), pa.large_string()),
    )
    return str(data_paths(table, inside)[0].as_py()).rpartition("/")[0]


# The expiry of a table's rows (`record-level.expire-time`), and the files that may hold such rows.
#
# Rows expire by compactions only, as in Paimon. Source: `RecordLevelExpire`.


def record_expiry(schema: TableSchema, moment: Moment) -> RecordExpiry | None:
    """Which rows have expired at a moment; None for a table whose rows don't. Raises
    InvalidTableError for an option's value that can't be read."""
    age = schema.stored_option("record-level.expire-time")
    field = schema.stored_option("record-level.time-field")
    if age is None or field is None:
        return None
    seconds = int(duration_ms("record-level.expire-time", age)) // 1000
    return RecordExpiry(field, moment.now_ms // 1000 - seconds)


def expired_files(
    table: Table, expiry: RecordExpiry | None
) -> Callable[[pa.Table], npt.NDArray[np.bool_]] | None:
    """Marks the files (columns of MANIFEST_ENTRIES) whose statistics allow expired rows. As in
    Paimon, a file without statistics of the time is not marked."""
    if expiry is None:
        return None
    column = table.schema.column(expiry.field)
    data_type = arrow_type(column.type)
    columns_of = TableSchemas(table.paimon).columns

    def marked(files: pa.Table) -> npt.NDArray[np.bool_]:
        least = [
            column_bounds(files.slice(row, 1), columns_of, [column])[column.name].least
            for row in range(files.num_rows)
        ]
        return expiry.too_old(pa.array(least, data_type))

    return marked


# The files of a snapshot after messages of a compaction that are not committed yet.


_FileKey = tuple[bytes, int, str]


def files_after(table: Table, files: pa.Table, written: Sequence[CommitMessage]) -> pa.Table:
    """The live `files` (MANIFEST_ENTRIES) after messages."""
    changed = [
        _entry(table, message, kind, file)
        for message in written
        for kind, some in ((DELETE, message.compact_before), (ADD, message.compact_after))
        for file in some
    ]
    if not changed:
        return files
    return undeleted(pa.concat_tables([files, columns_of_entries(changed)]))


def deletions_after(
    table: Table, deletions: Mapping[_FileKey, Deletions], written: Sequence[CommitMessage]
) -> Mapping[_FileKey, Deletions]:
    """The deletion vectors of data files after messages."""
    vectors = dict(deletions)
    for message in written:
        if not (message.compact_index_adds or message.compact_index_deletes):
            continue
        key = bucket_key(table, tuple(message.partition), message.bucket)
        vectors = {file: vector for file, vector in vectors.items() if file[:2] != key}
        for entry in message.compact_index_adds:
            path = _index_path(table, entry)
            for name, vector in (entry.index_file.dv_ranges or {}).items():
                vectors[(*key, name)] = Deletions(
                    path, vector.offset, vector.length, vector.cardinality
                )
    return vectors


def vectors_after(index: VectorIndex, written: Sequence[CommitMessage]) -> VectorIndex:
    """The index files of deletion vectors after messages."""
    entries = dict(index.entries)
    for message in written:
        if message.compact_index_adds or message.compact_index_deletes:
            entries[tuple(message.partition), message.bucket] = tuple(message.compact_index_adds)
    return VectorIndex(index.table, entries)


def _entry(table: Table, message: CommitMessage, kind: int, file: object) -> ManifestEntry:
    paimon = table.paimon
    partition = GenericRow(list(message.partition), paimon.partition_keys_fields)
    total = paimon.total_buckets if message.total_buckets is None else message.total_buckets
    return ManifestEntry(kind, partition, message.bucket, total, file)


def _index_path(table: Table, entry: IndexManifestEntry) -> str:
    values = tuple(entry.partition.values)
    factory = table.paimon.path_factory()
    return str(factory.bucket_index_path(values, entry.bucket, entry.index_file))
