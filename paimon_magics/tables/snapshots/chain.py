"""The snapshots and tags of a table as JSON documents, and rolling the table back.

Documents are passed on as they are stored, with keys that this project does not know. This module
takes no locks: a caller that rolls back must prevent commits of all processes that it knows of.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pypaimon.common import time_utils
from pypaimon.common.json_util import JSON

from paimon_magics.errors import (
    InvalidTableError,
    StatementError,
    UnknownNameError,
    UnsupportedStatementError,
)
from paimon_magics.faults import reach
from paimon_magics.planning.formatting import shortened
from paimon_magics.planning.options.values import TAG_DAYS_MAX
from paimon_magics.tables.pypaimon_internals import schema_path
from paimon_magics.tables.snapshots.latest import (
    changelog_folder,
    changelog_ids,
    earliest_snapshot_id,
    latest_snapshot,
    numbered,
    stored_changelogs,
    write_hint,
)
from paimon_magics.tables.snapshots.load_history import LoadHistory
from paimon_magics.tables.snapshots.tagged import is_tag_name, tag_path
from paimon_magics.tables.stores.corruption import parsing
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.stores.store import Publish
from paimon_magics.tables.table import StoredTable, publishes_itself

Document = dict[str, Any]
Removing = Callable[[str | None, int], object]
"""Is told of a branch (None for the main one) whose snapshots above an id are about to be removed.
Where it raises, nothing is removed."""

_DAY_NANOS = 86_400_000_000_000
_SHOWN_MAX = 60
_ID_MAX = 2**63 - 1
_TAG_KEYS = ("tagCreateTime", "tagTimeRetained")


# ---- snapshots ----


def latest_document(table: StoredTable) -> Document | None:
    """The latest snapshot; None for a table without snapshots."""
    latest = latest_snapshot(table.paimon)
    if latest is None:
        return None
    stored = snapshot_by_id(table, latest.id)
    if stored is not None and stored.get("uuid") == latest.uuid:
        return stored
    document: Document = json.loads(JSON.to_json(latest))
    return document


def snapshot_by_id(table: StoredTable, snapshot_id: int) -> Document | None:
    """The snapshot with this id; None if its file does not exist, or no longer."""
    if not 0 < snapshot_id <= _ID_MAX:
        return None
    manager = table.paimon.snapshot_manager()
    return _read(table, manager.get_snapshot_path(snapshot_id))


def usable_document(table: StoredTable, snapshot_id: int) -> Document | None:
    """The snapshot with this id; None if there is none, or it is expiring right now."""
    earliest = earliest_snapshot_id(table.paimon, table.store)
    if earliest is None or snapshot_id < earliest:
        return None
    return snapshot_by_id(table, snapshot_id)


def load_snapshot(table: StoredTable, version: str) -> Document | None:
    """The snapshot for `version`: EARLIEST, LATEST, an id, or a tag's name; None if absent."""
    match version:
        case "LATEST":
            return latest_document(table)
        case "EARLIEST":
            earliest = earliest_snapshot_id(table.paimon, table.store)
            return None if earliest is None else snapshot_by_id(table, earliest)
        case _ if version.isascii() and version.isdigit():
            return usable_document(table, int(version))
        case _:
            tag = load_tag(table, version)
            return None if tag is None else _trimmed(tag)


def list_snapshots(table: StoredTable, after: int, count: int | None) -> list[Document]:
    """Up to `count` snapshots with ids above `after`, oldest first."""
    documents: list[Document] = []
    earliest = earliest_snapshot_id(table.paimon, table.store) or 0
    for snapshot_id in snapshot_ids(table):
        if snapshot_id > after and snapshot_id >= earliest and len(documents) != count:
            document = snapshot_by_id(table, snapshot_id)
            if document is not None:  # else it expired meanwhile
                documents.append(document)
    return documents


def removes_silently(branch: str | None, above: int) -> None:
    """A `Removing` that notifies nobody."""


def roll_back(
    table: StoredTable,
    publish: Publish,
    *,
    snapshot_id: int | None = None,
    tag: str | None = None,
    removing: Removing = removes_silently,
) -> int:
    """Make an earlier snapshot, or a tag's, the latest again; return its id.

    Later snapshots, changelogs of expired ones, and their tags are removed. Snapshots go newest
    first, so that an interruption leaves no gap in the ids. Their data files stay. A tag can
    restore an expired snapshot. Raises UnknownNameError if there is neither snapshot nor tag.
    """
    refuse_remote(table, "it can't be rolled back")
    tags = {name: load_tag(table, name) for name in list_tags(table)}
    if tag is not None:
        tagged = tags.get(tag)
        if tagged is None:
            raise UnknownNameError(f"There is no tag `{tag}` of `{table.name}`.")
        target = _trimmed(tagged)
    else:
        assert snapshot_id is not None
        stored = _usable_or_tagged(table, snapshot_id)
        if stored is None:
            raise UnknownNameError(f"There is no snapshot {snapshot_id} of `{table.name}`.")
        target = stored
    manager = table.paimon.snapshot_manager()
    last: int = target["id"]
    expired = usable_document(table, last) is None
    if expired:
        path = published_path(manager.get_snapshot_path(last))
        publish(path, json.dumps(target, indent=2).encode())
    remove_above(table, last, tags, removing=removing)
    if expired:
        write_hint(table.store, f"{manager.snapshot_dir}/EARLIEST", last)
    return last


def remove_above(
    table: StoredTable,
    last: int,
    tags: Mapping[str, Document | None] | None = None,
    *,
    removing: Removing = removes_silently,
) -> None:
    """Remove all snapshots above the id `last` (0: all), changelogs of expired ones, their tags,
    and that files were loaded in them. `tags` are the table's, where they are known. Snapshots go
    newest first."""
    manager = table.paimon.snapshot_manager()
    if tags is None:
        tags = {name: load_tag(table, name) for name in list_tags(table)}
    removing(table.name.branch, last)
    if last:
        write_hint(table.store, manager.latest_file, last)
    else:
        table.store.delete([published_path(manager.latest_file)])
    for newer in reversed(snapshot_ids(table)):
        if newer > last:
            table.paimon.file_io.delete(manager.get_snapshot_path(newer))
    reach("chain.cut")
    _remove_changelogs_above(table, last)
    for name, document in tags.items():
        if document is not None and document["id"] > last:
            delete_tag(table, name)
    LoadHistory(table).forget_above(last)


def _remove_changelogs_above(table: StoredTable, last: int) -> None:
    """Set the hint of the changelog folder, then remove the changelogs above an id, as Paimon's
    `RollbackHelper` does."""
    folder, ids = changelog_folder(table), changelog_ids(table)
    newer = [changelog_id for changelog_id in ids if changelog_id > last]
    if newer:
        write_hint(table.store, f"{folder}/LATEST", last if ids[0] <= last else -1)
        table.store.delete(f"{folder}/changelog-{changelog_id}" for changelog_id in reversed(newer))


def snapshot_ids(table: StoredTable) -> list[int]:
    """The ids of all stored snapshots, ascending; some may be expiring right now."""
    folder = table.paimon.snapshot_manager().snapshot_dir
    return numbered(_names(table, folder), "snapshot-")


# ---- tags ----


def list_tags(table: StoredTable) -> list[str]:
    """The names of all tags, sorted."""
    folder = table.paimon.tag_manager().tag_directory()
    return sorted(n.removeprefix("tag-") for n in _names(table, folder) if n.startswith("tag-"))


def load_tag(table: StoredTable, name: str) -> Document | None:
    """The stored tag, which is a snapshot with up to two more keys; None if there is none."""
    return _read(table, tag_path(table, name)) if is_tag_name(name) else None


def expired_tags(table: StoredTable, now_ms: int, before_ms: int | None) -> list[str]:
    """The names of the tags whose time is over, and of those that were made before `before_ms`
    (both epoch milliseconds): Paimon's `TagTimeExpire`."""
    expired = []
    for name in list_tags(table):
        tag = load_tag(table, name)
        if tag is None:  # it was deleted meanwhile
            continue
        created_ms = tag_document(name, tag)["tagCreateTime"]
        retained = tag.get("tagTimeRetained")
        if created_ms is None or retained is None:
            retained = None
            created_ms = table.store.modified_ms(tag_path(table, name))
        is_over = retained is not None and created_ms + float(retained) * 1000 < now_ms
        is_older = before_ms is not None and created_ms is not None and created_ms < before_ms
        if is_over or is_older:
            expired.append(name)
    return expired


def tag_document(name: str, tag: Document) -> Document:
    """A stored tag as an answer of the REST protocol (`GetTagResponse`); times in milliseconds
    since 1970."""
    created, retained = (tag.get(key) for key in _TAG_KEYS)
    return {
        "tagName": name,
        "snapshot": _trimmed(tag),
        "tagCreateTime": None
        if created is None
        else time_utils.local_datetime_to_system_zone_millis(
            time_utils.json_array_to_local_datetime(created)
        ),
        "tagTimeRetained": retained_text(retained),
    }


def retained_text(stored: Any) -> str | None:
    """The stored `tagTimeRetained` in the form of ISO 8601; None for a tag that never expires. A
    time beyond the range of clocks, which another engine may store, counts as no expiry."""
    if stored is None:
        return None
    try:
        return str(time_utils.duration_to_iso8601(time_utils.json_seconds_to_duration(stored)))
    except (OverflowError, ValueError):
        return None


def create_tag(
    table: StoredTable,
    name: str,
    publish: Publish,
    *,
    snapshot_id: int | None,
    time_retained: str | None,
) -> bool:
    """Create a tag of a snapshot, by default the latest. Return False if the tag exists.

    `time_retained` is a duration in Paimon's notation, such as `12 h`. Raises UnknownNameError for
    a snapshot that does not exist, StatementError for what `retained_seconds` refuses.
    """
    content = _tag_content(table, snapshot_id, time_retained)
    return publish(published_path(tag_path(table, name)), content)


def replace_tag(
    table: StoredTable, name: str, *, snapshot_id: int | None, time_retained: str | None
) -> None:
    """Move an existing tag to another snapshot; see `create_tag`. Readers see the old tag or the
    new one."""
    content = _tag_content(table, snapshot_id, time_retained)
    table.store.write(published_path(tag_path(table, name)), content)


def rename_tag(
    table: StoredTable, name: str, new_name: str, publish: Publish, *, repeated: bool = False
) -> bool:
    """Rename an existing tag. Return False if the new name is taken.

    The tag has both names for a moment, and also after an interruption; a call with `repeated` then
    completes the renaming.
    """
    new_path = tag_path(table, new_name)
    content = table.paimon.file_io.read_file_utf8(tag_path(table, name))
    if not publish(published_path(new_path), content.encode()):
        taken = table.paimon.file_io.read_file_utf8(new_path)
        if not repeated or taken != content:
            return False
    reach("tag.renamed")
    return delete_tag(table, name)


def delete_tag(table: StoredTable, name: str) -> bool:
    """Remove a tag. Return False if there is none. Its snapshot and files stay."""
    path = tag_path(table, name)
    if not table.paimon.file_io.exists(path):
        return False
    table.paimon.file_io.delete(path)
    return True


def _tag_content(table: StoredTable, snapshot_id: int | None, time_retained: str | None) -> bytes:
    """The content of a tag's file: a snapshot, which may be kept only by another tag, with up to
    two more keys."""
    refuse_remote(table, "it can't be tagged")
    document = (
        latest_document(table) if snapshot_id is None else _usable_or_tagged(table, snapshot_id)
    )
    if document is None:
        shown = "snapshot" if snapshot_id is None else f"snapshot {snapshot_id}"
        raise UnknownNameError(
            f"There is no {shown} of `{table.name}`.",
            hint="Write to the table first."
            if snapshot_id is None
            else f"`{table.name}$snapshots` lists the snapshots that have not expired.",
        )
    if time_retained is not None:
        created = time_utils.local_datetime_to_json_array(datetime.datetime.now())
        document = document | dict(
            zip(_TAG_KEYS, (created, retained_seconds(time_retained)), strict=True)
        )
    return json.dumps(document).encode()


def _usable_or_tagged(table: StoredTable, snapshot_id: int) -> Document | None:
    stored = usable_document(table, snapshot_id)
    if stored is not None:
        return stored
    tags = (load_tag(table, name) for name in list_tags(table))
    return next((_trimmed(t) for t in tags if t is not None and t["id"] == snapshot_id), None)


def published_path(path: str) -> str:
    """A path of pypaimon in the form for `Publish`: plain on a local disk, else a URI."""
    return local_path(path) or path


def retained_seconds(duration: str) -> float:
    """How long a tag is to be kept, from Paimon's notation. Raises StatementError."""
    try:
        nanos = int(time_utils.parse_duration_nanos(duration))
    except ValueError as error:
        raise StatementError(
            f"'{shortened(duration, _SHOWN_MAX)}' is not a duration: "
            f"{shortened(str(error), 2 * _SHOWN_MAX)}",
            hint="Write it as `1 d`, `12 h` or `30 min`.",
        ) from error
    if nanos > TAG_DAYS_MAX * _DAY_NANOS:
        raise StatementError(
            f"A tag can't be kept for '{shortened(duration, _SHOWN_MAX)}': the longest time is "
            f"{TAG_DAYS_MAX} d.",
            hint="Leave the time out: the tag then stays until it is deleted.",
        )
    return nanos / 1_000_000_000


def _trimmed(tag: Document) -> Document:
    return {key: value for key, value in tag.items() if key not in _TAG_KEYS}


def _read(table: StoredTable, path: str) -> Document | None:
    with parsing(f"The file {path}"):
        try:
            document = json.loads(table.paimon.file_io.read_file_utf8(path))
        except FileNotFoundError:
            return None
        if not isinstance(document, dict):
            raise ValueError("it is not a JSON object")
        return document


def _names(table: StoredTable, folder: str) -> list[str]:
    if not table.paimon.file_io.exists(folder):
        return []
    return [str(info.path).rsplit("/", 1)[-1] for info in table.paimon.file_io.list_status(folder)]


def refuse_remote(table: StoredTable, problem: str) -> None:
    """Raise UnsupportedStatementError for the table of a REST catalog."""
    if publishes_itself(table):
        raise UnsupportedStatementError(
            f"`{table.name}` belongs to a REST catalog behind this one: {problem} here.",
            hint="Use that catalog instead.",
        )


# Rolling a table's schema back: an earlier schema becomes the newest again.
#
# The rule is that of Paimon's `SchemaManager.rollbackTo`: later schemas are removed, unless a
# snapshot, a tag or a changelog has one of them. This code takes no locks: a caller must prevent
# commits of all processes that it knows of.


def roll_back_schema(table: StoredTable, schema_id: int) -> None:
    """Make an earlier schema the newest. Later ones go newest first, so that an interruption leaves
    no gap in the ids.

    Raises UnknownNameError for a schema that does not exist, InvalidTableError if a snapshot, a tag
    or a changelog has a later one; nothing is changed then.
    """
    manager = table.paimon.schema_manager
    if schema_id > table.schema_id or manager.get_schema(schema_id) is None:
        raise UnknownNameError(
            f"`{table.name}` has no schema {schema_id}.",
            hint=f"Its newest schema is {table.schema_id}; `{table.name.table}$schemas` lists all "
            "schemas.",
        )
    later = sorted(used for used in _used(table) if used > schema_id)
    if later:
        raise InvalidTableError(
            # Paimon's own words, by which clients and their tests know this error.
            f"Cannot rollback to schema {schema_id}, schema {later[0]} is still referenced by "
            f"snapshots/tags/changelogs of `{table.name}`.",
            hint="Roll the table back first, and drop the tags that have later schemas.",
        )
    for newer in range(table.schema_id, schema_id, -1):
        table.store.delete([published_path(schema_path(manager, newer))])


def _used(table: StoredTable) -> Iterator[int]:
    """The schemas of all snapshots, tags and changelogs."""
    for snapshot in list_snapshots(table, 0, None):
        yield int(snapshot["schemaId"])
    for name in list_tags(table):
        tag = load_tag(table, name)
        if tag is not None:  # else it was dropped meanwhile
            yield int(tag["schemaId"])
    for changelog in stored_changelogs(table):
        yield int(changelog.schema_id)
