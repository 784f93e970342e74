"""The origin of a snapshot, which sessions write into its properties, and a table's history.

The properties are part of the snapshot: they last as long as it does, and every engine keeps them.
Snapshots of other engines have none.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.table import Table

__all__ = [
    "HISTORY_SCHEMA",
    "PREFIX",
    "ROLLED_BACK_FROM",
    "USER",
    "described",
    "history",
    "made_by",
    "noted",
    "noted_files",
    "noted_users",
]

PREFIX = "paimon-magics."
USER = PREFIX + "user"
ROLLED_BACK_FROM = PREFIX + "rolled-back-from"
"""The property of a snapshot without rows that a roll-back leaves: the latest id before it."""
_USERS_MAX = 50

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
    """A table's snapshots with their origin, newest first (`HISTORY_SCHEMA`).

    `statement` is a hash of the statement's text; `rows` and `files` are the numbers that it wrote.
    The columns from `user` to `files` are NULL for a snapshot of another engine.
    """
    folder, file_io = table.paimon.snapshot_manager().snapshot_dir, table.paimon.file_io
    stored = file_io.list_status(folder) if file_io.exists(folder) else []
    names = [str(status.path).rpartition("/")[2] for status in stored]
    ids = sorted(int(n[9:]) for n in names if n[:9] == "snapshot-" and n[9:].isdigit())[::-1]
    found = (read_snapshot(table.paimon, snapshot_id) for snapshot_id in ids)
    rows = [_row(snapshot) for snapshot in found if snapshot is not None]  # else expired meanwhile
    return pa.Table.from_pylist(rows, schema=HISTORY_SCHEMA)


def made_by(snapshot: Any) -> str:
    """The author of a snapshot, for a message: the user and notebook, else the commit user."""
    said = noted(snapshot.properties)
    user = said.get("user")
    if user is None:
        return str(snapshot.commit_user)
    notebook = said.get("notebook")
    return f"{user} in {notebook}" if notebook else user


def noted(properties: Mapping[str, Any] | None) -> dict[str, str]:
    """The properties of a snapshot that tell its origin, without the prefix."""
    return {
        key.removeprefix(PREFIX): str(value)
        for key, value in (properties or {}).items()
        if key.startswith(PREFIX)
    }


def noted_files(properties: Iterable[tuple[str, str]]) -> int | None:
    """The number of files in a commit's properties; None if they do not tell it."""
    return _number(dict(properties).get(PREFIX + "files"))


def noted_users(names: Sequence[str]) -> dict[str, str]:
    """The properties, without the prefix, that name everybody whose rows a commit has: as a text,
    and as JSON where there are several, of whom the first 50 are named."""
    kept = names[:_USERS_MAX]
    more = f" and {len(names) - len(kept)} more" if len(kept) < len(names) else ""
    told = {"user": ", ".join(kept) + more}
    return told if len(names) == 1 else {**told, "users": json.dumps(kept, ensure_ascii=False)}


def described(snapshot: Any) -> str:
    """A snapshot for a message: its id, kind, author and time."""
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
