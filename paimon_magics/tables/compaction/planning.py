"""Plans the compaction of a primary-key table on one snapshot, and divides it among tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.utils.file_store_path_factory import canonical_data_file_path

from paimon_magics.columnar.merging import KIND, SEQUENCE
from paimon_magics.columnar.record_expiry import RecordExpiry
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.compaction.picks import Moment, PickOptions
from paimon_magics.planning.compaction.steps import Rewrite
from paimon_magics.planning.options.values import double_value, memory_size_bytes
from paimon_magics.planning.reads.float_bounds import MENDED_PREFIXES, floating_columns
from paimon_magics.planning.reads.splits import Section
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.planning.writes.file_rules import data_file_rules
from paimon_magics.planning.writes.index_rules import file_indexes_of
from paimon_magics.tables.compaction.key_ranges import ALL_KEYS, KeyBounds, section_cuts
from paimon_magics.tables.compaction.record_expiry import expired_files, record_expiry
from paimon_magics.tables.compaction.rewriting import RewriteSpec, RewriteTask
from paimon_magics.tables.compaction.units import BucketUnit, UnitRules, bucket_units
from paimon_magics.tables.manifests.file_paths import file_paths
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.pypaimon_internals import store_options
from paimon_magics.tables.reading.data_files import FileReader
from paimon_magics.tables.reading.table_files import own_store, whole_rows_reader
from paimon_magics.tables.schema.merge_options import merge_rule
from paimon_magics.tables.schema.types import arrow_schema, arrow_type
from paimon_magics.tables.splits.stored_files import schema_ids, stores_elsewhere
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.key_value_files import KeyValueFiles
from paimon_magics.tables.writing.new_file_sinks import FileCreation

__all__ = ["BucketKey", "CompactionPlan", "CompactionScope", "files_of_scope", "plan_compaction"]

BucketKey = tuple[bytes, int]
"""A serialised partition, and a bucket of it."""

_TARGET_BYTES = 128 << 20  # Paimon's default of target-file-size for tables with a primary key
_FIELD_ID = b"PARQUET:field_id"
_DIVIDED = 1.5  # a section that is so many times as large as a task's part is divided
_RANGE_BYTES_MIN = 8 << 20  # a smaller range of keys costs more than another task saves


@dataclass(frozen=True, slots=True)
class CompactionScope:
    """What is compacted: all files of a bucket (`is_full`), or what a writer would pick.

    `partitions` (serialised) and `buckets`, if given, are the only ones.
    """

    is_full: bool
    partitions: frozenset[bytes] | None = None
    buckets: frozenset[BucketKey] | None = None


@dataclass(frozen=True)
class CompactionPlan:
    """Which files of a snapshot are compacted. The positions in `units` are those of `files`
    (columns of MANIFEST_ENTRIES, and `path`)."""

    table: Table
    snapshot_id: int
    files: pa.Table
    units: tuple[BucketUnit, ...]
    reader: FileReader
    expiry: RecordExpiry | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compact."""
        return not self.units

    @property
    def rewritten_bytes(self) -> int:
        """The size of all files that are read and written again."""
        return sum(
            file.size_bytes for unit in self.units for one in unit.rewrites for file in one.files
        )

    def tasks(self, slots: int) -> list[RewriteTask]:
        """The rewrites of all units. A large one is divided by sections and ranges of keys, so that
        `slots` tasks have about as much to do."""
        part_bytes = max(self.rewritten_bytes // max(slots, 1), _RANGE_BYTES_MIN)
        keys = self.table.schema.trimmed_primary_keys
        tasks: list[RewriteTask] = []
        for unit in self.units:
            folder = self._folder(unit)
            for rewrite in unit.rewrites:
                for sections, bounds, share in self._parts(unit, rewrite, keys, part_bytes):
                    tasks.append(
                        RewriteTask(
                            number=len(tasks),
                            partition=unit.partition,
                            bucket=unit.bucket,
                            folder=folder,
                            sections=sections,
                            output_level=unit.pick.output_level,
                            drops_deletes=unit.drops_deletes,
                            bounds=bounds,
                            share=share,
                        )
                    )
        return tasks

    def spec(self, transaction: Transaction) -> RewriteSpec:
        """What the tasks of this plan must know."""
        schema = self.table.schema
        levels = {unit.pick.output_level for unit in self.units if unit.rewrites}
        paimon = self.table.paimon
        is_local = own_store(self.table) == "file"
        creation = FileCreation(None if is_local else paimon.file_io)
        return RewriteSpec(
            files=self.reader,
            rule=merge_rule(schema),
            outputs={level: _outputs(self.table, level, creation) for level in levels},
            partitions=pa.schema(
                [(key, arrow_type(schema.column(key).type)) for key in schema.partition_keys]
            ),
            stem=transaction.file_prefix + MENDED_PREFIXES["data-file.prefix"],
            attempts_folder=transaction.attempts_folder,
            io_options=tuple(sorted((store_options(paimon) or {}).items())),
            expiry=self.expiry,
        )

    def _parts(
        self, unit: BucketUnit, rewrite: Rewrite, keys: Sequence[str], part_bytes: int
    ) -> list[tuple[tuple[Section, ...], KeyBounds, int]]:
        """Sections that follow each other, or ranges of one section, of about `part_bytes`; and
        into how many ranges the section is divided."""
        parts: list[tuple[tuple[Section, ...], KeyBounds, int]] = []
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
            wanted=tuple(one for one in self.reader.wanted if one.name in keys),
            system=(),
        )
        ends = [None, *section_cuts(reader, keys, section, count), None]
        return [KeyBounds(first, end) for first, end in pairwise(ends)]

    def _folder(self, unit: BucketUnit) -> str:
        row = next(iter(unit.rows.values()))
        return _folder_of(self.table, self.files.slice(row, 1))


def plan_compaction(
    table: Table,
    snapshot: Any,
    scope: CompactionScope,
    moment: Moment,
    manifests: ManifestCache | None = None,
) -> CompactionPlan:
    """Plan a compaction of `snapshot`, pypaimon's. `manifests` is a cache of the table's manifests.

    Raises TableDamagedError for manifests that are missing or damaged, InvalidTableError for an
    option's value that can't be read.
    """
    schema = table.schema
    manifests = manifests or ManifestCache(table.paimon)
    files = files_of_scope(live_files(manifests, snapshot), scope)
    deletions = manifests.deletions(snapshot.index_manifest)
    paths = file_paths(files, _partition_types(schema), _first_bucket_folder(table))
    expiry = record_expiry(schema, moment)
    rules = replace(_rules(schema, scope, moment), may_expire=expired_files(table, expiry))
    files, units = bucket_units(files, paths, schema, deletions, rules)
    reader = whole_rows_reader(
        table, schema_ids(files), stores_elsewhere(files), system=(SEQUENCE, KIND)
    )
    return CompactionPlan(table, int(snapshot.id), files, tuple(units), reader, expiry)


def _rules(schema: TableSchema, scope: CompactionScope, moment: Moment) -> UnitRules:
    ratio = double_value(
        "compaction.small-file-ratio", schema.option("compaction.small-file-ratio") or "0"
    )
    return UnitRules(
        picks=PickOptions.of(schema),
        is_full=scope.is_full,
        moment=moment,
        min_size_bytes=int(_target_bytes(schema) * ratio),
        has_deletion_vectors=schema.deletion_vectors_enabled,
    )


def files_of_scope(files: pa.Table, scope: CompactionScope) -> pa.Table:
    """The files of the scope; files of postponed buckets belong to none."""
    kept = np.asarray(files["bucket"]) >= 0
    if scope.partitions is not None:
        wanted = pa.array(sorted(scope.partitions), pa.large_binary())
        kept &= np.asarray(pc.is_in(files["partition"].combine_chunks(), value_set=wanted))
    files = files.filter(pa.array(kept))
    if scope.buckets is None:
        return files
    columns = (files[name].to_pylist() for name in ("partition", "bucket"))
    chosen = [key in scope.buckets for key in zip(*columns, strict=True)]
    return files.filter(pa.array(chosen, pa.bool_()))


def _outputs(table: Table, level: int, creation: FileCreation) -> KeyValueFiles:
    schema = table.schema
    columns = [
        field.with_metadata({_FIELD_ID: str(column.id).encode()})
        for field, column in zip(arrow_schema(schema), schema.columns, strict=True)
    ]
    return KeyValueFiles(
        creation=creation,
        schema=pa.schema(columns).serialize().to_pybytes(),
        keys=schema.trimmed_primary_keys,
        floats=floating_columns(schema.columns),
        rules=data_file_rules(schema, level),
        target_bytes=_target_bytes(schema),
        schema_id=int(table.paimon.table_schema.id),
        level=level,
        indexes=file_indexes_of(schema),
    )


def _target_bytes(schema: TableSchema) -> int:
    text = schema.option("target-file-size")
    return _TARGET_BYTES if text is None else memory_size_bytes("target-file-size", text)


def _partition_types(schema: TableSchema) -> list[pa.DataType]:
    return [arrow_type(schema.column(key).type) for key in schema.partition_keys]


def _first_bucket_folder(table: Table) -> Callable[[tuple[Any, ...]], str]:
    return lambda partition: str(canonical_data_file_path(table.paimon, partition, 0, ""))


def _folder_of(table: Table, file: pa.Table) -> str:
    """The folder of the bucket of a file, wherever the file itself lies."""
    inside = file.set_column(
        file.schema.get_field_index("external_path"),
        "external_path",
        pc.cast(pa.nulls(file.num_rows), pa.large_string()),
    )
    path = file_paths(inside, _partition_types(table.schema), _first_bucket_folder(table))[0]
    return str(path.as_py()).rpartition("/")[0]
