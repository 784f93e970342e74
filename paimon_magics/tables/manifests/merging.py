"""Merging a table's manifests, so that a snapshot has few of them after any number of commits.

The rules are Paimon's (`ManifestFileMerger`), with the options

- `manifest.target-file-size`: neighboring manifests are merged until they reach this size,
- `manifest.merge-min-count`: the last ones, which do not reach it, only if they are this many,
- `manifest.full-compaction-threshold-size`: once small manifests and manifests with deletions
  have this size together, every deletion is carried out, in large manifests as well.

An entry that adds a file and one that deletes it cancel each other. Only neighbors are merged, in
their order, so an entry never moves past an entry that it depends on.

`manifest-sort.enabled` changes how Paimon's Java library arranges entries. No reader relies on
that; here entries keep their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.manifest.schema.manifest_file_meta import ManifestFileMeta
from pypaimon.table.row.generic_row import GenericRowDeserializer

from paimon_magics.planning.options.values import integer_value, memory_size_bytes
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.tables.manifests.names import ADD, MetadataNames
from paimon_magics.tables.manifests.writing import (
    ManifestReader,
    ManifestWriter,
    Record,
    widest_schema,
)
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.table import Table

_FileKey = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class MergeRules:
    """When manifests are merged, and how large the merged ones are."""

    target_bytes: int
    count_min: int
    full_bytes_min: int

    @classmethod
    def of(cls, schema: TableSchema) -> MergeRules:
        """The rules of a table, from its options."""
        return cls(
            target_bytes=_bytes(schema, "manifest.target-file-size"),
            count_min=integer_value(
                "manifest.merge-min-count", schema.option("manifest.merge-min-count") or ""
            ),
            full_bytes_min=_bytes(schema, "manifest.full-compaction-threshold-size"),
        )

    def for_all(self, target_bytes: int | None = None) -> MergeRules:
        """The rules by which all manifests are merged that can be, whatever their number and size,
        with another target size if one is given: `FileStoreCommitImpl.compactManifestOnce`."""
        target = self.target_bytes if target_bytes is None else target_bytes
        return MergeRules(target, count_min=1, full_bytes_min=1)

    def must_change(self, meta: ManifestFileMeta) -> bool:
        """Whether a full merge rewrites the manifest in any case: it is small or has deletions."""
        return bool(meta.num_deleted_files > 0 or meta.file_size < self.target_bytes)


@dataclass(frozen=True, slots=True)
class ManifestCounts:
    """How many manifests a table has, and how many a merge would rewrite: manifests with deletions,
    and manifests smaller than `target_bytes`."""

    files: int
    size_bytes: int
    deletions: int
    with_deletions: int
    small: int
    target_bytes: int


def counted_manifests(table: Table, target_bytes: int | None = None) -> ManifestCounts:
    """The manifests of a table's latest snapshot; `target_bytes` as in `MergeRules.for_all`."""
    target = MergeRules.of(table.schema).for_all(target_bytes).target_bytes
    latest = latest_snapshot(table.paimon)
    metas = [] if latest is None else ManifestListManager(table.paimon).read_all(latest)
    return ManifestCounts(
        files=len(metas),
        size_bytes=sum(int(meta.file_size) for meta in metas),
        deletions=sum(int(meta.num_deleted_files) for meta in metas),
        with_deletions=sum(meta.num_deleted_files > 0 for meta in metas),
        small=sum(meta.file_size < target for meta in metas),
        target_bytes=target,
    )


def merge_manifests(
    paimon: Any, metas: Sequence[ManifestFileMeta], rules: MergeRules, names: MetadataNames
) -> list[ManifestFileMeta]:
    """Merge manifests where the rules ask for it; return the manifests that replace `metas`, in
    order. New manifests take their names from `names`."""
    small_bytes = sum(meta.file_size for meta in metas if rules.must_change(meta))
    if small_bytes >= rules.full_bytes_min:
        merged = _merge_fully(paimon, metas, rules, names)
        if merged is not None:
            return merged
    result: list[ManifestFileMeta] = []
    for group in _groups(metas, rules):
        result += _merge_group(paimon, group, rules, names) if len(group) > 1 else group
    return result


def _groups(
    metas: Sequence[ManifestFileMeta], rules: MergeRules
) -> Iterator[Sequence[ManifestFileMeta]]:
    """Groups of neighbors to merge, in order; a group of one stays: `tryMinorCompaction`."""
    group: list[ManifestFileMeta] = []
    size_bytes = 0
    for meta in metas:
        group.append(meta)
        size_bytes += meta.file_size
        if size_bytes >= rules.target_bytes:
            yield group
            group, size_bytes = [], 0
    if len(group) >= rules.count_min:
        yield group
    else:
        yield from ([meta] for meta in group)


def _merge_group(
    paimon: Any, metas: Sequence[ManifestFileMeta], rules: MergeRules, names: MetadataNames
) -> list[ManifestFileMeta]:
    """Merge neighbors, or return them unchanged if no schema can hold the entries of all.

    A deletion stays if a manifest before these adds its file: `mergeCandidates`.
    """
    readers = [ManifestReader(paimon, meta) for meta in metas]
    schema = widest_schema(reader.schema for reader in readers)
    if schema is None:
        return list(metas)
    deletions = _Deletions(paimon, _deleted(readers))
    writer = ManifestWriter(paimon, names, rules.target_bytes, schema)
    for reader in readers:
        if deletions.concern(reader.meta):
            writer.add_records(filter(deletions.leaves, reader.records()))
        else:
            writer.copy(reader)
    return writer.close()


def _merge_fully(
    paimon: Any, metas: Sequence[ManifestFileMeta], rules: MergeRules, names: MetadataNames
) -> list[ManifestFileMeta] | None:
    """Carry out every deletion; None if there is nothing to merge: `tryFullCompaction`.

    As in Paimon, unchanged manifests come first.
    """
    deleting = (ManifestReader(paimon, meta) for meta in metas if meta.num_deleted_files > 0)
    deletions = _Deletions(paimon, _deleted(deleting))
    chosen = [meta for meta in metas if rules.must_change(meta) or deletions.concern(meta)]
    schema = widest_schema(ManifestReader(paimon, meta).schema for meta in chosen)
    if len(chosen) <= 1 or schema is None:
        return None
    names_chosen = {meta.file_name for meta in chosen}
    unchanged = [meta for meta in metas if meta.file_name not in names_chosen]
    writer = ManifestWriter(paimon, names, rules.target_bytes, schema)
    for meta in chosen:
        reader = ManifestReader(paimon, meta)
        if not deletions.concern(meta):
            writer.copy(reader)
            continue
        records = list(reader.records())
        left = [r for r in records if r["_KIND"] == ADD and not deletions.delete(r)]
        if len(left) == len(records) and not rules.must_change(meta):
            unchanged.append(meta)
        else:
            writer.add_records(left)
    return unchanged + writer.close()


class _Deletions:
    """The files that some manifests delete, and the entries that cancel each other."""

    def __init__(self, paimon: Any, deleted: set[_FileKey]) -> None:
        self._deleted = deleted
        self._added: set[_FileKey] = set()
        self._passed: set[_FileKey] = set()
        fields = paimon.partition_keys_fields
        self._partitions = [
            tuple(GenericRowDeserializer.from_bytes(encoded, fields).values)
            for encoded in {key[0] for key in deleted}
        ]

    def concern(self, meta: ManifestFileMeta) -> bool:
        """Whether the manifest deletes files, or may add a deleted file."""
        return bool(self._deleted) and (
            meta.num_deleted_files > 0
            or any(may_hold(meta, partition) for partition in self._partitions)
        )

    def delete(self, record: Record) -> bool:
        """Whether the entry's file is deleted."""
        return _key(record) in self._deleted

    def leaves(self, record: Record) -> bool:
        """Whether the entry stays. Call it once for each entry, in their order."""
        key = _key(record)
        if key not in self._deleted:
            return True
        if record["_KIND"] == ADD:
            if key in self._passed:  # deleted by an earlier entry, and added again
                return True
            self._added.add(key)
            return False
        if key in self._added:
            self._added.remove(key)
            return False
        self._passed.add(key)
        return True


def _deleted(readers: Iterable[ManifestReader]) -> set[_FileKey]:
    """The files that the manifests delete."""
    return {
        _key(record)
        for reader in readers
        if reader.meta.num_deleted_files > 0
        for record in reader.records()
        if record["_KIND"] != ADD
    }


def _key(record: Record) -> _FileKey:
    """The identity of an entry's file: Paimon's `FileEntry.Identifier`."""
    file = record["_FILE"]
    return (
        record["_PARTITION"],
        record["_BUCKET"],
        file["_LEVEL"],
        file["_FILE_NAME"],
        tuple(file.get("_EXTRA_FILES") or ()),
        file.get("_EMBEDDED_FILE_INDEX"),
        file.get("_EXTERNAL_PATH"),
    )


def may_hold(meta: ManifestFileMeta, partition: tuple[Any, ...]) -> bool:
    """Whether the manifest may have entries of a partition, by its statistics."""
    statistics = meta.partition_stats
    for position, value in enumerate(partition):
        least = statistics.min_values.get_field(position)
        greatest = statistics.max_values.get_field(position)
        if value is None:
            if statistics.null_counts and statistics.null_counts[position] == 0:
                return False
        elif least is not None and not least <= value <= greatest:
            return False
    return True


def _bytes(schema: TableSchema, key: str) -> int:
    return memory_size_bytes(key, schema.option(key) or "")
