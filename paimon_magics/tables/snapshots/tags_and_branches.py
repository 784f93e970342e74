"""Changes of tags and branches, and rollbacks, as statements ask for them: one change of one table.

The caller prevents changes to the table by all processes that it knows of. Files are created only
if they are absent, so two processes that don't know of each other can't both create a tag.

A request may come twice if the answer to the first was lost. With `repeated`, a change that is
already made counts as done. If the process dies in a change of several files (renaming a tag,
deleting several tags), a repeated request completes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, assert_never

from paimon_magics.errors import InvalidTableError, UnknownNameError, nearest
from paimon_magics.statements.version_changes import (
    CreateBranch,
    CreateTag,
    CreateTagFromTimestamp,
    DeleteBranches,
    DeleteTags,
    FastForward,
    HistoryChange,
    RenameBranch,
    RenameTag,
    ReplaceTag,
    RollBack,
    RollBackToSnapshot,
    RollBackToTag,
    RollBackToTimestamp,
    RollBackToWatermark,
)
from paimon_magics.tables.snapshots.branches import (
    branch_exists,
    create_branch,
    drop_branch,
    forward_to_branch,
    list_branches,
    rename_branch,
)
from paimon_magics.tables.snapshots.chain import (
    Document,
    Removing,
    create_tag,
    latest_document,
    list_snapshots,
    list_tags,
    load_tag,
    removes_silently,
    rename_tag,
    replace_tag,
    roll_back,
)
from paimon_magics.tables.snapshots.tagged import check_tag_name
from paimon_magics.tables.stores.store import Publish
from paimon_magics.tables.table import StoredTable


@dataclass(frozen=True, slots=True)
class VersionReceipt:
    """The result of a change.

    `changed` are the names of tags and branches that were created, moved, renamed or deleted, ()
    if nothing had to change. `snapshot_id` is set for a tag from a timestamp and for a rollback,
    `previous_snapshot_id`, the latest before, for a rollback. Times are milliseconds since 1970.
    """

    changed: tuple[str, ...] = ()
    snapshot_id: int | None = None
    previous_snapshot_id: int | None = None
    commit_time_ms: int | None = None
    watermark: int | None = None


def change_version(
    table: StoredTable,
    change: HistoryChange,
    publish: Publish,
    branch_of: Callable[[str], StoredTable],
    remove_tag: Callable[[str], bool],
    *,
    repeated: bool = False,
    removing: Removing = removes_silently,
) -> VersionReceipt:
    """Carry out a change. `branch_of` loads a branch of the table. `remove_tag` deletes a tag with
    the files that only it needs, and returns whether there was one. `removing` is called before
    snapshots are removed; if it raises, nothing is removed.

    Raises UnknownNameError for a tag, branch or snapshot that does not exist (with the nearest),
    InvalidTableError for a name that is taken or not allowed and for a change that would lose
    snapshots. Nothing is changed then, but for a fast-forward (see `forward_to_branch`).
    """
    match change:
        case CreateTag() | ReplaceTag() | CreateTagFromTimestamp() | DeleteTags() | RenameTag():
            return _change_tags(table, change, publish, remove_tag, repeated)
        case CreateBranch() | DeleteBranches() | RenameBranch() | FastForward():
            return _change_branches(table, change, publish, branch_of, removing, repeated)
        case RollBackToSnapshot() | RollBackToTag() | RollBackToTimestamp() | RollBackToWatermark():
            return _roll_back(table, change, publish, removing)
    assert_never(change)


# ---- tags ----


def _change_tags(
    table: StoredTable,
    change: CreateTag | ReplaceTag | CreateTagFromTimestamp | DeleteTags | RenameTag,
    publish: Publish,
    remove_tag: Callable[[str], bool],
    repeated: bool,
) -> VersionReceipt:
    match change:
        case CreateTag(tag=tag, snapshot_id=id, time_retained=retained):
            check_tag_name(tag)
            if create_tag(table, tag, publish, snapshot_id=id, time_retained=retained):
                return VersionReceipt((tag,))
            if change.or_replace:
                replace_tag(table, tag, snapshot_id=id, time_retained=retained)
                return VersionReceipt((tag,))
            if not change.if_not_exists and not (repeated and _names(table, tag, id)):
                raise _tag_taken(table, tag)
            return VersionReceipt()
        case ReplaceTag(tag=tag, snapshot_id=id, time_retained=retained):
            require_tags(table, [tag])
            replace_tag(table, tag, snapshot_id=id, time_retained=retained)
            return VersionReceipt((tag,))
        case CreateTagFromTimestamp(tag=tag, time_ms=time_ms, time_retained=retained):
            check_tag_name(tag)
            snapshot = first_not_earlier(table, time_ms)
            id = snapshot["id"]
            created = create_tag(table, tag, publish, snapshot_id=id, time_retained=retained)
            if not created and not (repeated and _names(table, tag, id)):
                raise _tag_taken(table, tag)
            return receipt_of_time(tag, snapshot)
        case DeleteTags(tags=tags):
            return VersionReceipt(tuple(tag for tag in tags if remove_tag(tag)))
        case RenameTag(tag=tag, new_name=new_name):
            check_tag_name(new_name)
            if repeated and load_tag(table, tag) is None and load_tag(table, new_name) is not None:
                return VersionReceipt((new_name,))
            require_tags(table, [tag])
            if not rename_tag(table, tag, new_name, publish, repeated=repeated):
                raise _tag_taken(table, new_name)
            return VersionReceipt((new_name,))


def _names(table: StoredTable, tag: str, snapshot_id: int | None) -> bool:
    """Whether the tag names this snapshot; for None, the latest."""
    stored, latest = load_tag(table, tag), latest_document(table)
    wanted = snapshot_id if snapshot_id is not None else (latest or {}).get("id")
    return stored is not None and stored["id"] == wanted


def receipt_of_time(tag: str, snapshot: Document) -> VersionReceipt:
    """The receipt of a tag from a timestamp."""
    return VersionReceipt(
        (tag,),
        snapshot_id=snapshot["id"],
        commit_time_ms=snapshot["timeMillis"],
        watermark=snapshot.get("watermark"),
    )


def first_not_earlier(table: StoredTable, time_ms: int) -> Document:
    """The first snapshot at or after a time (milliseconds since 1970), also among those that only
    a tag keeps. Raises UnknownNameError if there is none."""
    tagged = [tag for name in list_tags(table) if (tag := load_tag(table, name)) is not None]
    every = (*list_snapshots(table, 0, None), *tagged)
    later = [snapshot for snapshot in every if snapshot["timeMillis"] >= time_ms]
    if not later:
        latest = latest_document(table)
        shown = "it has none" if latest is None else f"its latest is at {latest['timeMillis']}"
        raise UnknownNameError(
            f"`{table.name}` has no snapshot at or after {time_ms}: {shown}.",
            hint="Times are milliseconds since 1970 UTC.",
        )
    return min(later, key=lambda snapshot: (snapshot["timeMillis"], snapshot["id"]))


def require_tags(table: StoredTable, tags: Collection[str]) -> None:
    """Raise UnknownNameError, with the nearest name, for a tag that does not exist."""
    for tag in tags:
        if load_tag(table, tag) is None:
            raise UnknownNameError(
                f"There is no tag `{tag}` of `{table.name}`.",
                hint=nearest(tag, lambda: list_tags(table), what=f"tags of `{table.name}`"),
            )


def _tag_taken(table: StoredTable, tag: str) -> InvalidTableError:
    stored = load_tag(table, tag)
    shown = "" if stored is None else f": it names snapshot {stored['id']}"
    return InvalidTableError(
        f"The tag `{tag}` of `{table.name}` exists already{shown}.",
        hint=f"ALTER TABLE … CREATE OR REPLACE TAG `{tag}` moves it; delete it, or choose another "
        "name.",
    )


# ---- branches ----


def _change_branches(
    table: StoredTable,
    change: CreateBranch | DeleteBranches | RenameBranch | FastForward,
    publish: Publish,
    branch_of: Callable[[str], StoredTable],
    removing: Removing,
    repeated: bool,
) -> VersionReceipt:
    if table.name.branch is not None:
        raise InvalidTableError(
            f"`{table.name}` is a branch: branches belong to the table.",
            hint=f"Name the table, `{table.name.database}.{table.name.table}`.",
        )
    match change:
        case CreateBranch(branch=branch, tag=tag):
            if tag is not None:
                require_tags(table, [tag])
            if create_branch(table, branch, publish, tag=tag):
                return VersionReceipt((branch,))
            if not change.if_not_exists and not repeated:
                raise _branch_taken(table, branch)
            return VersionReceipt()
        case DeleteBranches(branches=branches):
            if not repeated:
                require_branches(table, branches)
            for branch in branches:
                removing(branch, 0)
            return VersionReceipt(tuple(b for b in branches if drop_branch(table, b)))
        case RenameBranch(branch=branch, new_name=new_name):
            if repeated and not branch_exists(table, branch) and branch_exists(table, new_name):
                return VersionReceipt((new_name,))
            require_branches(table, [branch])
            if not rename_branch(table, branch, new_name):
                raise _branch_taken(table, new_name)
            return VersionReceipt((new_name,))
        case FastForward(branch=branch):
            require_branches(table, [branch])
            forward_to_branch(table, branch_of(branch), publish, removing=removing)
            return VersionReceipt((branch,))


def require_branches(table: StoredTable, branches: Collection[str]) -> None:
    """Raise UnknownNameError, with the nearest name, for a branch that does not exist, and for the
    main one."""
    for branch in branches:
        if branch == "main" or not branch_exists(table, branch):
            raise UnknownNameError(
                f"There is no branch `{branch}` of `{table.name}` besides its main branch.",
                hint=nearest(
                    branch, lambda: list_branches(table), what=f"branches of `{table.name}`"
                ),
            )


def _branch_taken(table: StoredTable, branch: str) -> InvalidTableError:
    return InvalidTableError(
        f"The branch `{branch}` of `{table.name}` exists already.",
        hint="Delete it by CALL sys.delete_branch, or choose another name.",
    )


# ---- rolling back ----


def _roll_back(
    table: StoredTable,
    change: RollBack,
    publish: Publish,
    removing: Removing,
) -> VersionReceipt:
    latest = latest_document(table)
    if latest is None:
        raise UnknownNameError(
            f"`{table.name}` has no snapshots to roll back to.",
            hint="Write to the table first.",
        )
    if isinstance(change, RollBackToTag):
        require_tags(table, [change.tag])
        target = roll_back(table, publish, tag=change.tag, removing=removing)
        return VersionReceipt(snapshot_id=target, previous_snapshot_id=latest["id"])
    snapshot_id = rolled_back_to(table, change)
    if snapshot_id > latest["id"]:
        raise _no_snapshot(table, snapshot_id, latest)
    try:
        target = roll_back(table, publish, snapshot_id=snapshot_id, removing=removing)
    except UnknownNameError as error:
        raise _no_snapshot(table, snapshot_id, latest) from error
    return VersionReceipt(snapshot_id=target, previous_snapshot_id=latest["id"])


def rolled_back_to(
    table: StoredTable, change: RollBackToSnapshot | RollBackToTimestamp | RollBackToWatermark
) -> int:
    """The id of the snapshot that a change goes back to. An id that the change names itself is not
    checked. Raises UnknownNameError if no snapshot is early enough."""
    match change:
        case RollBackToSnapshot(snapshot_id=snapshot_id):
            return snapshot_id
        case RollBackToTimestamp(time_ms=time_ms):
            times = [(s["id"], s["timeMillis"]) for s in list_snapshots(table, 0, None)]
            return _last_up_to(table, times, time_ms, "time")
        case RollBackToWatermark(watermark=watermark):
            marks = [(s["id"], s.get("watermark")) for s in list_snapshots(table, 0, None)]
            return _last_up_to(table, marks, watermark, "watermark")


def _last_up_to(table: StoredTable, marks: list[tuple[int, Any]], most: int, what: str) -> int:
    """The id of the last snapshot whose mark is at most `most`; `marks` has ids with marks."""
    early = [id for id, mark in marks if mark is not None and mark <= most]
    if not early:
        known = [mark for _, mark in marks if mark is not None]
        shown = f"the earliest is {min(known)}" if known else "no snapshot has one"
        raise UnknownNameError(
            f"`{table.name}` has no snapshot with a {what} up to {most}: {shown}.",
            hint=f"`{table.name}$snapshots` lists the snapshots that have not expired.",
        )
    return max(early)


def _no_snapshot(table: StoredTable, snapshot_id: int, latest: Document) -> UnknownNameError:
    first = next((s["id"] for s in list_snapshots(table, 0, 1)), latest["id"])
    return UnknownNameError(
        f"`{table.name}` has no snapshot {snapshot_id}: it has {first} to {latest['id']}.",
        hint=f"`{table.name}$snapshots` and `{table.name}$tags` list the snapshots that it can be "
        "rolled back to.",
    )
