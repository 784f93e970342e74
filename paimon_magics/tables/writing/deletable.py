"""Which files may be deleted on behalf of a transaction that did not commit them.

Whoever may add files to a table's folder can leave there what looks like a note of an attempt, and
a client can bring any transaction's document. Neither says what may be deleted. So one rule decides
here: files whose names begin with the transaction's prefix, in the table's own folders, and none
that a snapshot, tag, branch or changelog of the table has. Where that can't be read, nothing is
deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.planning.commits.requests import commit_user_of
from paimon_magics.tables.manifests.avro_columns import avro_columns
from paimon_magics.tables.manifests.live_files import ManifestCache, ManifestGoneError
from paimon_magics.tables.snapshots.latest import (
    latest_snapshot,
    read_snapshot,
    stored_changelogs,
    usable_snapshots,
)
from paimon_magics.tables.snapshots.tagged import tagged_snapshots
from paimon_magics.tables.table import Table, branch_names

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
    return any(True for _ in _of_lists(manifests, _all_lists(snapshot), prefix))


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
        yield from _of_chain(manifests, _after(table, since), prefix)
        return
    chains, tags, changelogs = _states(table)
    for chain in chains:
        for oldest in chain[:1]:
            yield from _of_lists(manifests, _all_lists(oldest), prefix)
        yield from _of_chain(manifests, chain, prefix)
    for tag in tags:
        yield from _of_lists(manifests, _all_lists(tag), prefix)
        yield from _of_index(manifests, tag.index_manifest, prefix)
    for changelog in changelogs:
        for name in (changelog.delta_manifest_list, changelog.changelog_manifest_list):
            with contextlib.suppress(ManifestGoneError):  # it went with its snapshot
                yield from _of_lists(manifests, [name], prefix)


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
        lists = (snapshot.delta_manifest_list, snapshot.changelog_manifest_list)
        yield from _of_lists(manifests, lists, prefix)
    for name in dict.fromkeys(snapshot.index_manifest for snapshot in chain):
        yield from _of_index(manifests, name, prefix)


def _all_lists(snapshot: Any) -> Sequence[str | None]:
    lists = (snapshot.base_manifest_list, snapshot.delta_manifest_list)
    return (*lists, snapshot.changelog_manifest_list)


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
        files = avro_columns(manifests.read(name))["_FILE_NAME"].to_pylist()
        yield from (file for file in files if str(file).startswith(prefix))
