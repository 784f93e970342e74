"""The files that a table has outside its folder (`data-file.external-paths`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pypaimon.schema.schema_manager import SchemaManager

from paimon_magics.errors import TableDamagedError
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.snapshots.changelogs import kept_changelogs
from paimon_magics.tables.snapshots.latest import usable_snapshots
from paimon_magics.tables.snapshots.tagged import tagged_snapshots
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.table import Table

__all__ = ["external_files"]

_MAIN = "main"
_OPTIONS = ("data-file.external-paths", "global-index.external-path")


def external_files(table: Table) -> list[str]:
    """The paths of all files outside the table's folder that its snapshots, tags and changelogs
    name, those of its branches too; [] where they can't be read. Nothing is read but schemas where
    no schema has such an option.

    (Paimon's `AbstractCatalog.dropTable` removes the folders that the option names, with what other
    tables have there.)
    """
    branches = [_MAIN, *(str(name) for name in table.paimon.branch_manager().branches())]
    if not any(_names_places(table, branch) for branch in branches):
        return []
    snapshots = list(kept_changelogs(table))
    for branch in branches:
        snapshots += usable_snapshots(table.paimon, table.store, branch)
        snapshots += tagged_snapshots(table, branch)
    manifests = ManifestCache(table.paimon)
    try:
        return sorted({local_path(path) or path for path in _of(manifests, snapshots)})
    except TableDamagedError:  # such a table can be dropped, too
        return []


def _names_places(table: Table, branch: str) -> bool:
    manager = SchemaManager(table.paimon.file_io, table.paimon.table_path, branch)
    latest = manager.latest()
    for schema_id in range(latest.id + 1 if latest is not None else 0):
        schema = manager.get_schema(schema_id)
        if schema is not None and any(schema.options.get(key) for key in _OPTIONS):
            return True
    return False


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
