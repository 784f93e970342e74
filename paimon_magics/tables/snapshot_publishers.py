"""What a prepared snapshot is published through: a file created if absent, or a REST catalog.

pypaimon prepares a snapshot (manifests, lists) on top of the latest one and hands it over; when the
answer is that another commit took the id, it prepares anew. What a lost race prepared is removed,
and what a won one rests on is on the disk before its snapshot is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from typing import Any

from pypaimon.common.json_util import JSON
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.snapshot.snapshot_commit import SnapshotCommit

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.faults import reach
from paimon_magics.tables.catalog import Table
from paimon_magics.tables.locations import local_path
from paimon_magics.tables.stores import Store

__all__ = [
    "Publish",
    "Publisher",
    "Refused",
    "publisher_for",
    "publishes_itself",
    "sync_files",
    "write_hint",
]

Publish = Callable[[str, bytes], bool]
"""Create a file with content if it does not exist; False when it did, with certainty."""


class Refused(BaseException):
    """Ends a commit with `error`, certainly unpublished.

    Not an Exception: pypaimon would take one for an uncertain outcome, and try again.
    """

    def __init__(self, error: PaimonMagicsError) -> None:
        super().__init__(str(error))
        self.error = error


class Publisher(SnapshotCommit):  # type: ignore[misc]
    """Remembers what became of the snapshot.

    `published` is the snapshot that was, else None. `uncertain` tells that an attempt failed
    without a clear answer.
    """

    def __init__(self, table: Table, check_before: Callable[[int], None]) -> None:
        self.published: Any = None
        self.uncertain = False
        self._table = table.paimon
        self._check_before = check_before

    def close(self) -> None:
        """Nothing is held open between attempts."""

    def commit(self, base_uuid: str | None, snapshot: Any, statistics: Any) -> bool:
        """Publish `snapshot`; False when another commit has its id."""
        try:
            self._check_before(snapshot.id)
        except PaimonMagicsError as error:
            self._remove_prepared(snapshot)
            raise Refused(error) from error.__cause__
        created = self._publish(base_uuid, snapshot, statistics)
        if created:
            self.published = snapshot
        else:
            self._remove_prepared(snapshot)
        return created

    def _publish(self, base_uuid: str | None, snapshot: Any, statistics: Any) -> bool:
        raise NotImplementedError

    def _remove_prepared(self, snapshot: Any) -> None:
        """Delete the manifests of an attempt; its data files stay for the next one."""
        for path in self._prepared(snapshot):
            self._table.file_io.delete_quietly(path)

    def _prepared(self, snapshot: Any) -> list[str]:
        """The paths of the manifests and manifest lists that this snapshot alone refers to."""
        lists = ManifestListManager(self._table)
        folder = ManifestFileManager(self._table).manifest_path
        paths = [f"{lists.manifest_path}/{snapshot.base_manifest_list}"]
        for name in (snapshot.delta_manifest_list, snapshot.changelog_manifest_list):
            if name:
                paths += [f"{folder}/{meta.file_name}" for meta in lists.read(name)]
                paths.append(f"{lists.manifest_path}/{name}")
        return paths


class _FilePublisher(Publisher):
    def __init__(self, table: Table, check_before: Callable[[int], None], publish: Publish) -> None:
        super().__init__(table, check_before)
        self._create = publish
        self._store = table.store

    def _publish(self, base_uuid: str | None, snapshot: Any, statistics: Any) -> bool:
        manager = self._table.snapshot_manager()
        path = manager.get_snapshot_path(snapshot.id)
        try:
            sync_files(self._prepared(snapshot))
            reach("commit.prepared")
            content = JSON.to_json(snapshot, indent=2).encode()
            created = self._create(local_path(path) or path, content)
        except PaimonMagicsError as error:
            if self.uncertain:  # an earlier attempt may yet turn out to have succeeded
                raise OSError(str(error)) from error
            self._remove_prepared(snapshot)
            raise Refused(error) from error
        except BaseException:
            self.uncertain = True
            raise
        if created:
            write_hint(self._store, manager.latest_file, snapshot.id)
        return created


class _CatalogPublisher(Publisher):
    def __init__(self, table: Table, check_before: Callable[[int], None]) -> None:
        super().__init__(table, check_before)
        self._inner = self._table.catalog_environment.snapshot_commit(
            self._table.snapshot_manager()
        )

    def _publish(self, base_uuid: str | None, snapshot: Any, statistics: Any) -> bool:
        try:
            return bool(self._inner.commit(base_uuid, snapshot, statistics))
        except BaseException:
            self.uncertain = True
            raise


def publishes_itself(table: Table) -> bool:
    """Whether the table's catalog publishes snapshots (a REST catalog) rather than we."""
    return bool(table.paimon.catalog_environment.supports_version_management)


def publisher_for(
    table: Table, publish: Publish, *, check_before: Callable[[int], None]
) -> Publisher:
    """The publisher of the table's snapshots.

    `publish` creates files where the catalog does not publish itself. `check_before` is called
    with a snapshot's id before it is published, and raises an error of ours to refuse it.
    """
    if publishes_itself(table):
        return _CatalogPublisher(table, check_before)
    return _FilePublisher(table, check_before, publish)


def sync_files(paths: Iterable[str]) -> None:
    """Put files and their names on this machine's disks; files in other stores are there already.

    Raises FileNotFoundError for a local file that does not exist.
    """
    folders = set()
    for path in filter(None, map(local_path, paths)):
        _sync_path(path)
        folders.add(os.path.dirname(path))
    for folder in folders:
        _sync_path(folder)


def _sync_path(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_hint(store: Store, path: str, snapshot_id: int) -> None:
    """A LATEST or EARLIEST file: a hint only, readers that find it stale or missing list the
    folder."""
    with contextlib.suppress(OSError, PaimonMagicsError):
        store.write(path, str(snapshot_id).encode())
