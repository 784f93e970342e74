"""The first and the last snapshot of a table, at a cost that does not grow with their number.

The LATEST file is a hint that may lag: from the snapshot that it names the next ids are tried, one
by one. Only where it names none that exists, or lags far behind, is the folder listed.
"""

from __future__ import annotations

from typing import Any

from pypaimon.common.json_util import JSON
from pypaimon.snapshot.snapshot import Snapshot

from paimon_magics.tables.stores import Store

__all__ = ["earliest_snapshot_id", "latest_snapshot", "read_snapshot", "snapshot_identity"]

_STEPS_MAX = 100


def latest_snapshot(paimon: Any) -> Any:
    """pypaimon's value of the latest snapshot, None for a table without any."""
    manager = paimon.snapshot_manager()
    if paimon.catalog_environment.supports_version_management:
        return manager.get_latest_snapshot()
    found = _hinted(paimon, manager)
    for _ in range(_STEPS_MAX if found is not None else 0):
        following = read_snapshot(paimon, found.id + 1)
        if following is None:
            return found
        found = following
    return manager.get_latest_snapshot()


def snapshot_identity(paimon: Any) -> tuple[int, str] | None:
    """The latest snapshot's id and what tells it from another one of that id; None without one.

    A table that is dropped and made again counts its snapshots anew.
    """
    latest = latest_snapshot(paimon)
    if latest is None:
        return None
    return latest.id, f"{latest.uuid}/{latest.commit_user}/{latest.time_millis}"


def read_snapshot(paimon: Any, snapshot_id: int) -> Any:
    """pypaimon's value of a snapshot, None where there is none (or none any more)."""
    path = paimon.snapshot_manager().get_snapshot_path(snapshot_id)
    try:
        return JSON.from_json(paimon.file_io.read_file_utf8(path), Snapshot)
    except FileNotFoundError:
        return None


def earliest_snapshot_id(paimon: Any, store: Store) -> int | None:
    """The first snapshot that may be used, None for a table without any.

    The EARLIEST hint, or the least that is stored where that is missing or names none.
    """
    manager = paimon.snapshot_manager()
    hint = store.read(f"{manager.snapshot_dir}/EARLIEST")
    text = b"" if hint is None else hint.strip()
    if text.isdigit() and read_snapshot(paimon, int(text)) is not None:
        return int(text)
    names = store.names(manager.snapshot_dir, "snapshot-")
    ids = [int(name[9:]) for name in names if name[9:].isdigit()]
    return min(ids, default=None)


def _hinted(paimon: Any, manager: Any) -> Any:
    try:
        text = paimon.file_io.read_file_utf8(manager.latest_file).strip()
    except FileNotFoundError:
        return None
    return read_snapshot(paimon, int(text)) if text.isdigit() else None
