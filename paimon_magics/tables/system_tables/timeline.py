"""The timeline of a table's snapshots: what each commit did, and who made it.

A snapshot has the number of added rows. The numbers of files are in its delta manifest list, which
must be read for each snapshot: only the newest snapshots of a long history have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.tables.snapshots.chain import list_tags, load_tag, snapshot_by_id, snapshot_ids
from paimon_magics.tables.snapshots.provenance import noted
from paimon_magics.tables.system_tables.table_view import TableView

_Number = TypeVar("_Number", int, float)

_FIELDS: dict[str, pa.DataType] = {
    "snapshot_id": pa.int64(),
    "operation": pa.string(),
    "commit_kind": pa.string(),
    "commit_time": pa.timestamp("ms", tz="UTC"),
    "rows": pa.int64(),
    "total_rows": pa.int64(),
    "rows_inserted": pa.int64(),
    "rows_updated": pa.int64(),
    "rows_deleted": pa.int64(),
    "files_added": pa.int64(),
    "files_removed": pa.int64(),
    "tags": pa.string(),
    "user": pa.string(),
    "notebook": pa.string(),
    "engine": pa.string(),
    "seconds": pa.float64(),
    "statement": pa.string(),
    "schema_id": pa.int64(),
    "commit_user": pa.string(),
}


def _schema(names: str) -> pa.Schema:
    return pa.schema([(name, _FIELDS[name]) for name in names.split()])


TIMELINE = _schema(
    "snapshot_id commit_kind commit_time rows total_rows files_added files_removed tags user "
    "notebook schema_id commit_user"
)
"""The columns of `timeline`. `rows` is the difference that the commit made to the number of rows in
the table's files; it may be negative."""
HISTORY = _schema(
    "snapshot_id operation commit_kind commit_time user notebook engine rows rows_inserted "
    "rows_updated rows_deleted files_added files_removed seconds statement commit_user"
)
"""The columns of `history`. `rows` and the numbers of files are those of `timeline`. The rows
of each kind are what the statement reported, and `seconds` is how long it wrote."""

_KINDS = ("inserted", "updated", "deleted")
_COUNTED_MAX = 200
_READERS = 8  # how many files are read at once


def timeline(view: TableView) -> pa.Table:
    """The timeline of a table or branch with the columns of TIMELINE, newest snapshot first. The
    numbers of files are NULL for all but the newest 200 snapshots."""
    tags: dict[int, list[str]] = {}
    for name in list_tags(view.table):
        tag = load_tag(view.table, name)
        if tag is not None:
            tags.setdefault(tag["id"], []).append(name)
    return pa.Table.from_pylist(_snapshots(view, tags), schema=TIMELINE)


def history(view: TableView) -> pa.Table:
    """The timeline with what made each snapshot, with the columns of HISTORY.

    What the snapshot does not say is NULL: another engine's says little. `statement` is its text as
    far as it was kept, else a hash of it.
    """
    return pa.Table.from_pylist(_snapshots(view, {}), schema=HISTORY)


def _snapshots(view: TableView, tags: Mapping[int, list[str]]) -> list[dict[str, object]]:
    """Each snapshot with the columns of both tables; `tags` are their names by snapshot."""
    ids = snapshot_ids(view.table)[::-1]
    with ThreadPoolExecutor(_READERS) as pool:
        read = pool.map(lambda id: snapshot_by_id(view.table, id), ids)
        present = [snapshot for snapshot in read if snapshot is not None]  # else expired meanwhile
        counts = list(pool.map(lambda each: _file_counts(view, each), present[:_COUNTED_MAX]))
    counts += [(None, None)] * (len(present) - len(counts))
    return [
        _row(snapshot, added, removed, tags)
        for snapshot, (added, removed) in zip(present, counts, strict=True)
    ]


def _row(
    snapshot: Any, added: int | None, removed: int | None, tags: Mapping[int, list[str]]
) -> dict[str, object]:
    notes = noted(snapshot.get("properties"))
    return {
        "snapshot_id": snapshot["id"],
        "commit_kind": snapshot["commitKind"],
        "commit_time": snapshot["timeMillis"],
        "user": notes.get("user"),
        "notebook": notes.get("notebook"),
        "rows": snapshot.get("deltaRecordCount"),
        "total_rows": snapshot.get("totalRecordCount"),
        "files_added": added,
        "files_removed": removed,
        "tags": ", ".join(sorted(tags.get(snapshot["id"], ()))) or None,
        "schema_id": snapshot["schemaId"],
        "commit_user": snapshot["commitUser"],
        "operation": notes.get("operation"),
        "engine": notes.get("engine"),
        "statement": notes.get("sql") or notes.get("statement"),
        "seconds": _number(notes.get("seconds"), float),
        **{f"rows_{kind}": _number(notes.get(kind), int) for kind in _KINDS},
    }


def _number(text: str | None, kind: Callable[[str], _Number]) -> _Number | None:
    """The number of a property, which anybody may have written."""
    try:
        return None if text is None else kind(text)
    except ValueError:
        return None


def _file_counts(view: TableView, snapshot: Any) -> tuple[int | None, int | None]:
    """The numbers of files that a commit added and removed."""
    name = snapshot.get("deltaManifestList")
    if not name:
        return None, None
    listed = view.folder.columns.files(name)
    return (
        pc.sum(listed.column("num_added_files")).as_py() or 0,
        pc.sum(listed.column("num_deleted_files")).as_py() or 0,
    )
