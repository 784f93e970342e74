"""Changelogs that are kept after their snapshots have expired (Paimon's `ChangelogManager`).

A changelog file is the snapshot's file under another name.
"""

from __future__ import annotations

import json
from typing import Any

from paimon_magics.tables.snapshots.latest import snapshot_of
from paimon_magics.tables.table import StoredTable, Table

__all__ = ["changelog_folder", "kept_as_changelog", "kept_changelogs", "read_changelog"]


def kept_changelogs(table: Table | StoredTable) -> list[Any]:
    """All stored changelogs, oldest first, as pypaimon's Snapshots."""
    names = table.store.names(changelog_folder(table), "changelog-")
    ids = sorted(int(name[10:]) for name in names if name[10:].isdigit())
    found = (read_changelog(table, changelog_id) for changelog_id in ids)
    return [changelog for changelog in found if changelog is not None]


def kept_as_changelog(table: Table, snapshot_id: int, manifest_list: str) -> bool:
    """Whether the changelog of this snapshot is kept, and has `manifest_list` as its delta."""
    changelog = read_changelog(table, snapshot_id)
    return changelog is not None and changelog.delta_manifest_list == manifest_list


def changelog_folder(table: Table | StoredTable) -> str:
    """The folder of a table's changelogs."""
    snapshots = str(table.paimon.snapshot_manager().snapshot_dir)
    return f"{snapshots.rpartition('/')[0]}/changelog"


def read_changelog(table: Table | StoredTable, changelog_id: int) -> Any:
    """A changelog as pypaimon's Snapshot; None if there is none."""
    content = table.store.read(f"{changelog_folder(table)}/changelog-{changelog_id}")
    return None if content is None else snapshot_of(json.loads(content))
