"""Branches of a table: create, list, drop and rename them, and fast-forward the main branch to one.

A branch is complete when its `schema-0` exists, which is written last. A creation that was
interrupted can be repeated. Nothing here locks.

A fast-forward publishes a branch's snapshots on top of those of the main branch. Snapshots that
only the main branch has are removed if the caller says so, as Paimon's Java library does; else it
is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pypaimon.schema.schema_manager import SchemaManager

from paimon_magics.errors import InvalidTableError, UnknownNameError, UnsupportedStatementError
from paimon_magics.faults import reach
from paimon_magics.planning.formatting import printable, shortened
from paimon_magics.tables.pypaimon_internals import schema_path
from paimon_magics.tables.snapshots.chain import (
    Removing,
    latest_document,
    list_snapshots,
    published_path,
    refuse_remote,
    remove_above,
    removes_silently,
    snapshot_by_id,
)
from paimon_magics.tables.snapshots.latest import write_hint
from paimon_magics.tables.snapshots.load_history import LoadHistory
from paimon_magics.tables.snapshots.provenance import ROLLED_BACK_FROM
from paimon_magics.tables.snapshots.tagged import is_tag_name, tag_snapshot
from paimon_magics.tables.stores.allowed_paths import is_plain_name
from paimon_magics.tables.stores.store import Publish
from paimon_magics.tables.table import StoredTable

_SHOWN_MAX = 60


def list_branches(table: StoredTable) -> list[str]:
    """The names of the table's complete branches except `main`, sorted."""
    refuse_remote(table, "its branches can't be used")
    return sorted(
        name for name in table.paimon.branch_manager().branches() if branch_exists(table, name)
    )


def branch_exists(table: StoredTable, branch: str) -> bool:
    """Whether the branch exists and is complete."""
    refuse_remote(table, "its branches can't be used")
    if not is_plain_name(branch, "branch-"):
        return False
    first: bool = table.paimon.file_io.exists(schema_path(_schemas(table, branch), 0))
    return first


def create_branch(
    table: StoredTable, branch: str, publish: Publish, *, tag: str | None = None
) -> bool:
    """Create a branch from a tag, or with the table's schemas and no snapshots. Return False if it
    exists.

    Raises UnknownNameError for a tag that does not exist, InvalidTableError for a name that Paimon
    does not allow.
    """
    refuse_remote(table, "its branches can't be used")
    _check_branch_name(branch, is_new=True)
    if branch_exists(table, branch):
        return False
    main = table.paimon.schema_manager
    last = table.schema_id
    root = str(table.paimon.branch_manager().branch_path(branch)).rstrip("/")
    # The remaining files of an interrupted removal, including snapshots, don't belong to the new
    # branch.
    table.paimon.file_io.delete(root, recursive=True)
    if tag is not None:
        stored = tag_snapshot(table.paimon, tag) if is_tag_name(tag) else None
        if stored is None:
            raise UnknownNameError(f"There is no tag `{tag}` of `{table.name}`.")
        last = stored.schema_id
        text = table.paimon.file_io.read_file_utf8(table.paimon.tag_manager().tag_path(tag))
        document = json.loads(text)
        snapshot = {k: v for k, v in document.items() if not k.startswith("tag")}
        publish(
            published_path(f"{root}/snapshot/snapshot-{stored.id}"),
            json.dumps(snapshot, indent=2).encode(),
        )
        publish(published_path(f"{root}/tag/tag-{tag}"), text.encode())
    reach("branch.begun")
    for schema_id in range(last, -1, -1):
        if main.get_schema(schema_id) is not None:
            _copy_schema(table, main, _schemas(table, branch), schema_id, publish)
    return branch_exists(table, branch)


def drop_branch(table: StoredTable, branch: str) -> bool:
    """Remove a branch with its snapshots, tags and schemas. Return False if there is none."""
    _check_branch_name(branch)
    if not branch_exists(table, branch):
        return False
    path = table.paimon.branch_manager().branch_path(branch)
    # The schema first: without it there is no branch, even if other files remain.
    table.paimon.file_io.delete(schema_path(_schemas(table, branch), 0))
    reach("branch.unnamed")
    table.paimon.file_io.delete(path, recursive=True)
    return True


def rename_branch(table: StoredTable, branch: str, new_name: str) -> bool:
    """Rename a branch. Return False if the new name is taken.

    Raises UnknownNameError if there is no such branch, UnsupportedStatementError in a store that
    can't rename folders.
    """
    _check_branch_name(branch)
    _check_branch_name(new_name, is_new=True)
    if not branch_exists(table, branch):
        raise UnknownNameError(f"There is no branch `{branch}` of `{table.name}`.")
    if not table.store.renames_folders:
        raise UnsupportedStatementError(
            f"The branch `{branch}` of `{table.name}` can't be renamed: its store can't rename a "
            "folder in one step.",
            hint="Create a branch of the new name, and drop this one.",
        )
    manager = table.paimon.branch_manager()
    if table.paimon.file_io.exists(manager.branch_path(new_name)):
        return False
    manager.rename_branch(branch, new_name)
    return True


def kept_by_forward(table: StoredTable, branch: StoredTable) -> int:
    """Return the last snapshot of the main branch, `table`, that stays when it is fast-forwarded to
    `branch`: later ones have no rows. 0 if there is none. Changes nothing.

    Raises what `forward_to_branch` raises without `replaces`, except for other writers' commits.
    """
    theirs = _snapshots(table, branch)
    latest = latest_document(table)
    last = 0 if latest is None else int(latest["id"])
    sources, ours = branch.paimon.schema_manager, table.paimon.schema_manager
    for schema_id in range(branch.schema_id + 1):  # first, since a roll-back does not mend it
        if ours.get_schema(schema_id) is not None:
            _check_same_schema(table, sources, ours, schema_id)
    return _checked_shared(table, branch, theirs, last)


def forward_to_branch(
    table: StoredTable,
    branch: StoredTable,
    publish: Publish,
    *,
    replaces: bool = False,
    removing: Removing = removes_silently,
) -> None:
    """Fast-forward the main branch, `table`, to the latest snapshot of `branch`.

    With `replaces`, snapshots of the main branch that the branch lacks are removed, with their
    tags, changelogs and schemas, as by Paimon's `BranchManager.fastForward`. If the process dies
    meanwhile, another call completes it.

    Raises InvalidTableError if the branch has no snapshots, or another writer commits meanwhile;
    snapshots published before that stay. Without `replaces` it is also raised, and nothing is
    changed, if snapshots would be removed other than those without rows that a roll-back left, or
    if both have different schemas of one number.
    """
    theirs = _snapshots(table, branch)
    newest, oldest = max(theirs), min(theirs)
    latest = latest_document(table)
    last = 0 if latest is None else int(latest["id"])
    shared = _shared_with(table, theirs, last) if replaces else kept_by_forward(table, branch)
    if shared < last or (latest is None and oldest > 1):
        remove_above(table, shared, removing=removing)
    _take_schemas(table, branch, int(theirs[oldest]["schemaId"]), publish, replaces=replaces)
    reach("forward.schemas")
    manager = table.paimon.snapshot_manager()
    for snapshot_id in range(max(shared + 1, oldest), newest + 1):
        path = published_path(manager.get_snapshot_path(snapshot_id))
        if not publish(path, json.dumps(theirs[snapshot_id], indent=2).encode()):
            raise InvalidTableError(
                f"Another writer committed snapshot {snapshot_id} of `{table.name}` during the "
                "fast-forward.",
                hint=f"`{table.name}` has the state of the branch at snapshot {snapshot_id - 1}.",
            )
    write_hint(table.store, manager.latest_file, newest)
    for name, text in _tags(branch):
        publish(published_path(table.paimon.tag_manager().tag_path(name)), text.encode())
    LoadHistory(table).take(LoadHistory(branch), shared)


def _snapshots(table: StoredTable, branch: StoredTable) -> dict[int, Any]:
    """The snapshots of a branch by id. Raises InvalidTableError if it has none."""
    theirs = {snapshot["id"]: snapshot for snapshot in list_snapshots(branch, 0, None)}
    if not theirs:
        raise InvalidTableError(
            f"`{branch.name}` has no snapshots to fast-forward `{table.name}` to.",
            hint="Write to the branch first.",
        )
    return theirs


def _checked_shared(
    table: StoredTable, branch: StoredTable, theirs: Mapping[int, Any], last: int
) -> int:
    """See `_shared_with`. Raises InvalidTableError if later snapshots of the main branch have rows,
    or the branch has snapshots before any of them."""
    shared, oldest = _shared_with(table, theirs, last), min(theirs)
    is_ahead = shared < last or (last == 0 and oldest > 1)
    if is_ahead and not _only_traces(table, shared, last):
        refused = f"`{table.name}` can't be fast-forwarded to `{branch.name}`: the branch "
        if not shared and oldest == 1:
            raise InvalidTableError(
                f"{refused}was made without a tag, and shares no snapshot with the table.",
                hint=f"To take its rows: INSERT INTO {table.name} SELECT * FROM {branch.name}, or "
                "INSERT OVERWRITE in place of the table's own.",
            )
        raise InvalidTableError(
            f"{refused}has the snapshots {oldest} to {max(theirs)}, so the table's latest snapshot "
            f"{last} would be lost.",
            hint=f"To keep rows that only the table has: INSERT INTO {branch.name} SELECT …, or a "
            f"tag of the table. Then roll the table back to snapshot {shared or oldest}, and "
            "fast-forward it again.",
        )
    return shared


def _only_traces(table: StoredTable, after: int, last: int) -> bool:
    """Whether the snapshots after an id are remnants of rollbacks, without rows."""
    documents = [snapshot_by_id(table, id) for id in range(after + 1, last + 1)]
    return bool(documents) and all(
        d is not None and ROLLED_BACK_FROM in (d.get("properties") or {}) for d in documents
    )


def _shared_with(table: StoredTable, theirs: Mapping[int, Any], last: int) -> int:
    """The id of the last snapshot that the main branch, which ends at `last`, and a branch both
    have; the id before the branch's first one if there is none."""
    oldest = min(theirs)
    for snapshot_id in range(min(last, max(theirs)), oldest - 1, -1):
        ours = snapshot_by_id(table, snapshot_id)
        if ours is not None and ours.get("uuid", "") == theirs[snapshot_id].get("uuid"):
            return snapshot_id
    return oldest - 1


def _take_schemas(
    table: StoredTable, branch: StoredTable, first: int, publish: Publish, *, replaces: bool
) -> None:
    """Copy the branch's schemas to the main branch. With `replaces`, schemas from `first` on are
    removed there first."""
    theirs, ours = branch.paimon.schema_manager, table.paimon.schema_manager
    if replaces:
        for schema_id in range(table.schema_id, first - 1, -1):
            path = published_path(schema_path(ours, schema_id))
            if schema_id > branch.schema_id or not _same_schema(table, theirs, ours, schema_id):
                table.store.delete([path])
    for schema_id in range(branch.schema_id + 1):
        _copy_schema(table, theirs, ours, schema_id, publish)


def _tags(branch: StoredTable) -> Iterator[tuple[str, str]]:
    manager = branch.paimon.tag_manager()
    if branch.paimon.file_io.exists(manager.tag_directory()):
        for name in manager.list_tags():
            yield name, branch.paimon.file_io.read_file_utf8(manager.tag_path(name))


def _copy_schema(
    table: StoredTable,
    source: SchemaManager,
    target: SchemaManager,
    schema_id: int,
    publish: Publish,
) -> None:
    text = table.paimon.file_io.read_file_utf8(schema_path(source, schema_id))
    if not publish(published_path(schema_path(target, schema_id)), text.encode()):
        _check_same_schema(table, source, target, schema_id)


def _check_same_schema(
    table: StoredTable, source: SchemaManager, target: SchemaManager, schema_id: int
) -> None:
    if not _same_schema(table, source, target, schema_id):
        raise InvalidTableError(
            f"`{table.name}` has a different schema {schema_id} already.",
            hint="Create a new branch from the table as it is now.",
        )


def _same_schema(
    table: StoredTable, first: SchemaManager, second: SchemaManager, schema_id: int
) -> bool:
    texts = [
        table.paimon.file_io.read_file_utf8(schema_path(manager, schema_id))
        for manager in (first, second)
    ]
    return bool(json.loads(texts[0]) == json.loads(texts[1]))


def _schemas(table: StoredTable, branch: str) -> SchemaManager:
    return SchemaManager(table.paimon.file_io, table.paimon.table_path, branch)


def _check_branch_name(branch: str, *, is_new: bool = False) -> None:
    if (
        branch == "main"
        or (is_new and not branch.isprintable())
        or not branch.strip()
        or branch.isdigit()
        or not is_plain_name(branch, "branch-")
    ):
        raise InvalidTableError(
            f"A branch can't be named `{printable(shortened(branch, _SHOWN_MAX))}`.",
            hint="Choose a name that is neither `main` nor a number: no slashes, no leading dot, "
            "no control characters, at most some 240 bytes.",
        )
