"""Who made a snapshot: what sessions write into its properties, and a table's history by it.

The properties travel in the snapshot itself, so they last as long as it does, and every engine
keeps them; snapshots of other engines have none.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.table import Table

__all__ = [
    "HISTORY_SCHEMA",
    "PREFIX",
    "USER",
    "described",
    "history",
    "made_by",
    "noted",
    "noted_files",
]

PREFIX = "paimon-magics."
USER = PREFIX + "user"

HISTORY_SCHEMA = pa.schema(
    [
        ("snapshot_id", pa.int64()),
        ("commit_kind", pa.string()),
        ("commit_time", pa.timestamp("ms", tz="UTC")),
        ("user", pa.string()),
        ("notebook", pa.string()),
        ("engine", pa.string()),
        ("statement", pa.string()),
        ("rows", pa.int64()),
        ("files", pa.int64()),
        ("commit_user", pa.string()),
    ]
)


def history(table: Table) -> pa.Table:
    """A table's snapshots, newest first, with who made them (`HISTORY_SCHEMA`).

    `user` and what follows are NULL for snapshots that no session of this project made; `statement`
    is a hash of its text, `rows` and `files` what it wrote.
    """
    folder, file_io = table.paimon.snapshot_manager().snapshot_dir, table.paimon.file_io
    stored = file_io.list_status(folder) if file_io.exists(folder) else []
    names = [str(status.path).rpartition("/")[2] for status in stored]
    ids = sorted(int(n[9:]) for n in names if n[:9] == "snapshot-" and n[9:].isdigit())[::-1]
    found = (read_snapshot(table.paimon, snapshot_id) for snapshot_id in ids)
    rows = [_row(snapshot) for snapshot in found if snapshot is not None]  # else expired meanwhile
    return pa.Table.from_pylist(rows, schema=HISTORY_SCHEMA)


def made_by(snapshot: Any) -> str:
    """Who made a snapshot, for a message: the user and notebook, else the commit user."""
    said = noted(snapshot.properties)
    user = said.get("user")
    if user is None:
        return str(snapshot.commit_user)
    notebook = said.get("notebook")
    return f"{user} in {notebook}" if notebook else user


def noted(properties: Mapping[str, Any] | None) -> dict[str, str]:
    """What a snapshot's properties say of where it comes from, without the prefix."""
    return {
        key.removeprefix(PREFIX): str(value)
        for key, value in (properties or {}).items()
        if key.startswith(PREFIX)
    }


def noted_files(properties: Iterable[tuple[str, str]]) -> int | None:
    """How many files a commit says that it has, None where it does not."""
    return _number(dict(properties).get(PREFIX + "files"))


def described(snapshot: Any) -> str:
    """A snapshot for a message: its id, its kind, who made it, when."""
    when = datetime.datetime.fromtimestamp(snapshot.time_millis / 1000, tz=datetime.UTC)
    return (
        f"snapshot {snapshot.id} ({snapshot.commit_kind} by {made_by(snapshot)} "
        f"at {when:%Y-%m-%d %H:%M:%S} UTC)"
    )


def _row(snapshot: Any) -> dict[str, object]:
    said = noted(snapshot.properties)
    return {
        "snapshot_id": snapshot.id,
        "commit_kind": snapshot.commit_kind,
        "commit_time": snapshot.time_millis,
        "user": said.get("user"),
        "notebook": said.get("notebook"),
        "engine": said.get("engine"),
        "statement": said.get("statement"),
        "rows": _number(said.get("rows")),
        "files": _number(said.get("files")),
        "commit_user": snapshot.commit_user,
    }


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
