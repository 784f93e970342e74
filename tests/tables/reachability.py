"""Every file of a table, beside all that its snapshots, tags and long-lived changelogs lead to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pypaimon.common.json_util import JSON
from pypaimon.manifest.index_manifest_file import IndexManifestFile
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.snapshot.snapshot import Snapshot
from pypaimon.utils.file_store_path_factory import canonical_data_file_path

from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.table import Table

_METADATA = ("snapshot", "schema", "tag", "changelog", "branch", "consumer")


def files(table: Table) -> set[str]:
    """The paths of all files of a table on a local disk, below its folder."""
    root = Path(table.location)
    while True:
        try:
            return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
        except FileNotFoundError:  # a folder was removed meanwhile
            continue


def unreachable(table: Table) -> set[str]:
    """The files that nothing leads to."""
    return files(table) - reachable(table)


def missing(table: Table) -> set[str]:
    """The files that something leads to, and that are not there."""
    return reachable(table) - files(table)


def reachable(table: Table) -> set[str]:
    """The paths of the files that something leads to; metadata that stands for itself included."""
    root = Path(table.location)
    result = {
        str(path.relative_to(root))
        for folder in _METADATA
        for path in (root / folder).rglob("*")
        if path.is_file() and not path.name.endswith(".tmp")
    }
    for snapshot, is_changelog in _snapshots(root):
        result |= _metadata_of(table, snapshot, is_changelog)
        result |= {str(Path(path).relative_to(root)) for path in _data_of(table, snapshot)}
    return result


def _snapshots(root: Path) -> list[tuple[Any, bool]]:
    result = []
    for pattern in ("snapshot/snapshot-*", "tag/tag-*", "changelog/changelog-*"):
        for path in [*root.glob(pattern), *root.glob(f"branch/*/{pattern}")]:
            document = json.loads(path.read_text())
            for key in ("tagCreateTime", "tagTimeRetained"):
                document.pop(key, None)
            snapshot = JSON.from_json(json.dumps(document), Snapshot)
            result.append((snapshot, pattern.startswith("changelog")))
    return result


def _lists(snapshot: Any) -> list[str]:
    return [
        name
        for name in (
            snapshot.base_manifest_list,
            snapshot.delta_manifest_list,
            snapshot.changelog_manifest_list,
        )
        if name
    ]


def _metadata_of(table: Table, snapshot: Any, is_changelog: bool) -> set[str]:
    """What a changelog no longer needs went with its snapshot."""
    lists = ManifestListManager(table.paimon)
    result = set()
    for name in _lists(snapshot):
        if is_changelog and not (Path(table.location) / "manifest" / name).exists():
            continue
        result |= {f"manifest/{name}"}
        result |= {f"manifest/{meta.file_name}" for meta in lists.read(name)}
    if is_changelog:
        return result
    if snapshot.index_manifest:
        result.add(f"manifest/{snapshot.index_manifest}")
        for entry in IndexManifestFile(table.paimon).read(snapshot.index_manifest):
            partition = tuple(entry.partition.values)
            path = table.paimon.path_factory().bucket_index_path(
                partition, entry.bucket, entry.index_file
            )
            result.add(str(Path(local_path(path) or path).relative_to(table.location)))
    if snapshot.statistics:
        result.add(f"statistics/{snapshot.statistics}")
    return result


def _data_of(table: Table, snapshot: Any) -> list[str]:
    paimon = table.paimon
    lists, manifests = ManifestListManager(paimon), ManifestFileManager(paimon)
    folder = Path(table.location) / "manifest"
    entries = []
    if (folder / snapshot.base_manifest_list).exists():
        entries += manifests.read_entries_parallel(lists.read_all(snapshot))
    if snapshot.changelog_manifest_list and (folder / snapshot.changelog_manifest_list).exists():
        entries += manifests.read_entries_parallel(lists.read_changelog(snapshot))
    return [
        canonical_data_file_path(paimon, tuple(entry.partition.values), entry.bucket, name)
        for entry in entries
        for name in [entry.file.file_name, *(entry.file.extra_files or [])]
    ]
