"""Changelogs that outlive their snapshots: kept when a snapshot expires, and expired later by
options of their own (`changelog.num-retained.*`, `changelog.time-retained`): Paimon's
`ChangelogManager` and `ExpireChangelogImpl`.

A changelog is the snapshot's file, under another name. Hints and order of removal are as for
snapshots (module `expiring`).
"""

from __future__ import annotations

from typing import Any

from pypaimon.common.json_util import JSON
from pypaimon.snapshot.snapshot import Snapshot

from paimon_magics.faults import reach
from paimon_magics.planning.expiry import NO_FLOOR, ExpiryRules, changelogs_end
from paimon_magics.tables.catalog.catalog import Table
from paimon_magics.tables.commits.publishers import write_hint
from paimon_magics.tables.expiry.expired_files import ExpiredFiles
from paimon_magics.tables.expiry.protected_files import KeptFiles
from paimon_magics.tables.snapshots.latest import latest_snapshot, read_snapshot

__all__ = ["expire_changelogs", "keep_changelog", "kept_as_changelog", "kept_changelogs"]


def keep_changelog(table: Table, snapshot: Any) -> None:
    """Keep the changes of a snapshot that is going to be removed."""
    folder = _folder(table)
    content = table.store.read(table.paimon.snapshot_manager().get_snapshot_path(snapshot.id))
    if content is not None:
        table.store.create(f"{folder}/changelog-{snapshot.id}", content)
        write_hint(table.store, f"{folder}/LATEST", snapshot.id)
        reach("expiry.changelog_kept")


def kept_changelogs(table: Table) -> list[Any]:
    """All changelogs that are stored, the oldest first."""
    names = table.store.names(_folder(table), "changelog-")
    ids = sorted(int(name[10:]) for name in names if name[10:].isdigit())
    found = (_read(table, changelog_id) for changelog_id in ids)
    return [changelog for changelog in found if changelog is not None]


def kept_as_changelog(table: Table, snapshot_id: int, manifest_list: str) -> bool:
    """Whether the snapshot whose own changes are in `manifest_list` has expired, and its changelog
    is kept."""
    changelog = _read(table, snapshot_id)
    return changelog is not None and changelog.delta_manifest_list == manifest_list


def expire_changelogs(
    table: Table, rules: ExpiryRules, kept: KeptFiles, earliest_snapshot: int, now_ms: int
) -> int:
    """Remove the changelogs that need no longer be kept, with their files; return how many.

    `earliest_snapshot` is the earliest one, whose files stay.
    """
    latest = latest_snapshot(table.paimon)
    earliest = _hinted(table, "EARLIEST", following=False)
    last = _hinted(table, "LATEST", following=True)
    if latest is None or earliest is None or last is None:
        return 0

    def time_of(changelog_id: int) -> int | None:
        changelog = _read(table, changelog_id)
        return None if changelog is None else int(changelog.time_millis)

    consumed = table.paimon.consumer_manager().min_next_snapshot()
    floor = NO_FLOOR if consumed is None else int(consumed)
    end = changelogs_end(rules, earliest, last, latest.id, floor, time_of, now_ms)
    begin = earliest
    while _read(table, begin - 1) is not None:  # left by a run that was cut short
        begin -= 1
    first, snapshot = _read(table, end), read_snapshot(table.paimon, earliest_snapshot)
    if begin == end or first is None or snapshot is None:
        return 0
    table.store.write(f"{_folder(table)}/EARLIEST", str(end).encode())
    reach("expiry.changelogs_decided")
    names = kept.metadata(begin, end, [snapshot], [first])
    return _remove(table, rules, kept, range(begin, end), names)


def _remove(table: Table, rules: ExpiryRules, kept: KeptFiles, ids: range, names: set[str]) -> int:
    read = (_read(table, changelog_id) for changelog_id in ids)
    expired = [changelog for changelog in read if changelog is not None]
    files = ExpiredFiles(table, rules, kept)
    for changelog in expired:
        own = changelog.changelog_manifest_list is not None
        files.remove(files.of_changelog(changelog) if own else files.deleted_in(changelog))
    files.remove_empty_folders()
    reach("expiry.changelog_data_removed")
    for changelog in expired:
        if changelog.changelog_manifest_list is not None:
            files.remove(files.of_list(changelog.changelog_manifest_list, names))
        else:
            files.remove(files.of_list(changelog.delta_manifest_list, names))
            files.remove(files.of_list(changelog.base_manifest_list, names))
        table.store.delete([f"{_folder(table)}/changelog-{changelog.id}"])
    return len(expired)


def _folder(table: Table) -> str:
    snapshots = str(table.paimon.snapshot_manager().snapshot_dir)
    return f"{snapshots.rpartition('/')[0]}/changelog"


def _read(table: Table, changelog_id: int) -> Any:
    content = table.store.read(f"{_folder(table)}/changelog-{changelog_id}")
    return None if content is None else JSON.from_json(content.decode(), Snapshot)


def _hinted(table: Table, hint: str, *, following: bool) -> int | None:
    """The changelog that a hint names; the least, or with `following` the greatest, that is stored
    where it names none or one is following it."""
    content = table.store.read(f"{_folder(table)}/{hint}")
    text = b"" if content is None else content.strip()
    if text.isdigit() and _read(table, int(text)) is not None:
        found = int(text)
        if not following or _read(table, found + 1) is None:
            return found
    names = table.store.names(_folder(table), "changelog-")
    ids = [int(name[10:]) for name in names if name[10:].isdigit()]
    return max(ids, default=None) if following else min(ids, default=None)
