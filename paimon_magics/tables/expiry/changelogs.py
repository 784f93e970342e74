"""Keeps the changelogs of expired snapshots, and expires them later by options of their own
(`changelog.num-retained.*`, `changelog.time-retained`): Paimon's `ChangelogManager` and
`ExpireChangelogImpl`.

A changelog is a copy of the snapshot's file under another name. Hints and the order of removal are
the same as for snapshots (module `expire_snapshots`).
"""

from __future__ import annotations

from typing import Any

from paimon_magics.faults import reach
from paimon_magics.planning.commits.expiry import NO_FLOOR, ExpiryRules, changelogs_end
from paimon_magics.tables.expiry.expired_files import ExpiredFiles
from paimon_magics.tables.expiry.protected_files import ProtectedFiles
from paimon_magics.tables.snapshots.changelogs import changelog_folder, read_changelog
from paimon_magics.tables.snapshots.latest import latest_snapshot, read_snapshot, write_hint
from paimon_magics.tables.table import Table

__all__ = [
    "expire_changelogs",
    "keep_changelog",
]


def keep_changelog(table: Table, snapshot: Any) -> None:
    """Copy a snapshot that will be removed to a changelog."""
    folder = changelog_folder(table)
    content = table.store.read(table.paimon.snapshot_manager().get_snapshot_path(snapshot.id))
    if content is not None:
        table.store.create(f"{folder}/changelog-{snapshot.id}", content)
        write_hint(table.store, f"{folder}/LATEST", snapshot.id)
        reach("expiry.changelog_kept")


def expire_changelogs(
    table: Table, rules: ExpiryRules, kept: ProtectedFiles, earliest_snapshot: int, now_ms: int
) -> int:
    """Remove the changelogs that need not be kept any longer, with their files; return how many.

    `earliest_snapshot` is the id of the earliest snapshot, whose files stay.
    """
    latest = latest_snapshot(table.paimon)
    earliest = _hinted(table, "EARLIEST", following=False)
    last = _hinted(table, "LATEST", following=True)
    if latest is None or earliest is None or last is None:
        return 0

    def time_of(changelog_id: int) -> int | None:
        changelog = read_changelog(table, changelog_id)
        return None if changelog is None else int(changelog.time_millis)

    consumed = table.paimon.consumer_manager().min_next_snapshot()
    floor = NO_FLOOR if consumed is None else int(consumed)
    end = changelogs_end(rules, earliest, last, latest.id, floor, time_of, now_ms)
    begin = earliest
    while read_changelog(table, begin - 1) is not None:  # left by a run that was cut short
        begin -= 1
    first, snapshot = read_changelog(table, end), read_snapshot(table.paimon, earliest_snapshot)
    if begin == end or first is None or snapshot is None:
        return 0
    table.store.write(f"{changelog_folder(table)}/EARLIEST", str(end).encode())
    reach("expiry.changelogs_decided")
    names = kept.metadata(begin, end, [snapshot], [first])
    return _remove(table, rules, kept, range(begin, end), names)


def _remove(
    table: Table, rules: ExpiryRules, kept: ProtectedFiles, ids: range, names: set[str]
) -> int:
    read = (read_changelog(table, changelog_id) for changelog_id in ids)
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
        table.store.delete([f"{changelog_folder(table)}/changelog-{changelog.id}"])
    return len(expired)


def _hinted(table: Table, hint: str, *, following: bool) -> int | None:
    """The id of the changelog that a hint names. If it names no stored changelog: the least id that
    is stored, or with `following` the greatest; the latter also if a newer changelog follows."""
    content = table.store.read(f"{changelog_folder(table)}/{hint}")
    text = b"" if content is None else content.strip()
    if text.isdigit() and read_changelog(table, int(text)) is not None:
        found = int(text)
        if not following or read_changelog(table, found + 1) is None:
            return found
    names = table.store.names(changelog_folder(table), "changelog-")
    ids = [int(name[10:]) for name in names if name[10:].isdigit()]
    return max(ids, default=None) if following else min(ids, default=None)
