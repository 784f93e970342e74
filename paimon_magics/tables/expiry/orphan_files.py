"""Finds and removes files in a table's folder that nothing refers to: Paimon's `OrphanFilesClean`.
Its end finds files that are referred to and gone.

Such files are left by writers that died. A file is an orphan if no snapshot, tag or changelog of
any branch has its name, if it was written before a given time, and if it is of no transaction that
is open or whose snapshot may still be published. Only Paimon's own folders are looked at: data
files in partitions and buckets, manifests, indexes, statistics, what lies among the snapshots
without being one, and notes of attempts that died. Files outside the table's folder stay.

The order protects files that are committed meanwhile. First it is noted which transactions are
open, while no commit is under way; then the names in use are read; then the folder is listed; and
before files are deleted, the names are read again where anything has changed. A file of a snapshot
whose expiry was cut short stays, too: the next expiry removes it.

Memory is bounded: of the names in use only 64-bit hashes are kept (a collision keeps an orphan),
and orphans are deleted some at a time. Nothing is deleted where metadata can't be read.

If the process dies, the next run removes the rest.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import CommitConflictError, TableDamagedError
from paimon_magics.faults import reach
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.tables.manifests.avro_columns import avro_columns
from paimon_magics.tables.manifests.live_files import ManifestCache, ManifestGoneError, live_files
from paimon_magics.tables.manifests.names import ADD
from paimon_magics.tables.manifests.partitions import partition_values
from paimon_magics.tables.reading.table_files import data_paths
from paimon_magics.tables.snapshots.latest import (
    latest_snapshot,
    remaining_snapshots,
    state_of,
    stored_changelogs,
    usable_snapshots,
)
from paimon_magics.tables.snapshots.tagged import tagged_snapshots
from paimon_magics.tables.stores.corruption import parsing
from paimon_magics.tables.stores.paths import FileStatus, local_path
from paimon_magics.tables.table import ATTEMPTS_FOLDER, MAIN_BRANCH, Table, branch_names
from paimon_magics.tables.writing.attempts import unsettled_prefixes
from paimon_magics.tables.writing.commit_messages import stored_metas, write_message

_log = logging.getLogger(__name__)

_FLAT = ("manifest", "index", "statistics")
_DOCUMENTS = {"snapshot": "snapshot-", "changelog": "changelog-"}
_HINTS = ("EARLIEST", "LATEST")
_BRANCHES = "branch"
_BUCKET = "bucket-"
_BLOBS = ".managed.blob"  # a pack of values that files of their own refer to
_HELD_MAX = 100_000
_NAMES_MAX = 1000
_TRIES = 3
_LIVE_MAX = 5_000_000
_CACHED_BYTES_MAX = 16 << 20
_Item = TypeVar("_Item")
_EMPTY: npt.NDArray[np.uint64] = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class Orphans:
    """How many files were removed, or are there, with their size in bytes. On a dry run `names` are
    the paths of the first of them, below the table's folder."""

    files: int = 0
    size_bytes: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Moment:
    """What is true of a table while no commit of it is under way: the prefixes of the names of
    files that may still be committed, and all snapshots, tags and changelogs.

    `states` are those whose metadata is complete, by their branch and file; `remains` those of
    changelogs and of an expiry that was cut short, of whose metadata some may be gone.
    """

    prefixes: tuple[str, ...]
    states: dict[str, Any]
    remains: dict[str, Any]


def moment_of(table: Table, prefixes: Iterable[str], published: Iterable[Publication]) -> Moment:
    """What is true of a table now. While this runs, nobody may commit to the table, expire its
    snapshots or change its tags and branches. `prefixes` are those that a coordinator knows, and
    `published` commits may have to be published again; prefixes of transactions that have noted
    themselves beside the table are added."""
    states: dict[str, Any] = {}
    remains: dict[str, Any] = {}
    for branch in branch_names(table.paimon):
        for dead in remaining_snapshots(table.paimon, table.store, branch):
            remains[f"{branch}/dead/{dead.id}/{dead.delta_manifest_list}"] = dead
        chain = usable_snapshots(table.paimon, table.store, branch)
        # The first one of a branch is a copy, like a tag.
        own, copies = (chain, []) if branch == MAIN_BRANCH else (chain[1:], chain[:1])
        states |= {f"{branch}/{each.id}/{each.delta_manifest_list}": each for each in own}
        for each in (*copies, *tagged_snapshots(table, branch)):
            key = f"{branch}/{each.id}/{each.delta_manifest_list}"
            if key not in states:
                # An expiry leaves a copy its rows, not its changelog: `ExpireSnapshotsImpl`.
                states[key] = _Lists.of(each, changelog_manifest_list=None)
                remains[f"{branch}/copy/{key}"] = _Lists.of(each, base_manifest_list=None)
        for log in stored_changelogs(table, branch):
            remains[f"{branch}/log/{log.id}/{log.delta_manifest_list}"] = log
    for p in published:
        lists = _Lists(p.base_list, p.manifest_list, p.changelog_list)
        remains[f"published/{p.id}/{p.manifest_list}"] = lists
    noted = unsettled_prefixes(table.store, table.location)
    return Moment(tuple({*prefixes, *noted}), states, remains)


@dataclass(frozen=True, slots=True)
class _Lists:
    """What a snapshot refers to, or a part of that. Its number does not matter: it is 0."""

    base_manifest_list: str | None
    delta_manifest_list: str
    changelog_manifest_list: str | None
    index_manifest: str | None = None
    statistics: str | None = None
    id: int = 0

    @classmethod
    def of(cls, snapshot: Any, **changes: None) -> _Lists:
        """What a snapshot refers to, but for `changes`."""
        names = [each.name for each in fields(cls) if each.name != "id"]
        return cls(**{name: getattr(snapshot, name) for name in names} | changes)


def remove_orphans(
    table: Table,
    before_ms: int,
    moment: Callable[[], Moment],
    *,
    dry_run: bool,
    may_continue: Callable[[], None] = lambda: None,
) -> Orphans:
    """Remove a table's orphans that were written before `before_ms` (epoch milliseconds), or with
    `dry_run` only count them. `moment` returns `moment_of` the table, in peace.

    `may_continue` raises where nothing may be deleted any more. Raises TableDamagedError where
    metadata can't be read, CommitConflictError where others keep removing it meanwhile: then
    nothing more is deleted.
    """
    used = _UsedNames(table, moment)
    deleting = _Deleting(table, dry_run=dry_run)
    for some in _batched(_orphans(table, used, before_ms), _HELD_MAX):
        left = used.not_in_use(some)
        may_continue()
        deleting.delete(left)
    deleting.remove_folders(before_ms)
    return Orphans(deleting.files, deleting.size_bytes, tuple(deleting.names))


def files_without(
    table: Table, kept_from: int, before_ms: int, moment: Callable[[], Moment]
) -> Orphans:
    """The files of a table that are of no snapshot from the id `kept_from` on, if its rows were
    removed, and its tags and branches; snapshots' own files are among them. `before_ms` and
    `moment` as in `remove_orphans`. The manifests of the latest snapshot stay for the next one."""

    def remaining() -> Moment:
        now = moment()
        main = {k: s for k, s in now.states.items() if k.startswith(f"{MAIN_BRANCH}/")}
        states = {key: s for key, s in main.items() if s.id >= kept_from}
        published = {k: s for k, s in now.remains.items() if k.startswith("published/")}
        return Moment(now.prefixes, states, published)

    gone = remove_orphans(table, before_ms, remaining, dry_run=True)
    latest = latest_snapshot(table.paimon)
    if latest is None:
        return gone
    manager = table.paimon.snapshot_manager()
    ids = {each.id for key, each in moment().states.items() if key.startswith(f"{MAIN_BRANCH}/")}
    documents = [manager.get_snapshot_path(id) for id in ids if id < kept_from]
    documents += [f"{table.location}/changelog/changelog-{c.id}" for c in stored_changelogs(table)]
    own = sizes_of(table, documents)
    if latest.id >= kept_from:
        return Orphans(gone.files + own.files, gone.size_bytes + own.size_bytes)
    cache = ManifestCache(table.paimon, _CACHED_BYTES_MAX)
    manifests: list[str] = []
    for name in filter(None, (latest.base_manifest_list, latest.delta_manifest_list)):
        manifests += avro_columns(cache.read(name))["_FILE_NAME"].to_pylist()
    stay = sizes_of(table, {f"{table.location}/manifest/{name}" for name in manifests})
    return Orphans(
        gone.files + own.files - stay.files, gone.size_bytes + own.size_bytes - stay.size_bytes
    )


def sizes_of(table: Table, paths: Iterable[str]) -> Orphans:
    """How many of the files at these paths there are, with their sizes in bytes."""
    names: dict[str, set[str]] = {}
    for path in paths:
        folder, _, name = (local_path(path) or path).rpartition("/")
        names.setdefault(folder, set()).add(name)
    sizes = [
        file.size_bytes
        for folder, wanted in names.items()
        for page in table.store.statuses_below(folder)
        for file in page
        if file.size_bytes is not None and file.path in wanted
    ]
    return Orphans(len(sizes), sum(sizes))


def _orphans(table: Table, used: _UsedNames, before_ms: int) -> Iterator[FileStatus]:
    """The files of the table that are old enough and that nothing was seen to use."""
    keys = len(table.schema.partition_keys)
    for page in _pages(table):
        old = [f for f in page if f.modified_ms < before_ms and _is_paimons(f, keys)]
        yield from used.unknown(old)


def _pages(table: Table) -> Iterator[list[FileStatus]]:
    """All files below the table's folder, in larger groups: most folders have few."""
    group: list[FileStatus] = []
    for page in table.store.statuses_below(table.location):
        group += page
        if len(group) >= 10_000:
            yield group
            group = []
    if group:
        yield group


def _is_paimons(file: FileStatus, keys: int) -> bool:
    """Whether a file, or an empty folder, lies where Paimon puts what snapshots refer to."""
    *folders, name = file.path.split("/")
    if file.size_bytes is None:
        return _is_data_folder([*folders, name], keys)
    if name.endswith(_BLOBS):
        return False
    if len(folders) == 1 and folders[0] in (*_FLAT, ATTEMPTS_FOLDER):
        return True
    if folders[:1] == [_BRANCHES] and len(folders) == 3:
        folders = folders[2:]
    if len(folders) == 1 and folders[0] in _DOCUMENTS:
        return name not in _HINTS and not name.startswith(_DOCUMENTS[folders[0]])
    return len(folders) == keys + 1 and _is_data_folder(folders, keys)


def _name(file: FileStatus) -> str:
    """A file's name; of a note of an attempt, one with the prefix of its files."""
    folder, _, name = file.path.rpartition("/")
    return name.replace(".", "-", 1) if folder == ATTEMPTS_FOLDER else name


def _is_data_folder(folders: Sequence[str], keys: int) -> bool:
    """Whether folders are those of a partition, or of a bucket in it."""
    *partition, last = folders
    if len(folders) == keys + 1:
        return last.startswith(_BUCKET) and all("=" in part for part in partition)
    return 0 < len(folders) <= keys and all("=" in part for part in folders)


class _UsedNames:
    """The names of files that a table uses, or may still use."""

    def __init__(self, table: Table, moment: Callable[[], Moment]) -> None:
        self._table = table
        self._moment = moment
        self._known: set[str] = set()
        self._hashes = _EMPTY
        self._prefixes: tuple[str, ...] = ()
        self._update()

    def unknown(self, files: Sequence[FileStatus]) -> list[FileStatus]:
        """Those of the files whose names were not in use when it was looked last. An empty folder
        is never in use."""
        if not files:
            return []
        names = [_name(file) for file in files]
        is_used = _contains(self._hashes, _hashes(pl.Series(names, dtype=pl.String)))
        prefixes = self._prefixes
        return [
            file
            for file, name, known in zip(files, names, is_used, strict=True)
            if file.size_bytes is None or not (known or name.startswith(prefixes))
        ]

    def not_in_use(self, files: Sequence[FileStatus]) -> list[FileStatus]:
        """Those of the files that are not in use now."""
        self._update()
        return self.unknown(files)

    def _update(self) -> None:
        """Read what has come since the last time. A file that another engine's expiry removes
        meanwhile is a reason to look again."""
        for _ in range(_TRIES):
            moment = self._moment()
            try:
                self._add(moment)
                return
            except ManifestGoneError as error:
                gone = error
        if all(key in self._moment().states for key in moment.states):
            raise TableDamagedError(
                f"{gone.message} A snapshot or tag of `{self._table.name}` needs it, so which "
                "files are in use is unknown.",
                hint="Nothing more was deleted. If an expiry of another engine was cut short, run "
                "it again; else restore the file, or delete the tag.",
            ) from gone
        raise CommitConflictError(
            f"Snapshots of `{self._table.name}` expire while it is cleaned: {gone.message}",
            hint="Nothing more was deleted. Run the statement again when that is over.",
        ) from gone

    def _add(self, moment: Moment) -> None:
        cache = ManifestCache(self._table.paimon, _CACHED_BYTES_MAX)
        hashes = [self._hashes]
        for key, snapshot in (moment.states | moment.remains).items():
            if key not in self._known:
                names = _metadata_names(cache, snapshot, is_whole=key in moment.states)
                hashes.append(_hashes(pl.Series(names, dtype=pl.String)))
        hashes += self._data(cache, moment)
        self._hashes = np.unique(np.concatenate(hashes))
        # Prefixes are only added: a transaction that ends meanwhile has committed, or not.
        self._prefixes = tuple({*self._prefixes, *moment.prefixes})
        self._known |= moment.states.keys() | moment.remains.keys()

    def _data(self, cache: ManifestCache, moment: Moment) -> Iterator[npt.NDArray[np.uint64]]:
        """Hashes of the names of data files. Of consecutive snapshots those that are added follow
        the live files of the first."""
        before = ("", 0)
        for key, snapshot in moment.states.items():
            branch = key.partition("/")[0]
            follows = (branch, snapshot.id - 1) == before
            before = branch, snapshot.id
            if key in self._known:
                continue
            lists = [snapshot.changelog_manifest_list]
            if follows:
                yield _added(cache, [snapshot.delta_manifest_list, *lists])
                continue
            yield _live(cache, snapshot)
            yield _added(cache, lists)
        for key, snapshot in moment.remains.items():
            if key not in self._known:
                for name in (
                    snapshot.base_manifest_list,
                    snapshot.delta_manifest_list,
                    snapshot.changelog_manifest_list,
                ):
                    with contextlib.suppress(ManifestGoneError):
                        yield _added(cache, [name])


def _live(cache: ManifestCache, snapshot: Any) -> npt.NDArray[np.uint64]:
    """Hashes of the names of a snapshot's files. Of very many, those of deleted files are among
    them."""
    names = ("file_name", "extra_files")
    if cache.count_entries(snapshot) > _LIVE_MAX:
        return _added(cache, [snapshot.base_manifest_list, snapshot.delta_manifest_list])
    return _hashes_of(live_files(cache, snapshot, names))


def _added(cache: ManifestCache, lists: Iterable[str | None]) -> npt.NDArray[np.uint64]:
    """Hashes of the names of the files that the manifests of some lists add."""
    manifests = [
        name
        for each in lists
        if each
        for name in cache.columns.files(each).column("file_name").to_pylist()
    ]
    parts = [_EMPTY]
    for name in manifests:
        entries = cache.columns.entries([name], ("kind", "file_name", "extra_files"))
        parts.append(_hashes_of(entries.filter(pc.equal(entries["kind"], ADD))))
    return np.unique(np.concatenate(parts))


def _hashes_of(entries: pa.Table) -> npt.NDArray[np.uint64]:
    beside = pl.Series(_texts(entries, "extra_files"), dtype=pl.String)
    return np.concatenate([_hashes(pl.from_arrow(entries["file_name"])), _hashes(beside)])


def _metadata_names(cache: ManifestCache, snapshot: Any, *, is_whole: bool) -> list[str]:
    """The names of the manifest lists, manifests, index files and statistics of a snapshot, with
    those of the files beside them. Where it is not whole, what is gone is left out."""
    names: list[str] = []
    for name in (
        snapshot.base_manifest_list,
        snapshot.delta_manifest_list,
        snapshot.changelog_manifest_list,
    ):
        if name:
            names.append(name)
            with _gone_if(not is_whole), parsing(f"The manifest list `{name}`"):
                listed = avro_columns(cache.read(name))
                names += listed["_FILE_NAME"].to_pylist()
                names += _texts(listed, "_EXTRA_FILES")
    if snapshot.index_manifest:
        names.append(snapshot.index_manifest)
        name = snapshot.index_manifest
        with _gone_if(not is_whole), parsing(f"The index manifest `{name}`"):
            names += avro_columns(cache.read(name))["_FILE_NAME"].to_pylist()
    if snapshot.statistics:
        names.append(snapshot.statistics)
    return names


def _gone_if(may_be_gone: bool) -> contextlib.AbstractContextManager[None]:
    if may_be_gone:
        return contextlib.suppress(ManifestGoneError)
    return contextlib.nullcontext()


def _texts(table: pa.Table, column: str) -> list[str]:
    """The texts in a column of lists of texts; [] if there is no such column."""
    if column not in table.column_names:
        return []
    lists = table[column].combine_chunks()
    return list(filter(None, pc.list_flatten(lists).to_pylist())) if len(lists) else []


def _batched(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    """The items in lists of a size; the last may be shorter."""
    batch: list[_Item] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _hashes(names: Any) -> npt.NDArray[np.uint64]:
    return np.asarray(names.cast(pl.String).hash().to_numpy(), np.uint64)


def _contains(
    ordered: npt.NDArray[np.uint64], wanted: npt.NDArray[np.uint64]
) -> npt.NDArray[np.bool_]:
    """Whether each of the wanted hashes is among the ordered ones."""
    at = np.searchsorted(ordered, wanted)
    at[at == len(ordered)] = 0
    if not len(ordered):
        return np.zeros(len(wanted), np.bool_)
    is_there: npt.NDArray[np.bool_] = ordered[at] == wanted
    return is_there


class _Deleting:
    """Deletes files and empty folders of a table, and counts the files."""

    def __init__(self, table: Table, *, dry_run: bool) -> None:
        self._table = table
        self._root = (local_path(table.location) or table.location).rstrip("/")
        self._dry_run = dry_run
        self._folders: set[str] = set()
        self.files = 0
        self.size_bytes = 0
        self.names: list[str] = []

    def delete(self, orphans: Sequence[FileStatus]) -> None:
        """Delete files; empty folders are kept for `remove_folders`."""
        allowed = []
        for orphan in orphans:
            path = f"{self._root}/{orphan.path}"
            if orphan.size_bytes is None:
                self._folders.add(path)
            elif self._table.paths.allows(path):
                allowed.append(path)
                self.files += 1
                self.size_bytes += orphan.size_bytes
                if self._dry_run and len(self.names) < _NAMES_MAX:
                    self.names.append(orphan.path)
        if self._dry_run or not allowed:
            return
        self._table.paths.delete(allowed)
        reach("orphans.deleted")
        self._folders |= {
            folder
            for folder in (path.rpartition("/")[0] for path in allowed)
            if folder.rpartition("/")[2].startswith(_BUCKET)
        }

    def remove_folders(self, before_ms: int) -> None:
        """Remove the folders of buckets and partitions that are empty."""
        if self._dry_run:
            return
        for folder in sorted(self._folders, reverse=True):
            while folder.startswith(f"{self._root}/") and self._table.store.remove_if_empty(folder):
                folder = folder.rpartition("/")[0]


# The reverse: data files that a table's latest snapshot has, but its store lacks: Paimon's
# `ListUnexistingFiles`. Folders are listed, so that no file is asked for.


@dataclass(frozen=True)
class UnexistingFiles:
    """The entries (MANIFEST_ENTRIES) and paths of the files that are gone, and the `state_of` the
    snapshot that has them."""

    files: pa.Table
    paths: list[str]
    base: tuple[int, str]

    def messages(self, table: Table) -> tuple[bytes, ...]:
        """The messages of a commit that takes the files out of the table."""
        partitions, of_files = partition_values(table.paimon, self.files)
        totals = self.files["total_buckets"].to_pylist()
        buckets = self.files["bucket"].to_pylist()
        has_buckets = table.schema.bucket_mode != "BUCKET_UNAWARE"
        by_bucket: dict[tuple[Any, int], CommitMessage] = {}
        for at, bucket, total, meta in zip(
            of_files, buckets, totals, stored_metas(table.paimon, self.files), strict=True
        ):
            home = partitions[int(at)], bucket
            known = max(total, 0) or None if has_buckets else None
            message = by_bucket.setdefault(home, CommitMessage(*home, [], total_buckets=known))
            message.deleted_files.append(meta)
        return tuple(write_message(table.paimon, message) for message in by_bucket.values())


def unexisting_files(table: Table) -> UnexistingFiles | None:
    """The files of the latest snapshot that are gone; None for a table without snapshots. Raises
    what the store raises."""
    snapshot = latest_snapshot(table.paimon)
    if snapshot is None:
        return None
    files = live_files(ManifestCache(table.paimon), snapshot)
    paths = [local_path(path) or path for path in data_paths(table, files).to_pylist()]
    folders = dict.fromkeys(path.rpartition("/")[0] for path in paths)
    there = {f"{folder}/{name}" for folder in folders for name in table.store.names(folder)}
    gone = [at for at, path in enumerate(paths) if path not in there]
    chosen = files.take(pa.array(gone, pa.int64()))
    return UnexistingFiles(chosen, [paths[at] for at in gone], state_of(snapshot))
