"""Finds the files that expiry must keep although the snapshots that it removes refer to them: those
of tags, of the table's other branches, and of the snapshot that becomes the earliest.

They are read only if a file that they might have is to be removed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from pypaimon.manifest.index_manifest_file import IndexManifestFile
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager

from paimon_magics.tables.manifests.names import ADD
from paimon_magics.tables.snapshots.latest import usable_snapshots
from paimon_magics.tables.snapshots.tagged import tagged_snapshots
from paimon_magics.tables.table import MAIN_BRANCH, Table, branch_names

DataFile = tuple[tuple[Any, ...], int, str]
"""A data file by its partition's values, its bucket and its name."""


def data_file(entry: Any) -> DataFile:
    """The data file of a manifest entry."""
    return tuple(entry.partition.values), entry.bucket, entry.file.file_name


class ProtectedFiles:
    """The files that the tags and the other branches of a table or branch keep.

    Tags and branches are those at the time when this is made; later ones can only be of snapshots
    that stay. `tags` are the table's own, oldest first; `beside` are the snapshots and tags of the
    other branches, the main branch among them if the table is a branch.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._lists = ManifestListManager(table.paimon)
        self._manifests = ManifestFileManager(table.paimon)
        own = table.name.branch or MAIN_BRANCH
        self.tags = tagged_snapshots(table, own)
        branches = [name for name in branch_names(table.paimon) if name != own]
        self._branches = [usable_snapshots(table.paimon, table.store, name) for name in branches]
        self._branch_tags = [tag for name in branches for tag in tagged_snapshots(table, name)]
        self.beside = [*chain.from_iterable(self._branches), *self._branch_tags]
        self._of_tags: dict[int, frozenset[DataFile]] = {}
        self._of_branches: frozenset[DataFile] | None = None

    def has(self, file: DataFile, deleted_in: int) -> bool:
        """Whether a tag or another branch has a data file that snapshot `deleted_in` deleted.

        Only the last tag before the deletion is read: a file that an earlier tag has is in it too.
        """
        before = [tag for tag in self.tags if tag.id < deleted_in]
        return file in self._branched() or (bool(before) and file in self._tagged(before[-1]))

    def data_beside(self, snapshot_id: int) -> frozenset[DataFile]:
        """The data files of other branches and of the two tags next to a snapshot without a tag.
        Of this snapshot's files they contain all that any tag has."""
        before = [tag for tag in self.tags if tag.id < snapshot_id][-1:]
        after = [tag for tag in self.tags if tag.id > snapshot_id][:1]
        return self._branched().union(*(self._tagged(tag) for tag in [*before, *after]))

    def data_of(self, snapshots: Sequence[Any]) -> set[DataFile]:
        """All data files that any of these consecutive snapshots has: those of the first, and those
        that later ones added."""
        live = map(self._live, snapshots[:1])
        return set().union(*live, *map(self._added, snapshots[1:]))

    def metadata(
        self, begin: int, end: int, others: Iterable[Any], changelogs: Iterable[Any] = ()
    ) -> set[str]:
        """The names of the manifests, manifest lists, index and statistics files that the expiry of
        snapshots or changelogs from `begin` to before `end` must keep: those of tags, of other
        branches, of the snapshots `others`, and what is left of `changelogs`."""
        earlier = [tag for tag in self.tags if tag.id <= begin][-1:]
        between = [tag for tag in self.tags if begin < tag.id < end]
        names: set[str] = set()
        for snapshot in [*earlier, *between, *self.beside, *others]:
            names |= self._metadata_of(snapshot)
        for changelog in changelogs:
            for name in (changelog.base_manifest_list, changelog.delta_manifest_list):
                with contextlib.suppress(FileNotFoundError):  # removed with its snapshot
                    names |= {name, *(meta.file_name for meta in self._lists.read(name))}
        return names

    def _tagged(self, tag: Any) -> frozenset[DataFile]:
        if tag.id not in self._of_tags:
            self._of_tags[tag.id] = frozenset(self._live(tag))
        return self._of_tags[tag.id]

    def _branched(self) -> frozenset[DataFile]:
        """All data files of any snapshot or tag of another branch."""
        if self._of_branches is None:
            of_tags = map(self._live, self._branch_tags)
            self._of_branches = frozenset().union(*of_tags, *map(self.data_of, self._branches))
        return self._of_branches

    def _live(self, snapshot: Any) -> set[DataFile]:
        metas = self._lists.read_all(snapshot)
        return {data_file(entry) for entry in self._manifests.read_entries_parallel(metas)}

    def _added(self, snapshot: Any) -> set[DataFile]:
        return {
            data_file(entry)
            for meta in self._lists.read_delta(snapshot)
            for entry in self._manifests.read(meta.file_name)
            if entry.kind == ADD
        }

    def _metadata_of(self, snapshot: Any) -> set[str]:
        names = {snapshot.base_manifest_list, snapshot.delta_manifest_list}
        names |= {meta.file_name for meta in self._lists.read_all(snapshot)}
        if snapshot.index_manifest is not None:
            names.add(snapshot.index_manifest)
            index = IndexManifestFile(self._table.paimon).read(snapshot.index_manifest)
            names |= {entry.index_file.file_name for entry in index}
        if snapshot.statistics is not None:
            names.add(snapshot.statistics)
        return names
