"""Deletes a tag and the files that only it refers to: Paimon's `TagDeletion`.

A tag keeps the files of its snapshot when that expires. When the tag is deleted, the files that are
in no other tag, snapshot or branch are removed: data files first, then manifests. This reads all
snapshots, tags and branches of the table; folders of data are never listed.

If the process dies after the tag's own file is removed, files that nothing refers to stay behind.
They do no harm. They also stay where a table is `write-only` or expired by its catalog, or keeps
changelogs for longer than snapshots, because changelogs refer to data files in ways of their own.
"""

from __future__ import annotations

import logging
from typing import Any

from paimon_magics.planning.commits.expiry import NO_FLOOR, ExpiryRules
from paimon_magics.tables.expiry.expire_snapshots import can_expire
from paimon_magics.tables.expiry.expired_files import ExpiredFiles
from paimon_magics.tables.expiry.protected_files import ProtectedFiles
from paimon_magics.tables.snapshots.latest import (
    earliest_snapshot_id,
    latest_snapshot,
    usable_snapshots,
)
from paimon_magics.tables.snapshots.tag_paths import tag_path
from paimon_magics.tables.snapshots.tagged import snapshot_of_tag
from paimon_magics.tables.table import Table

__all__ = ["remove_tag"]

_log = logging.getLogger(__name__)


def remove_tag(table: Table, name: str) -> bool:
    """Delete a tag and the files that only it refers to; return False if there was no such tag.

    While this runs nobody else may make a tag or a branch of the table, or roll it back. Files that
    can't be found or removed stay, with a warning in the log. Raises InvalidTableError for a name
    that no tag can have.
    """
    path = tag_path(table, name)
    content = table.store.read(path)
    if content is None:
        return False
    tagged = snapshot_of_tag(content)
    table.paths.delete([path])
    rules = ExpiryRules.of(table.schema) if can_expire(table) else None
    if rules is None or rules.keeps_changelogs:
        return True
    try:
        _remove_files(table, rules, tagged)
    except Exception as error:
        _log.warning("Files of the deleted tag %s of `%s` stay: %s", name, table.name, error)
    return True


def _remove_files(table: Table, rules: ExpiryRules, tagged: Any) -> None:
    paimon = table.paimon
    latest, earliest = latest_snapshot(paimon), earliest_snapshot_id(paimon, table.store)
    if latest is None or earliest is None or tagged.id >= earliest:
        return  # the snapshot is still there: expiry removes it
    kept = ProtectedFiles(table)
    if any(tag.id == tagged.id for tag in kept.tags):
        return
    chain = usable_snapshots(paimon, table.store)
    files = ExpiredFiles(table, rules, kept)
    data = files.of_data(tagged, kept.data_beside(tagged.id) | kept.data_of(chain))
    names = kept.metadata(0, NO_FLOOR, chain)
    metadata: dict[str, None] = {}
    for manifest_list in (tagged.base_manifest_list, tagged.delta_manifest_list):
        metadata |= files.of_list(manifest_list, names)
    metadata |= files.of_index(tagged, names)
    metadata |= files.of_statistics(tagged, names)
    files.remove(data)
    files.remove_empty_folders()
    files.remove(metadata)
