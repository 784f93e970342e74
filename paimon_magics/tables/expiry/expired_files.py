"""Finds and removes the files of expired snapshots and changelogs, as Paimon's `FileDeletionBase`
does for both.

A missing manifest or manifest list was removed by an interrupted run. The files that it names were
removed before it, so it is skipped.

`ProtectedFiles` are the files that expiry must keep although the snapshots that it removes refer to
them: those of tags, of the table's other branches, and of the snapshot that becomes the earliest.
They are read only before removing a file that they might contain.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from pypaimon.manifest.index_manifest_file import IndexManifestFile
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.utils.file_store_path_factory import canonical_data_file_path

from paimon_magics.planning.commits.expiry import NO_FLOOR, ExpiryRules
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.manifests.names import (
    ADD,
    APPENDED,
    DELETE,
    manifest_folder,
    remove_metadata,
    token_of,
)
from paimon_magics.tables.snapshots.latest import stored_changelogs, usable_snapshots
from paimon_magics.tables.snapshots.tagged import tagged_snapshots
from paimon_magics.tables.stores.paths import local_path
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


class ExpiredFiles:
    """The files of one run of expiry; paths are as pypaimon writes them. `removed` counts those
    that were removed, which may have been gone before."""

    def __init__(self, table: Table, rules: ExpiryRules, protected: ProtectedFiles) -> None:
        self.rules = rules
        self._table = table
        self._paimon = table.paimon
        self._protected = protected
        self._lists = ManifestListManager(table.paimon)
        self._manifests = ManifestFileManager(table.paimon)
        self._folders: set[str] = set()
        self.removed = 0

    def deleted_in(self, snapshot: Any, *, keeps_appended: bool = False) -> list[str]:
        """The data files that a snapshot deleted, without those that a tag or branch has:
        `planDeletedInDeltaManifest`. `keeps_appended` skips files that no compaction wrote."""
        metas = self._read_list(snapshot.delta_manifest_list)
        if not any(meta.num_deleted_files for meta in metas):
            return []
        deleted: dict[str, Any] = {}
        paths = []
        for entry in self._entries(metas):
            path = self._path_of(entry, entry.file.file_name)
            if entry.kind == DELETE:
                deleted[path] = entry
                continue
            # A compaction that moves a file to another level, or a new index of it, deletes the
            # file and adds it.
            before = deleted.pop(path, None)
            if before is not None and not self._protected.has(data_file(before), snapshot.id):
                gone = set(before.file.extra_files or ()) - set(entry.file.extra_files or ())
                paths += [self._path_of(before, name) for name in sorted(gone)]
        for entry in deleted.values():
            if keeps_appended and entry.file.file_source in (None, APPENDED):
                continue
            if not self._protected.has(data_file(entry), snapshot.id):
                paths += self._paths_of(entry)
        return paths

    def of_data(self, snapshot: Any, needed: Collection[DataFile]) -> list[str]:
        """The data files of a snapshot, without those in `needed`."""
        lists = (snapshot.base_manifest_list, snapshot.delta_manifest_list)
        entries = self._entries([meta for name in lists for meta in self._read_list(name)])
        added: dict[DataFile, list[Any]] = {}
        deletions: Counter[tuple[DataFile, int]] = Counter()
        for entry in entries:
            if entry.kind == ADD:
                added.setdefault(data_file(entry), []).append(entry)
            else:
                deletions[data_file(entry), entry.file.level] += 1
        paths = []
        for file, adds in added.items():
            # A file that got another index was deleted and added again at its level.
            at = Counter(entry.file.level for entry in adds)
            live = [e for e in adds if at[e.file.level] > deletions[file, e.file.level]]
            for entry in [] if file in needed else live[-1:]:
                paths += self._paths_of(entry)
        return paths

    def of_changelog(self, snapshot: Any) -> list[str]:
        """The changelog files of a snapshot: `planAddedInChangelogManifest`."""
        if snapshot.changelog_manifest_list is None:
            return []
        entries = self._entries(self._read_list(snapshot.changelog_manifest_list))
        return [self._path_of(e, e.file.file_name) for e in entries if e.kind == ADD]

    def of_metadata(
        self, snapshot: Any, lists: Iterable[str | None], needed: Collection[str]
    ) -> list[str]:
        """The paths of a snapshot's index and statistics files, and of some of its manifest lists,
        without names in `needed`. A list comes after the manifests that it names."""
        paths = [path for name in lists if name for path in self.of_list(name, needed)]
        if snapshot.index_manifest is not None:
            paths += [
                self._index_path(entry)
                for entry in IndexManifestFile(self._paimon).read(snapshot.index_manifest)
                if entry.index_file.file_name not in needed
            ]
            if snapshot.index_manifest not in needed:
                paths.append(f"{manifest_folder(self._paimon)}/{snapshot.index_manifest}")
        if snapshot.statistics is not None and snapshot.statistics not in needed:
            folder = self._paimon.path_factory().statistics_path()
            paths.append(f"{folder}/{snapshot.statistics}")
        return paths

    def of_list(self, name: str, needed: Collection[str]) -> list[str]:
        """The paths of the manifests in a manifest list, then of the list itself, without names in
        `needed`."""
        folder = manifest_folder(self._paimon)
        names = [file for meta in self._read_list(name) for file in _files_of(meta)]
        return [f"{folder}/{file}" for file in [*names, name] if file not in needed]

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files, and remember their folders for `remove_empty_folders`."""
        gone = self._table.paths.delete(dict.fromkeys(paths))
        self.removed += len(gone)
        self._folders |= {path.rpartition("/")[0] for path in gone}

    def remove_empty_folders(self) -> None:
        """For `snapshot.clean-empty-directories`: remove the folders of buckets and partitions that
        became empty when files were removed."""
        root = (local_path(self._table.location) or self._table.location).rstrip("/")
        folders, self._folders = self._folders, set()
        if not self.rules.removes_empty_folders:
            return
        for folder in sorted(folders):
            parent = local_path(folder) or folder
            while parent.startswith(f"{root}/") and self._table.store.remove_if_empty(parent):
                parent = parent.rpartition("/")[0]

    def _read_list(self, name: str) -> list[Any]:
        with contextlib.suppress(FileNotFoundError):
            metas: list[Any] = self._lists.read(name)
            return metas
        return []

    def _entries(self, metas: Iterable[Any]) -> list[Any]:
        entries = []
        for meta in metas:
            with contextlib.suppress(FileNotFoundError):
                entries += self._manifests.read(meta.file_name)
        return entries

    def _paths_of(self, entry: Any) -> list[str]:
        """The paths of a data file and of the files beside it."""
        names = [entry.file.file_name, *(entry.file.extra_files or ())]
        return [self._path_of(entry, name) for name in names]

    def _path_of(self, entry: Any, name: str) -> str:
        if entry.file.external_path:
            return str(entry.file.aligned_file_path(name))
        values = tuple(entry.partition.values)
        return str(canonical_data_file_path(self._paimon, values, entry.bucket, name))

    def _index_path(self, entry: Any) -> str:
        factory, file = self._paimon.path_factory(), entry.index_file
        if file.global_index_meta is None:
            values = tuple(entry.partition.values)
            return str(factory.bucket_index_path(values, entry.bucket, file))
        inside = factory.global_index_path_factory().to_path(file.file_name)
        return str(file.external_path or inside)


class PlannedFiles(ExpiredFiles):
    """The files of an expiry on trial: none is removed. `paths` are those that would be."""

    def __init__(self, table: Table, rules: ExpiryRules, protected: ProtectedFiles) -> None:
        super().__init__(table, rules, protected)
        self.paths: list[str] = []

    def remove(self, paths: Iterable[str]) -> None:
        """Note the files."""
        self.paths += paths

    def remove_empty_folders(self) -> None:
        """Nothing became empty."""


# Removes the metadata of an overwritten snapshot: its manifests and manifest lists, which nothing
# refers to once its commit has been published again.
#
# Its data files were published again, and stay. If the process dies in between, the removal can be
# repeated.


def repetition_token(p: Publication, run: int) -> str:
    """The token of a run that publishes an overwritten commit again, for its metadata files."""
    return f"{p.id}-{p.snapshot_id}r{run}"


def remove_overwritten(catalog: Catalog, p: Publication, runs: int) -> int:
    """Remove the metadata of an overwritten snapshot and of the `runs` runs that published it
    again, without the files that anything in the table refers to; return the number of files.

    The caller ensures that no run can publish any more, and that no other process changes the
    table. Reads every snapshot, tag and branch. Raises UnknownNameError if the table is gone, and
    what the store raises.
    """
    table = catalog.load(replace(p.table, branch=None))
    tokens = [repetition_token(p, run) for run in range(1, runs + 1)]
    lists = [p.manifest_list, p.changelog_list, p.base_list]
    own = token_of(p.manifest_list)
    if own is not None and own.startswith(p.id):  # else a client's, which many commits may share
        tokens.append(own)
        lists = []
    snapshots = usable_snapshots(table.paimon, table.store)
    changelogs = stored_changelogs(table)
    protected_files = ProtectedFiles(table)
    manager = ManifestListManager(table.paimon)
    keep = protected_files.metadata(0, NO_FLOOR, snapshots, changelogs)
    leading = [*snapshots, *changelogs, *protected_files.tags, *protected_files.beside]
    keep |= _with_manifests(manager, (snapshot.changelog_manifest_list for snapshot in leading))
    removed = sum(remove_metadata(table.paimon, token, keep) for token in tokens)
    left = _with_manifests(manager, lists) - keep
    folder = manifest_folder(table.paimon)
    # A list is removed after the manifests that it names.
    ordered = sorted(left, key=lambda name: name in lists)
    table.paths.delete(f"{folder}/{name}" for name in ordered)
    return removed + len(left)


def _with_manifests(manager: Any, lists: Iterable[str | None]) -> set[str]:
    """The names of the manifest lists that exist, and of the manifests in them."""
    names: set[str] = set()
    for name in filter(None, lists):
        with contextlib.suppress(FileNotFoundError):  # removed, and its manifests before it
            names.update(*map(_files_of, manager.read(name)), [name])
    return names


def _files_of(meta: Any) -> list[str]:
    """The names of a manifest and of the files beside it."""
    return [meta.file_name, *(meta.extra_files or ())]
