"""The first and the last snapshot of a table, at a cost that does not grow with their number.

The LATEST file is a hint that may lag behind. The ids after it are tried one by one. The folder is
listed only if the hint names no existing snapshot, or lags far behind.

No other module asks pypaimon for a snapshot: here a damaged snapshot file raises TableDamagedError
with its name.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from dataclasses import fields
from functools import lru_cache
from typing import Any

from pypaimon.common.json_util import JSON
from pypaimon.snapshot.snapshot import Snapshot

from paimon_magics.errors import CommitConflictError, OutdatedPlanError, PaimonMagicsError
from paimon_magics.tables.stores.corruption import SNAPSHOT_VERSION, check_version, damaged, parsing
from paimon_magics.tables.stores.store import Store
from paimon_magics.tables.table import StoredTable, Table

_STEPS_MAX = 100
_PARSED_MAX = 64  # some kilobytes each
_NUMBERS = tuple(  # as pypaimon declares them
    field.name for field in fields(Snapshot) if field.type in (int, int | None)
)
_OTHER = "Restore the file, or read another snapshot: VERSION AS OF."


def latest_snapshot(paimon: Any, branch: str | None = None) -> Any:
    """The latest snapshot of a table, or of `branch`, as pypaimon's Snapshot; None if there is
    none."""
    manager = _manager(paimon, branch)
    if paimon.catalog_environment.supports_version_management:
        return _served(manager)
    latest = _hinted(paimon, manager)
    for _ in range(_STEPS_MAX if latest is not None else 0):
        following = _read(paimon, manager, latest.id + 1)
        if following is None:
            return latest
        latest = following
    return _listed(paimon, manager)


def latest_snapshot_id(table: Table | StoredTable) -> int:
    """The id of the latest snapshot; 0 for a table without snapshots."""
    latest = latest_snapshot(table.paimon)
    return latest.id if latest is not None else 0


def latest_state(table: Table) -> tuple[int, str]:
    """The id of the latest snapshot and the name of its delta manifest list, by which another
    snapshot that took its id is noticed; 0 and "" for a table without snapshots."""
    return state_of(latest_snapshot(table.paimon))


def state_of(snapshot: Any) -> tuple[int, str]:
    """The id of a snapshot and the name of its delta manifest list; 0 and "" for None."""
    return (0, "") if snapshot is None else (snapshot.id, str(snapshot.delta_manifest_list))


def has_state(table: Table, state: tuple[int, str], latest: Any) -> bool | None:
    """Whether the snapshot of a `state_of` is still in a table, whose latest snapshot is `latest`
    (None for none). None if that is unknown, because the snapshot has expired.

    Without the name of a manifest list, any snapshot with the id counts. Reads the snapshot's file
    unless `latest` says it all.
    """
    snapshot_id, name = state
    latest_id, latest_name = state_of(latest)
    if snapshot_id >= latest_id:
        return snapshot_id == latest_id and name in ("", latest_name)
    if not name:
        return True
    snapshot = read_snapshot(table.paimon, snapshot_id)
    return None if snapshot is None else state_of(snapshot) == state


def read_snapshot(paimon: Any, snapshot_id: int, branch: str | None = None) -> Any:
    """A snapshot of a table, or of `branch`, as pypaimon's Snapshot; None if it does not exist, or
    no longer."""
    return _read(paimon, _manager(paimon, branch), snapshot_id)


def required_snapshot(
    table: Table,
    snapshot_id: int,
    unknown: str,
    error: type[CommitConflictError] = OutdatedPlanError,
) -> Any:
    """A snapshot that a commit is checked against. Raises `error` if it has expired since the
    statement began; `unknown` names the fact that can't be known without it."""
    snapshot = read_snapshot(table.paimon, snapshot_id)
    if snapshot is None:
        raise error(
            f"Snapshot {snapshot_id} of `{table.name}` expired while the statement was running, so "
            f"{unknown} unknown.",
            hint="Nothing was written. Run the statement again.",
        )
    return snapshot


def earliest_snapshot_id(paimon: Any, store: Store) -> int | None:
    """The id of the first usable snapshot; None for a table without snapshots.

    It is the EARLIEST hint. If that is missing or names no snapshot, it is the least stored id.
    """
    return _earliest(paimon, paimon.snapshot_manager(), store)


def is_usable(table: Table, snapshot_id: int) -> bool:
    """Whether a snapshot exists, and is not below EARLIEST: an expiry is removing those below.
    Unlike a search for the earliest snapshot, this lists no folder."""
    manager = table.paimon.snapshot_manager()
    if _read(table.paimon, manager, snapshot_id) is None:
        return False
    earliest = _hinted_earliest(table.paimon, manager, table.store)
    return earliest is None or snapshot_id >= earliest


def usable_snapshots(paimon: Any, store: Store, branch: str | None = None) -> list[Any]:
    """All usable snapshots of a table, or of `branch`, oldest first, as pypaimon's Snapshots.

    Snapshots below EARLIEST, which an interrupted expiry has left, are not usable.
    """
    manager = _manager(paimon, branch)
    earliest = _earliest(paimon, manager, store)
    ids = (id for id in _stored(manager, store) if earliest is None or id >= earliest)
    snapshots = (_read(paimon, manager, id) for id in ids)
    return [snapshot for snapshot in snapshots if snapshot is not None]


def remaining_snapshots(paimon: Any, store: Store, branch: str | None = None) -> list[Any]:
    """The snapshots of a table, or of `branch`, that an interrupted expiry has left below
    EARLIEST."""
    manager = _manager(paimon, branch)
    earliest = _earliest(paimon, manager, store)
    ids = (id for id in _stored(manager, store) if earliest is not None and id < earliest)
    snapshots = (_read(paimon, manager, id) for id in ids)
    return [snapshot for snapshot in snapshots if snapshot is not None]


def _manager(paimon: Any, branch: str | None) -> Any:
    manager = paimon.snapshot_manager()
    return manager if branch is None else manager.copy_with_branch(branch)


def _read(paimon: Any, manager: Any, snapshot_id: int) -> Any:
    path = manager.get_snapshot_path(snapshot_id)
    with parsing(f"The snapshot file {path}", _OTHER):
        try:
            text = paimon.file_io.read_file_utf8(path)
        except FileNotFoundError:
            return None
        snapshot = _parsed(text)
    check_version(f"The snapshot file {path}", snapshot.version, SNAPSHOT_VERSION)
    return snapshot


@lru_cache(maxsize=_PARSED_MAX)
def _parsed(text: str) -> Any:
    """The snapshot in a file's text. Cached: a statement requests one snapshot several times, and
    no caller changes it."""
    document = json.loads(text)
    if "\\u" in text:  # half a character can come as an escape alone
        return snapshot_of(document)
    return _snapshot(document, text)


def snapshot_of(document: Any) -> Any:
    """The pypaimon Snapshot of a JSON document. Raises ValueError for one that no Snapshot can be
    made of. Its numbers have 64 bits, as in Java's `Snapshot`: others could not be stored in a
    coordinator's records or in the next snapshot."""
    text = json.dumps(document, ensure_ascii=False)
    text.encode()  # neither a file nor an answer could hold a lone surrogate
    return _snapshot(document, text)


def _snapshot(document: Any, text: str) -> Any:
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    snapshot = JSON.from_json(text, Snapshot)
    for name in _NUMBERS:
        value = getattr(snapshot, name)
        is_number = type(value) is int and -(2**63) <= value < 2**63
        if not is_number and value is not None:
            raise ValueError(f"its `{name}` is not a 64-bit whole number")
    return snapshot


def _served(manager: Any) -> Any:
    """The latest snapshot, as the catalog's server reports it."""
    with parsing(f"The latest snapshot in {manager.snapshot_dir}", _OTHER):
        latest = manager.get_latest_snapshot()
    if latest is not None:
        check_version(
            f"The snapshot {latest.id} in {manager.snapshot_dir}", latest.version, SNAPSHOT_VERSION
        )
    return latest


def _listed(paimon: Any, manager: Any) -> Any:
    """The latest snapshot in the folder; None if there is none."""
    snapshot = _greatest(paimon, manager)
    if snapshot is not None or not _hint(paimon, manager):
        return snapshot
    snapshot = _greatest(paimon, manager)  # the first one may have come after the listing
    if snapshot is None:
        raise damaged(
            f"The latest snapshot in {manager.snapshot_dir}",
            "the LATEST file names a snapshot, but there is no snapshot file",
            "Restore the snapshot files.",
        )
    return snapshot


def _greatest(paimon: Any, manager: Any) -> Any:
    """The snapshot with the greatest id among the stored ones; None without any."""
    for snapshot_id in reversed(_ids(paimon, manager)):
        snapshot = _read(paimon, manager, snapshot_id)
        if snapshot is not None:  # else a rollback has removed it meanwhile
            return snapshot
    return None


def _ids(paimon: Any, manager: Any) -> list[int]:
    if not paimon.file_io.exists(manager.snapshot_dir):
        return []
    paths = (str(info.path) for info in paimon.file_io.list_status(manager.snapshot_dir))
    return numbered((path.rpartition("/")[2] for path in paths), "snapshot-")


def numbered(names: Iterable[str], prefix: str) -> list[int]:
    """The numbers in the names of files that are a prefix and a number, ascending."""
    texts = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return sorted(int(text) for text in texts if text.isdigit())


def _earliest(paimon: Any, manager: Any, store: Store) -> int | None:
    hinted = _hinted_earliest(paimon, manager, store)
    return min(_stored(manager, store), default=None) if hinted is None else hinted


def _hinted_earliest(paimon: Any, manager: Any, store: Store) -> int | None:
    """The snapshot that the EARLIEST hint names; None if it does not exist."""
    text = b""
    with contextlib.suppress(IsADirectoryError, NotADirectoryError):  # it is only a hint
        text = (store.read(f"{manager.snapshot_dir}/EARLIEST") or b"").strip()
    is_there = text.isdigit() and _read(paimon, manager, int(text)) is not None
    return int(text) if is_there else None


def _stored(manager: Any, store: Store) -> list[int]:
    with contextlib.suppress(NotADirectoryError):  # a file is in the folder's place
        return numbered(store.names(manager.snapshot_dir, "snapshot-"), "snapshot-")
    return []


def _hinted(paimon: Any, manager: Any) -> Any:
    """The snapshot that the LATEST hint names; None if it does not exist."""
    hint = _hint(paimon, manager)
    return _read(paimon, manager, int(hint)) if hint.isdigit() else None


def _hint(paimon: Any, manager: Any) -> bytes:
    try:
        with paimon.file_io.new_input_stream(manager.latest_file) as stream:
            return bytes(stream.read()).strip()
    except (FileNotFoundError, IsADirectoryError):
        return b""


def write_hint(store: Store, path: str, snapshot_id: int) -> None:
    """Write a LATEST or EARLIEST file; ignore a failure. It is only a hint: readers that find it
    stale or missing list the folder."""
    with contextlib.suppress(OSError, PaimonMagicsError):
        store.write(path, str(snapshot_id).encode())


# Changelogs that are kept after their snapshots have expired (Paimon's `ChangelogManager`).
#
# A changelog file is the snapshot's file under another name.


def stored_changelogs(table: Table | StoredTable, branch: str | None = None) -> list[Any]:
    """All stored changelogs of a table, or of `branch`, oldest first, as pypaimon's Snapshots."""
    ids = changelog_ids(table, branch)
    changelogs = (read_changelog(table, changelog_id, branch) for changelog_id in ids)
    return [changelog for changelog in changelogs if changelog is not None]


def changelog_ids(table: Table | StoredTable, branch: str | None = None) -> list[int]:
    """The ids of all stored changelogs of a table, or of `branch`, ascending."""
    return numbered(table.store.names(changelog_folder(table, branch), "changelog-"), "changelog-")


def is_stored_as_changelog(table: Table, snapshot_id: int, manifest_list: str) -> bool:
    """Whether the changelog of this snapshot is kept, and has `manifest_list` as its delta."""
    changelog = read_changelog(table, snapshot_id)
    return changelog is not None and changelog.delta_manifest_list == manifest_list


def changelog_folder(table: Table | StoredTable, branch: str | None = None) -> str:
    """The folder of the changelogs of a table, or of `branch`."""
    snapshots = str(_manager(table.paimon, branch).snapshot_dir)
    return f"{snapshots.rpartition('/')[0]}/changelog"


def read_changelog(table: Table | StoredTable, changelog_id: int, branch: str | None = None) -> Any:
    """A changelog as pypaimon's Snapshot; None if there is none."""
    content = table.store.read(f"{changelog_folder(table, branch)}/changelog-{changelog_id}")
    return None if content is None else snapshot_of(json.loads(content))
