"""Removes expired snapshots and the files that only they refer to: Paimon's `ExpireSnapshotsImpl`
and `ExpireChangelogImpl`, on any branch.

`decide` chooses the snapshots and moves the EARLIEST hint past them: from then on they don't belong
to the chain, and no process may begin to use them. `carry_out` removes data files, then manifests,
then the snapshots' own files, oldest first.

A process that dies in between leaves a chain that is readable from EARLIEST on. The next `decide`
reads backwards from EARLIEST to find the remaining snapshots, and removes them too. Files that are
already gone are skipped. The cost depends only on what expires: folders of data or manifests are
never listed.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from paimon_magics.errors import TableDamagedError
from paimon_magics.faults import reach
from paimon_magics.planning.commits.expiry import (
    NO_FLOOR,
    ExpiryRules,
    changelogs_end,
    snapshots_end,
)
from paimon_magics.tables.expiry.expired_files import (
    ExpiredFiles,
    PlannedFiles,
    ProtectedFiles,
)
from paimon_magics.tables.snapshots.consumers import list_progress
from paimon_magics.tables.snapshots.latest import (
    changelog_folder,
    changelog_ids,
    earliest_snapshot_id,
    latest_snapshot,
    read_changelog,
    read_snapshot,
    usable_snapshots,
    write_hint,
)
from paimon_magics.tables.snapshots.tagged import snapshot_of_tag, tag_path
from paimon_magics.tables.table import Table, publishes_itself

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Expiry:
    """The decision to remove the snapshots from `begin` to before `end`, the new earliest one.

    `snapshots` are these and the one with the id `end`, as they were when it was decided.
    """

    table: Table
    rules: ExpiryRules
    now_ms: int
    begin: int
    end: int
    snapshots: Sequence[Any]
    protected: ProtectedFiles


def can_expire(table: Table) -> bool:
    """Whether we remove the table's snapshots: not if its catalog publishes and expires them."""
    return not publishes_itself(table)


def decide(
    table: Table, rules: ExpiryRules, floor: int, now_ms: int, *, is_trial: bool = False
) -> Expiry | None:
    """Decide by the rules which snapshots to remove; None if there is nothing to do. Snapshots from
    `floor` on stay. A trial changes nothing, and must not be carried out.

    While this runs, no other process may create a tag or branch of the table, roll it back, or
    begin to read a snapshot below `floor`. Raises TableDamagedError if the new earliest snapshot is
    missing.
    """
    assert can_expire(table)
    paimon = table.paimon
    latest, earliest = latest_snapshot(paimon), earliest_snapshot_id(paimon, table.store)
    if latest is None or earliest is None:
        return None
    consumed = _consumers_floor(table, rules, now_ms, is_trial=is_trial)
    floor = min(floor, consumed, _forward_floor(table))

    def time_of(snapshot_id: int) -> int | None:
        snapshot = read_snapshot(paimon, snapshot_id)
        return None if snapshot is None else int(snapshot.time_millis)

    end = snapshots_end(rules, earliest, latest.id, floor, time_of, now_ms)
    if read_snapshot(paimon, end) is None:
        raise TableDamagedError(
            f"Snapshot {end} of `{table.name}` is missing, so earlier snapshots can't expire.",
            hint="Check the table's snapshot folder, and restore the file.",
        )
    begin = earliest
    while read_snapshot(paimon, begin - 1) is not None:  # left by a run that was cut short
        begin -= 1
    hint = f"{paimon.snapshot_manager().snapshot_dir}/EARLIEST"
    if begin < end:
        read = (read_snapshot(paimon, snapshot_id) for snapshot_id in range(begin, end + 1))
        snapshots = [snapshot for snapshot in read if snapshot is not None]
        protected = ProtectedFiles(table)
        if not is_trial:
            table.store.write(hint, str(end).encode())
            reach("expiry.decided")
        return Expiry(table, rules, now_ms, begin, end, snapshots, protected)
    if not is_trial and table.store.read(hint) is None:  # so that the folder is not listed again
        write_hint(table.store, hint, end)
    if rules.keeps_changelogs:
        return Expiry(table, rules, now_ms, begin, end, (), ProtectedFiles(table))
    return None


def carry_out(expiry: Expiry, turn: AbstractContextManager[None] | None = None) -> int:
    """Remove the snapshots and their files, then expired changelogs; return the number of removed
    snapshots.

    Others may use the table meanwhile. `turn` is held while the snapshots' own files are removed,
    so that the table is not rolled back meanwhile.
    """
    return carried_out(expiry, turn).snapshots


@dataclass(frozen=True, slots=True)
class Removed:
    """How many snapshots (or changelogs, or tags) were removed or would be, and files with them."""

    snapshots: int = 0
    files: int = 0


def carried_out(expiry: Expiry, turn: AbstractContextManager[None] | None = None) -> Removed:
    """The same as `carry_out`; return also how many files were removed."""
    removed = 0
    files = ExpiredFiles(expiry.table, expiry.rules, expiry.protected)
    if expiry.begin < expiry.end:
        expired = _remove_files(expiry, files)
        with turn or nullcontext():
            removed = _remove_snapshots(expiry, expired)
    if expiry.rules.keeps_changelogs:
        _expire_changelogs(expiry.table, expiry.rules, expiry.protected, expiry.end, expiry.now_ms)
    return Removed(removed, files.removed + removed)


def planned_paths(expiry: Expiry) -> tuple[int, list[str]]:
    """How many snapshots an expiry on trial would remove, and the paths of the files that would go
    with them: some may be gone already. Changelogs that would expire then are not among them."""
    if expiry.begin >= expiry.end:
        return 0, []
    files = PlannedFiles(expiry.table, expiry.rules, expiry.protected)
    expired = _remove_files(expiry, files)
    manager = expiry.table.paimon.snapshot_manager()
    own = [manager.get_snapshot_path(snapshot.id) for snapshot in expired]
    return len(expired), [*dict.fromkeys(files.paths), *own]


def _remove_files(expiry: Expiry, files: ExpiredFiles) -> Sequence[Any]:
    """Remove the files that only the expired snapshots refer to; return these snapshots."""
    rules = expiry.rules
    *expired, last = expiry.snapshots
    files.remove(path for snapshot in [*expired[1:], last] for path in _replaced(files, snapshot))
    if not rules.keeps_changelogs:
        files.remove(path for snapshot in expired for path in files.of_changelog(snapshot))
    files.remove_empty_folders()
    reach("expiry.data_removed")
    files.remove(list(_metadata(files, expiry, expired, last)))
    reach("expiry.metadata_removed")
    return expired


def _remove_snapshots(expiry: Expiry, expired: Sequence[Any]) -> int:
    """Remove the snapshots' own files, oldest first; return how many."""
    table = expiry.table
    earliest = earliest_snapshot_id(table.paimon, table.store)
    if earliest is None or earliest < expiry.end:  # rolled back to a tag, or dropped
        return 0
    removed = 0
    for snapshot in expired:
        now = read_snapshot(table.paimon, snapshot.id)
        if now is None or now.delta_manifest_list != snapshot.delta_manifest_list:
            continue  # the snapshot of another table, which has replaced this one
        if expiry.rules.keeps_changelogs:
            _keep_changelog(table, snapshot)
        table.store.delete([table.paimon.snapshot_manager().get_snapshot_path(snapshot.id)])
        removed += 1
        reach("expiry.snapshot_removed")
    return removed


def _replaced(files: ExpiredFiles, snapshot: Any) -> list[str]:
    """The data files that a snapshot deleted and nothing else needs: `SnapshotDeletion`."""
    rules = files.rules
    # Without changelog files the appended files are the changelog, and are removed with it.
    keeps_appended = rules.keeps_changelogs and not rules.has_changelog_files
    return files.deleted_in(snapshot, keeps_appended=keeps_appended)


def _metadata(
    files: ExpiredFiles, expiry: Expiry, expired: Sequence[Any], last: Any
) -> Iterator[str]:
    """The paths of the manifests, manifest lists, index and statistics files that only the expired
    snapshots refer to: `planManifestsCleaner`."""
    rules = expiry.rules
    needed = expiry.protected.metadata(expiry.begin, expiry.end, [last])
    for snapshot in expired:
        lists = []
        if not rules.keeps_changelogs or rules.has_changelog_files:
            lists += [snapshot.base_manifest_list, snapshot.delta_manifest_list]
        if not rules.keeps_changelogs:
            lists.append(snapshot.changelog_manifest_list)
        yield from files.of_metadata(snapshot, lists, needed)


def _forward_floor(table: Table) -> int:
    """The first snapshot that a branch must keep so that the main branch can be fast-forwarded to
    it: the main branch's latest one, if the branch has it."""
    if table.name.branch is None:
        return NO_FLOOR
    main = latest_snapshot(table.paimon, "main")
    if main is None:
        return 1
    same = read_snapshot(table.paimon, main.id)
    return main.id if same is not None and same.uuid == main.uuid else NO_FLOOR


def _consumers_floor(table: Table, rules: ExpiryRules, now_ms: int, *, is_trial: bool) -> int:
    if rules.consumer_time_ms is not None and not is_trial:
        oldest_ms = now_ms - rules.consumer_time_ms
        consumers = table.paimon.consumer_manager()
        consumers.expire(datetime.datetime.fromtimestamp(oldest_ms / 1000))
    return _consumed(table) if rules.consumers_keep_snapshots else NO_FLOOR


# Keeps the changelogs of expired snapshots, and expires them later by options of their own
# (`changelog.num-retained.*`, `changelog.time-retained`): Paimon's `ChangelogManager` and
# `ExpireChangelogImpl`.
#
# A changelog is a copy of the snapshot's file under another name. Hints and the order of removal
# are the same as for snapshots (module `expire_snapshots`).


def _keep_changelog(table: Table, snapshot: Any) -> None:
    """Copy a snapshot that will be removed to a changelog."""
    folder = changelog_folder(table)
    content = table.store.read(table.paimon.snapshot_manager().get_snapshot_path(snapshot.id))
    if content is not None:
        table.store.create(f"{folder}/changelog-{snapshot.id}", content)
        write_hint(table.store, f"{folder}/LATEST", snapshot.id)
        reach("expiry.changelog_kept")


def _expire_changelogs(
    table: Table, rules: ExpiryRules, protected: ProtectedFiles, earliest_snapshot: int, now_ms: int
) -> int:
    """Remove the changelogs that need not be kept any longer, with their files; return how many.

    `earliest_snapshot` is the id of the earliest snapshot, whose files stay.
    """
    ends = _changelogs_to_expire(table, rules, now_ms)
    snapshot = read_snapshot(table.paimon, earliest_snapshot)
    if ends is None or snapshot is None:
        return 0
    begin, end = ends
    first = read_changelog(table, end)
    if begin == end or first is None:
        return 0
    table.store.write(f"{changelog_folder(table)}/EARLIEST", str(end).encode())
    reach("expiry.changelogs_decided")
    names = protected.metadata(begin, end, [snapshot], [first])
    files = ExpiredFiles(table, rules, protected)
    return _remove(files, table, range(begin, end), names)


def _changelogs_to_expire(table: Table, rules: ExpiryRules, now_ms: int) -> tuple[int, int] | None:
    """The first changelog that goes by the rules, and the first that stays; None if there are no
    changelogs."""
    latest = latest_snapshot(table.paimon)
    earliest = _hinted(table, "EARLIEST", following=False)
    last = _hinted(table, "LATEST", following=True)
    if latest is None or earliest is None or last is None:
        return None

    def time_of(changelog_id: int) -> int | None:
        changelog = read_changelog(table, changelog_id)
        return None if changelog is None else int(changelog.time_millis)

    end = changelogs_end(rules, earliest, last, latest.id, _consumed(table), time_of, now_ms)
    begin = earliest
    while read_changelog(table, begin - 1) is not None:  # left by a run that was cut short
        begin -= 1
    return begin, end


def _consumed(table: Table) -> int:
    """The first snapshot that a consumer reads next."""
    return min(list_progress(table).values(), default=NO_FLOOR)


def expire_changelogs(
    table: Table, rules: ExpiryRules, now_ms: int, *, every: bool, is_trial: bool = False
) -> tuple[int, list[str], int]:
    """Remove the changelogs that need not be kept by the rules, or `every` one, with their files.
    Return how many, the paths of the files that a trial would remove, and the number of files that
    were removed.

    While this runs, no other process may expire anything of the table. A changelog that a consumer
    has yet to read stays in any case.
    """
    assert can_expire(table)
    ids = changelog_ids(table)
    earliest = earliest_snapshot_id(table.paimon, table.store)
    if not ids or earliest is None:
        return 0, [], 0
    ends = _changelogs_to_expire(table, rules, now_ms)
    begin, end = ends or (ids[0], ids[0])
    if every:
        begin, end = ids[0], min(ids[-1] + 1, _consumed(table), earliest)
    if begin >= end:
        return 0, [], 0
    protected = ProtectedFiles(table)
    first = read_changelog(table, end)
    snapshot = read_snapshot(table.paimon, earliest)
    others = [] if first is None else [first]
    names = protected.metadata(begin, end, [snapshot], others)
    if is_trial:
        planned = PlannedFiles(table, rules, protected)
        count = _remove(planned, table, range(begin, end), names)
        return count, [*dict.fromkeys(planned.paths)], 0
    if first is None:
        for hint in ("EARLIEST", "LATEST"):
            table.store.delete([f"{changelog_folder(table)}/{hint}"])
    else:
        table.store.write(f"{changelog_folder(table)}/EARLIEST", str(end).encode())
    reach("expiry.changelogs_decided")
    files = ExpiredFiles(table, rules, protected)
    count = _remove(files, table, range(begin, end), names)
    return count, [], files.removed


def _remove(files: ExpiredFiles, table: Table, ids: range, names: set[str]) -> int:
    """Remove changelogs with their files, but for metadata with one of `names`; return how
    many."""
    read = (read_changelog(table, changelog_id) for changelog_id in ids)
    expired = [changelog for changelog in read if changelog is not None]
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
        files.remove([f"{changelog_folder(table)}/changelog-{changelog.id}"])
    return len(expired)


def _hinted(table: Table, hint: str, *, following: bool) -> int | None:
    """The id of the changelog that a hint names. If it names no stored changelog: the least id that
    is stored, or with `following` the greatest; the latter also if a newer changelog follows."""
    content = table.store.read(f"{changelog_folder(table)}/{hint}")
    text = b"" if content is None else content.strip()
    if text.isdigit() and read_changelog(table, int(text)) is not None:
        changelog_id = int(text)
        if not following or read_changelog(table, changelog_id + 1) is None:
            return changelog_id
    ids = changelog_ids(table)
    return (max if following else min)(ids, default=None)


# Deletes a tag and the files that only it refers to: Paimon's `TagDeletion`.
#
# A tag keeps the files of its snapshot when that expires. When the tag is deleted, the files that
# are in no other tag, snapshot or branch are removed: data files first, then manifests. This reads
# all snapshots, tags and branches of the table; folders of data are never listed.
#
# If the process dies after the tag's own file is removed, files that nothing refers to stay behind.
# They do no harm. They also stay where a table is `write-only` or expired by its catalog, or keeps
# changelogs for longer than snapshots, because changelogs refer to data files in ways of their own.


def remove_tag(table: Table, name: str) -> bool:
    """Delete a tag and the files that only it refers to; return False if there was no such tag.

    While this runs, no other process may create a tag or branch of the table, or roll it back.
    Files that can't be found or removed stay, with a warning in the log. Raises InvalidTableError
    for a name that no tag can have.
    """
    path = tag_path(table, name)
    content = table.store.read(path)
    if content is None:
        return False
    tagged = snapshot_of_tag(path, content)
    table.paths.delete([path])
    rules = ExpiryRules.of(table.schema) if can_expire(table) else None
    if rules is None or rules.keeps_changelogs:
        return True
    try:
        _remove_tag_files(table, rules, tagged)
    except Exception as error:
        _log.warning(
            "Files of the deleted tag %s of `%s` could not be deleted: %s", name, table.name, error
        )
    return True


def _remove_tag_files(table: Table, rules: ExpiryRules, tagged: Any) -> None:
    paimon = table.paimon
    latest, earliest = latest_snapshot(paimon), earliest_snapshot_id(paimon, table.store)
    if latest is None or earliest is None or tagged.id >= earliest:
        return  # the snapshot is still there: expiry removes it
    protected = ProtectedFiles(table)
    if any(tag.id == tagged.id for tag in protected.tags):
        return
    chain = usable_snapshots(paimon, table.store)
    files = ExpiredFiles(table, rules, protected)
    data = files.of_data(tagged, protected.data_beside(tagged.id) | protected.data_of(chain))
    lists = (tagged.base_manifest_list, tagged.delta_manifest_list)
    metadata = files.of_metadata(tagged, lists, protected.metadata(0, NO_FLOOR, chain))
    files.remove(data)
    files.remove_empty_folders()
    files.remove(metadata)
