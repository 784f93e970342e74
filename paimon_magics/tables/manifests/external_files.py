"""The files that a table has outside its folder (`data-file.external-paths`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from paimon_magics.errors import TableDamagedError
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.snapshots.changelogs import kept_changelogs
from paimon_magics.tables.snapshots.latest import usable_snapshots
from paimon_magics.tables.snapshots.tagged import tagged_snapshots
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.table import Table

__all__ = ["external_files"]

_MAIN = "main"


def external_files(table: Table) -> list[str]:
    """The paths of all files outside the table's folder that its snapshots, tags and changelogs
    name, those of its branches too; [] where they can't be read. Nothing is read but schemas where
    no folder outside is allowed.

    (Paimon's `AbstractCatalog.dropTable` removes the folders that the option names, with what other
    tables have there.)
    """
    if not table.paths.has_external_roots:
        return []
    branches = [_MAIN, *(str(name) for name in table.paimon.branch_manager().branches())]
    snapshots = list(kept_changelogs(table))
    for branch in branches:
        snapshots += usable_snapshots(table.paimon, table.store, branch)
        snapshots += tagged_snapshots(table, branch)
    manifests = ManifestCache(table.paimon)
    try:
        return sorted({local_path(path) or path for path in _of(manifests, snapshots)})
    except TableDamagedError:  # such a table can be dropped, too
        return []


def _of(manifests: ManifestCache, snapshots: list[Any]) -> Iterator[str]:
    lists = {
        name
        for one in snapshots
        for name in (one.base_manifest_list, one.delta_manifest_list, one.changelog_manifest_list)
    }
    yield from manifests.listed_entries(lists)["external_path"].drop_null().unique().to_pylist()
    for index_manifest in {one.index_manifest for one in snapshots}:
        for deletions in manifests.deletions(index_manifest).values():
            yield deletions.path
