"""Deletes the files that a transaction wrote and did not commit.

Attempts note the folders that they write in (module `attempts`), and names of files contain the
transaction's prefix and the attempt's id. So only these folders are listed. All folders of a table
are listed if tasks can't leave notes: in the remote store of a REST catalog, or if keys move
between partitions.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.commits.requests import Transaction, commit_user_of
from paimon_magics.tables.manifests.avro_columns import avro_columns
from paimon_magics.tables.manifests.live_files import ManifestCache, ManifestGoneError
from paimon_magics.tables.snapshots.latest import (
    earliest_snapshot_id,
    latest_snapshot,
    read_snapshot,
    stored_changelogs,
    usable_snapshots,
)
from paimon_magics.tables.snapshots.tagged import tagged_snapshots
from paimon_magics.tables.stores.corruption import parsing
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.table import Table, branch_names, publishes_itself
from paimon_magics.tables.writing.attempts import (
    attempt_of_file,
    attempts_stem,
    close_attempts,
    forget_attempts,
    noted_folders,
    running_attempts,
)
from paimon_magics.tables.writing.dynamic_buckets import INDEX_FOLDER
from paimon_magics.tables.writing.new_files import bucket_folder

_log = logging.getLogger(__name__)

_BUCKET_FOLDER = "bucket-"
_POLL_SECONDS = 0.02
_POLL_SECONDS_MAX = 0.5


def attempts_of(table: Table, prefix: str) -> str | None:
    """The stem of the notes of a transaction's attempts, None if its tasks can't leave notes.

    Only its catalog reaches the remote store of a REST catalog's table. A key that moves between
    partitions leaves a file in a folder that no task knows in advance.
    """
    if local_path(table.location) is None and publishes_itself(table):
        return None
    if table.schema.bucket_mode == "KEY_DYNAMIC":
        return None
    return attempts_stem(table.location, prefix)


LeftTo = Callable[[Callable[[], int]], object]
"""Has something be removed, now or later."""


def remove_uncommitted(
    table: Table,
    transaction: Transaction,
    keep: frozenset[str],
    wait_ms_max: int,
    since: int | None = None,
    left_to: LeftTo | None = None,
) -> int:
    """End a transaction and delete its files except those named in `keep`, with folders that become
    empty. Return the number of deleted files. What may be deleted is for `deletable` to decide,
    with this `since`; only a commit that just succeeded, with the files in `keep`, says so itself.
    `left_to` gets the removal of what other transactions have left, which may take long; None does
    it at once, and logs its failures.

    Waits up to `wait_ms_max` for tasks that were told to stop. A task that runs longer removes its
    files itself; if it dies, the end of a later transaction of this table removes them.
    """
    stem = transaction.attempts_folder
    if stem is None:
        time.sleep(wait_ms_max / 1000)
        return _delete_by_listing(table, transaction.file_prefix, keep, since)
    counted = {attempt_of_file(name, transaction.file_prefix) for name in keep}
    closed = close_attempts(table.store, stem, frozenset(id for id in counted if id))
    deleted = 0
    if closed.others:
        _wait(table, stem, closed.others, wait_ms_max)
        deleted += _remove(table, stem, closed.others, keep, since)
    if closed.left and left_to is not None:
        left_to(lambda: _remove_left(table, closed.left))
    elif closed.left:
        with failures_logged(table):
            deleted += _remove_left(table, closed.left)
    return deleted


def _remove_left(table: Table, left: Mapping[str, frozenset[str]]) -> int:
    """Delete the files that ended attempts of other transactions have left. What is wrong with
    those of one transaction keeps no others; it is raised at the end."""
    deleted = 0
    failed: Exception | None = None
    for stem, ids in left.items():
        try:
            deleted += _remove(table, stem, ids, frozenset())
        except Exception as error:
            failed = error
    if failed is not None:
        raise failed
    return deleted


def tidy_up(table: Table, transaction: Transaction) -> None:
    """End a transaction that no task has written for; failures are logged."""
    if transaction.attempts_folder is not None:
        with failures_logged(table):
            remove_uncommitted(table, transaction, frozenset(), 0, left_to=lambda _: None)


@contextlib.contextmanager
def failures_logged(table: Table) -> Iterator[None]:
    """Log any exception of a clean-up. What lies in a table's folder, which others may write,
    breaks no statement."""
    try:
        yield
    except Exception as error:
        is_expected = isinstance(error, PaimonMagicsError | OSError)
        _log.warning(
            "Files beside `%s` are not cleaned up, which a later statement tries again: %s",
            table.name,
            error,
            exc_info=None if is_expected else error,
        )


def _wait(table: Table, stem: str, ids: frozenset[str], wait_ms_max: int) -> None:
    deadline = time.monotonic() + wait_ms_max / 1000
    pause = _POLL_SECONDS
    while running_attempts(table.store, stem, ids) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(pause * 2, _POLL_SECONDS_MAX)


def _remove(
    table: Table, stem: str, ids: frozenset[str], keep: frozenset[str], since: int | None = None
) -> int:
    """Delete the files of attempts, and the notes of those that have ended."""
    store = table.store
    running = running_attempts(store, stem, ids)
    prefix = f"{stem.rpartition('/')[2]}-"
    files = {
        folder: [
            name
            for name in store.names(folder, prefix)
            if name not in keep and attempt_of_file(name, prefix) in ids
        ]
        for folder in _noted_places(table, stem, ids)
    }
    names = {name for in_folder in files.values() for name in in_folder}
    # A commit that kept some of its files knows them all.
    gone = names if keep else set(deletable(table, prefix, names, since))
    for folder, in_folder in files.items():
        table.paths.delete(f"{folder}/{name}" for name in in_folder if name in gone)
        for parent in _parents(folder, table.location):
            if not store.remove_if_empty(parent):
                break
    forget_attempts(store, stem, ids - running)
    return sum(name in gone for in_folder in files.values() for name in in_folder)


def _noted_places(table: Table, stem: str, ids: frozenset[str]) -> list[str]:
    """The paths of the folders that attempts have noted, inside the table's own folder."""
    places = set()
    for bucket, values in noted_folders(table.store, stem, ids):
        try:
            if bucket == INDEX_FOLDER:
                place = str(table.paimon.path_factory().index_path())
            else:
                place = bucket_folder(table.paimon, values, bucket)
        except Exception as error:  # values that are none of the table's partitions
            _log.warning("A note in %s names no folder of `%s`: %r", stem, table.name, error)
            continue
        if table.paths.allows(f"{place}/file"):
            places.add(place)
    return sorted(places)


def _parents(folder: str, location: str) -> Iterator[str]:
    """The folder and those above it, below the table's own folder."""
    root = (local_path(location) or location).rstrip("/")
    folder = local_path(folder) or folder
    while folder.startswith(f"{root}/"):
        yield folder
        folder = folder.rpartition("/")[0]


def _delete_by_listing(table: Table, prefix: str, keep: frozenset[str], since: int | None) -> int:
    files = [
        (path, name) for path, name in _listed(table, table.location, prefix) if name not in keep
    ]
    names = {name for _, name in files}
    gone = names if keep else set(deletable(table, prefix, names, since))
    paths = [path for path, name in files if name in gone]
    for path in paths:
        table.paimon.file_io.delete_quietly(path)
    return len(paths)


def _listed(table: Table, root: str, prefix: str) -> Iterator[tuple[str, str]]:
    """The paths and names of the files in bucket folders below one whose names have a prefix."""
    file_io = table.paimon.file_io
    for status in file_io.list_status(root):
        name = status.path.rstrip("/").rsplit("/", 1)[-1]
        path = f"{root.rstrip('/')}/{name}"
        if name.startswith(_BUCKET_FOLDER):
            for file in file_io.list_status(path):
                leaf = file.path.rsplit("/", 1)[-1]
                if leaf.startswith(prefix):
                    yield f"{path}/{leaf}", leaf
        elif "=" in name:
            yield from _listed(table, path, prefix)


# Which files may be deleted on behalf of a transaction that did not commit them.
#
# Whoever may add files to a table's folder can leave there what looks like a note of an attempt,
# and a client can bring any transaction's document. Neither says what may be deleted. So one rule
# decides: files whose names begin with the transaction's prefix, in the table's own folders, and
# none that a snapshot, tag, branch or changelog of the table has. Where that can't be read, nothing
# is deleted.

_NAMES = ("file_name", "extra_files")


def deletable(
    table: Table, prefix: str, names: Iterable[str], since: int | None = None
) -> list[str]:
    """Those of the names that may be deleted on behalf of the transaction with a prefix.

    `since` is a snapshot before which the transaction certainly had no files: the one that was the
    latest when this process opened it. None looks through everything that the table has. Raises
    TableDamagedError where something of it can't be read, and errors of the store.
    """
    wanted = sorted({name for name in names if name.startswith(prefix)})
    if not wanted:
        return []
    used = set(_used(table, prefix, since))
    return [name for name in wanted if name not in used]


def was_committed(table: Table, prefix: str) -> bool:
    """Whether a snapshot, tag, branch or changelog of the table tells that the transaction with a
    prefix was committed: by its commit user, or by its files among those that were there before.
    Raises as `deletable` does."""
    user = commit_user_of(prefix)
    chains, tags, changelogs = _states(table)
    every = [*(snapshot for chain in chains for snapshot in chain), *tags, *changelogs]
    if any(snapshot.commit_user == user for snapshot in every):
        return True
    manifests = ManifestCache(table.paimon)
    oldest = [*(chain[0] for chain in chains if chain), *tags]
    return any(_has_any(manifests, snapshot, prefix) for snapshot in oldest)


def _has_any(manifests: ManifestCache, snapshot: Any, prefix: str) -> bool:
    return any(True for _ in _of_state(manifests, snapshot, prefix))


def _states(table: Table) -> tuple[list[list[Any]], list[Any], list[Any]]:
    """The snapshots of each branch, oldest first; all tags; all changelogs."""
    branches = branch_names(table.paimon)
    chains = [usable_snapshots(table.paimon, table.store, name) for name in branches]
    tags = [tag for name in branches for tag in tagged_snapshots(table, name)]
    return chains, tags, [log for name in branches for log in stored_changelogs(table, name)]


def _used(table: Table, prefix: str, since: int | None) -> Iterator[str]:
    """The names of all files with a prefix that the table has anywhere."""
    manifests = ManifestCache(table.paimon)
    if since is not None:
        yield from _used_after(manifests, table, since, prefix)
        return
    chains, tags, changelogs = _states(table)
    for chain in chains:
        for oldest in chain[:1]:
            yield from _of_lists(manifests, [oldest.base_manifest_list], prefix)
        yield from _of_chain(manifests, chain, prefix)
    for tag in tags:
        yield from _of_state(manifests, tag, prefix)
        yield from _of_index(manifests, tag.index_manifest, prefix)
    for changelog in changelogs:
        for name in (changelog.delta_manifest_list, changelog.changelog_manifest_list):
            yield from _of_list_if_there(manifests, name, prefix)


def _used_after(manifests: ManifestCache, table: Table, since: int, prefix: str) -> list[str]:
    """The names of all files with a prefix in the snapshots after one. Those that an expiry has
    left below EARLIEST, or removes meanwhile, are passed over: until the transaction has ended,
    that expiry can't go on."""
    while True:
        first = earliest_snapshot_id(table.paimon, table.store) or 1
        try:
            return list(_of_chain(manifests, _after(table, max(since, first - 1)), prefix))
        except ManifestGoneError:
            if (earliest_snapshot_id(table.paimon, table.store) or 1) <= first:
                raise


def _after(table: Table, since: int) -> list[Any]:
    """The snapshots after one, newest first. One that has expired is skipped: what it added is
    still in use only where a later one is, and `find_commit` has looked through all of them."""
    latest = latest_snapshot(table.paimon)
    ids = range(0 if latest is None else latest.id, since, -1)
    snapshots = (read_snapshot(table.paimon, snapshot_id) for snapshot_id in ids)
    return [snapshot for snapshot in snapshots if snapshot is not None]


def _of_chain(manifests: ManifestCache, chain: Sequence[Any], prefix: str) -> Iterator[str]:
    """The names of files that the snapshots added, and of the indexes that they have."""
    for snapshot in chain:
        yield from _of_lists(manifests, [snapshot.delta_manifest_list], prefix)
        yield from _of_list_if_there(manifests, snapshot.changelog_manifest_list, prefix)
    for name in dict.fromkeys(snapshot.index_manifest for snapshot in chain):
        yield from _of_index(manifests, name, prefix)


def _of_state(manifests: ManifestCache, snapshot: Any, prefix: str) -> Iterator[str]:
    """The names of all files of a snapshot or tag, but for those of indexes."""
    lists = (snapshot.base_manifest_list, snapshot.delta_manifest_list)
    yield from _of_lists(manifests, lists, prefix)
    yield from _of_list_if_there(manifests, snapshot.changelog_manifest_list, prefix)


def _of_list_if_there(manifests: ManifestCache, name: str | None, prefix: str) -> Iterator[str]:
    """The names of the files of a list that may be gone: a changelog's went with its snapshot, and
    an expiry leaves tags and branches their rows, not their changelogs (`ExpireSnapshotsImpl`)."""
    with contextlib.suppress(ManifestGoneError):
        yield from _of_lists(manifests, [name], prefix)


def _of_lists(manifests: ManifestCache, lists: Iterable[str | None], prefix: str) -> Iterator[str]:
    entries = manifests.listed_entries(lists, _NAMES)
    names = pa.chunked_array(
        [
            *entries["file_name"].chunks,
            *(pc.list_flatten(c) for c in entries["extra_files"].chunks),
        ],
        pa.large_string(),
    )
    yield from names.filter(pc.starts_with(names, prefix)).to_pylist()


def _of_index(manifests: ManifestCache, name: str | None, prefix: str) -> Iterator[str]:
    if name:
        with parsing(f"The index manifest `{name}`"):
            files = avro_columns(manifests.read(name))["_FILE_NAME"].to_pylist()
        yield from (file for file in files if str(file).startswith(prefix))
