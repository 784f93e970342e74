"""Finds whether a snapshot was built on a state that contains a commit.

A snapshot's base manifest list holds the state that it was built on, but no snapshot names its
predecessor. So if a snapshot's file was overwritten, data files have to be compared. They are read
only when something is wrong, or once for a snapshot that another writer put on top of ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from pypaimon.index.index_file_handler import IndexFileHandler
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager

from paimon_magics.tables.manifests.file_kinds import ADD
from paimon_magics.tables.snapshots.latest import earliest_snapshot_id, read_snapshot
from paimon_magics.tables.table import Table

__all__ = ["ChangedFiles", "Lineage"]


File = tuple[Any, ...]
"""Partition values, bucket and name of a data file."""


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """The changes of one snapshot: its manifest entries, the manifests that they are in, and the
    names of the index files that it added, where its request tells them."""

    entries: Sequence[Any]
    manifests: frozenset[str] = frozenset()
    indexes: frozenset[str] = frozenset()

    @property
    def added(self) -> frozenset[File]:
        """The files that the snapshot added to the table."""
        return frozenset(file for file, count in _counted(self.entries).items() if count > 0)

    @property
    def deleted(self) -> frozenset[File]:
        """The files that the snapshot removed from the table, without those that a compaction moved
        to another level: it deletes and adds these."""
        return frozenset(file for file, count in _counted(self.entries).items() if count < 0)


@dataclass(slots=True)
class Lineage:
    """The snapshots of one table; each manifest is read once while this lives."""

    table: Table
    _manifests: dict[str, Counter[File]] = field(default_factory=dict)

    def changed_by(self, manifest_list: str) -> ChangedFiles | None:
        """The changes in a delta manifest list; None if it or one of its manifests is gone."""
        paimon = self.table.paimon
        try:
            metas = ManifestListManager(paimon).read(manifest_list)
            reader = ManifestFileManager(paimon)
            entries = [e for m in metas for e in reader.read(m.file_name, drop_stats=False)]
        except FileNotFoundError:
            return None
        return ChangedFiles(entries, frozenset(meta.file_name for meta in metas))

    def rests_on(self, snapshot: Any, changed: ChangedFiles) -> bool:
        """Whether a snapshot was built directly on the snapshot with these changes."""
        base = {meta.file_name for meta in self._base(snapshot)}
        if changed.manifests and changed.manifests <= base:
            return True
        live = self._live(snapshot)
        return changed.added <= live and not changed.deleted & live

    def holds(self, changed_in: int, manifests: Collection[str]) -> bool:
        """Whether the earliest snapshot came after `changed_in` and was built on all `manifests`,
        those of that snapshot's changes. False does not say that the changes are missing: the
        manifests may have been merged with others."""
        earliest = earliest_snapshot_id(self.table.paimon, self.table.store)
        if not manifests or earliest is None or earliest <= changed_in:
            return False
        snapshot = read_snapshot(self.table.paimon, earliest)
        return snapshot is not None and set(manifests) <= {
            meta.file_name for meta in self._base(snapshot)
        }

    def leads_to(self, changed: ChangedFiles, changed_in: int, last: int) -> bool | None:
        """Whether the changes of the original snapshot `changed_in` are in snapshot `last`, or were
        removed from the table by a commit in between.

        None if that is unknown because snapshots or manifests are gone.
        """
        wanted, sure = changed.added, True
        for snapshot_id in range(changed_in + 1, last + 1):
            snapshot = read_snapshot(self.table.paimon, snapshot_id)
            if snapshot is None:
                sure = False
                continue
            if sure and snapshot_id == changed_in + 1:
                rests = self.rests_on(snapshot, changed)
            else:
                rests = bool(changed.added or sure) and wanted <= self._live(snapshot)
            if not rests:
                return False if sure else None
            sure = True
            delta = self.changed_by(snapshot.delta_manifest_list)
            if delta is None:
                return None
            wanted -= delta.deleted
        return sure or None

    def has_indexes(self, snapshot: Any, names: Collection[str]) -> bool:
        """Whether all index files of these names are in the table at a snapshot."""
        found = IndexFileHandler(self.table.paimon).scan(snapshot)
        return set(names) <= {entry.index_file.file_name for entry in found}

    def present(self, snapshot: Any, changed: ChangedFiles) -> frozenset[File]:
        """The added files of `changed` that are in the table at a snapshot."""
        counted = self._counted(snapshot)
        for meta in ManifestListManager(self.table.paimon).read_delta(snapshot):
            counted.update(self._read(meta.file_name))
        return frozenset(file for file in changed.added if counted[file] > 0)

    def _base(self, snapshot: Any) -> Sequence[Any]:
        metas: Sequence[Any] = ManifestListManager(self.table.paimon).read_base(snapshot)
        return metas

    def _live(self, snapshot: Any) -> frozenset[File]:
        return frozenset(file for file, count in self._counted(snapshot).items() if count > 0)

    def _counted(self, snapshot: Any) -> Counter[File]:
        counted: Counter[File] = Counter()
        for meta in self._base(snapshot):
            counted.update(self._read(meta.file_name))
        return counted

    def _read(self, name: str) -> Counter[File]:
        if name not in self._manifests:
            entries = ManifestFileManager(self.table.paimon).read(name, drop_stats=True)
            self._manifests[name] = _counted(entries)
        return self._manifests[name]


def _counted(entries: Sequence[Any]) -> Counter[File]:
    counted: Counter[File] = Counter()
    for entry in entries:
        counted[_file(entry)] += 1 if entry.kind == ADD else -1
    return counted


def _file(entry: Any) -> File:
    return (*map(repr, entry.partition.values), entry.bucket, entry.file.file_name)
