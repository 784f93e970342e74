"""Publishes a prepared snapshot: creates its file if that is absent, or asks a REST catalog.

The caller has synced all files that the snapshot names to disk before (`stores.syncing`).
"""

from __future__ import annotations

from typing import Protocol

from pypaimon.common.json_util import JSON

from paimon_magics.faults import reach
from paimon_magics.tables.commits.prepare import Prepared
from paimon_magics.tables.manifests.partition_statistics import partition_statistics
from paimon_magics.tables.snapshots.latest import write_hint
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.stores.store import Publish
from paimon_magics.tables.table import Table, publishes_itself

__all__ = [
    "Publisher",
    "publisher_for",
]


class Publisher(Protocol):
    """Publishes prepared snapshots of one table."""

    def publish(self, prepared: Prepared) -> bool:
        """Publish the snapshot; return False if it certainly was not published because another
        commit has its id.

        Raises one of our errors if it certainly was not published. After any other exception it is
        unknown whether it was.
        """


class _FilePublisher:
    def __init__(self, table: Table, publish: Publish) -> None:
        self._table = table.paimon
        self._store = table.store
        self._create = publish

    def publish(self, prepared: Prepared) -> bool:
        """See `Publisher`."""
        manager = self._table.snapshot_manager()
        snapshot = prepared.snapshot
        path = manager.get_snapshot_path(snapshot.id)
        reach("commit.prepared")
        content = JSON.to_json(snapshot, indent=2).encode()
        created = self._create(local_path(path) or path, content)
        if created:
            reach("publish.linked")
            write_hint(self._store, manager.latest_file, snapshot.id)
        return created


class _CatalogPublisher:
    def __init__(self, table: Table) -> None:
        self._table = table.paimon
        self._inner = table.paimon.catalog_environment.snapshot_commit(
            table.paimon.snapshot_manager()
        )

    def publish(self, prepared: Prepared) -> bool:
        """See `Publisher`."""
        statistics = partition_statistics(self._table, prepared.entries)
        return bool(self._inner.commit(prepared.base_uuid, prepared.snapshot, statistics))


def publisher_for(table: Table, publish: Publish) -> Publisher:
    """The publisher of the table's snapshots. `publish` creates their files unless the catalog
    publishes itself."""
    return _CatalogPublisher(table) if publishes_itself(table) else _FilePublisher(table, publish)
