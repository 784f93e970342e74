"""Notes of streams that write a table: which transaction each stream's last epoch has.

A stream's query numbers its micro-batches, its epochs, and runs the last one again after a restart.
So the transaction of an epoch is noted beside the table before any part of it can be committed. The
next run of the epoch looks up its result and commits nothing twice.

A note is one file for each query, `.streams/ID`, which is replaced whole. A process that dies
leaves either the old note or the new note. It is unknown when a query will never run again, so the
first note of another query removes notes that have not changed for `_KEPT_DAYS` days, except the
newest `_KEPT_NOTES_MIN`. Without a note, the properties of snapshots show which epoch was
committed, until these snapshots expire.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict, dataclass
from typing import Any

from paimon_magics.errors import InvalidValueError, TableDamagedError
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.tables.snapshots.latest import latest_snapshot, read_snapshot
from paimon_magics.tables.snapshots.provenance import PREFIX, noted
from paimon_magics.tables.table import Table, branch_folder, write_beside

_KEPT_DAYS = 90
_KEPT_NOTES_MIN = 100
_DAY_MS = 86_400_000
_STREAM, _EPOCH = "stream", "stream-epoch"
_FOLDER = ".streams"
_ID = re.compile(r"[0-9A-Za-z-]{1,100}")


@dataclass(frozen=True, slots=True)
class EpochNote:
    """The last epoch that a query began to write, and its transaction. `key` identifies the
    transaction at the coordinator, `owner` is the user that it knows the query by; "" without."""

    epoch: int
    transaction: Transaction
    key: str
    owner: str = ""


def noted_epoch(table: Table, query_id: str) -> EpochNote | None:
    """The note of a query; None if it has not begun to write this table. Raises TableDamagedError
    for a note that can't be read."""
    path = _path(table, query_id)
    body = table.store.read(path)
    if body is None:
        return None
    try:
        note: dict[str, Any] = json.loads(body)
        transaction = Transaction(table=table.name, **note["transaction"])
        owner = str(note.get("owner", ""))
        return EpochNote(int(note["epoch"]), transaction, str(note["key"]), owner)
    except (ValueError, KeyError, TypeError) as error:
        raise TableDamagedError(
            f"The note of a stream, {path}, can't be read: {error}.",
            hint=f"Check in `{table.name}$snapshots` what the stream has committed, then remove "
            "the file. The stream then writes its last epoch again.",
        ) from error


def note_epoch(table: Table, query_id: str, note: EpochNote) -> None:
    """Replace the note of a query. The first one removes notes of other queries that have not
    written for a long time."""
    path = _path(table, query_id)
    if table.store.read(path) is None:
        remove_old_notes(table)
    document = asdict(note.transaction)
    # Earlier versions read no other members; an epoch's transaction is only looked up by its note.
    del document["table"], document["base_manifest_list"], document["base_schema"]
    members = {"epoch": note.epoch, "key": note.key, "owner": note.owner, "transaction": document}
    write_beside(table, path, json.dumps(members).encode())


def remove_old_notes(table: Table, now_ms: float | None = None) -> None:
    """Remove the notes of queries that have not written for a long time. `now_ms` is the time, in
    milliseconds since 1970 UTC."""
    store, folder = table.store, _folder(table)
    names = [name for name in store.names(folder) if _ID.fullmatch(name)]
    if len(names) <= _KEPT_NOTES_MIN:
        return
    changed = {name: store.modified_ms(f"{folder}/{name}") or 0 for name in names}
    oldest = (time.time() * 1000 if now_ms is None else now_ms) - _KEPT_DAYS * _DAY_MS
    by_age = sorted(names, key=lambda name: changed[name], reverse=True)
    old = [name for name in by_age[_KEPT_NOTES_MIN:] if changed[name] < oldest]
    store.delete(f"{folder}/{name}" for name in old)


def epoch_properties(query_id: str, number: int) -> tuple[tuple[str, str], ...]:
    """The properties of the snapshot of an epoch."""
    return ((PREFIX + _STREAM, query_id), (PREFIX + _EPOCH, str(number)))


def committed_epoch(table: Table, query_id: str) -> int | None:
    """The last epoch of a query that a snapshot has in its properties; None if no snapshot that is
    kept has one. Reads snapshots from the latest back to it. Raises TableDamagedError for a
    snapshot of the query that does not tell."""
    snapshot = latest_snapshot(table.paimon)
    while snapshot is not None:
        properties = noted(snapshot.properties)
        if properties.get(_STREAM) == query_id:
            text = properties.get(_EPOCH, "")
            if text.isdecimal():
                return int(text)
            raise TableDamagedError(
                f"The note of the stream {query_id} is gone, and snapshot {snapshot.id} of "
                f"`{table.name}` does not tell which epoch it has.",
                hint=f"Check in `{table.name}$snapshots` what the stream has committed, and start "
                "it from there with a new checkpoint.",
            )
        snapshot = read_snapshot(table.paimon, snapshot.id - 1)
    return None


def _path(table: Table, query_id: str) -> str:
    if not _ID.fullmatch(query_id):
        raise InvalidValueError(f"{query_id!r} is not the id of a streaming query.")
    return f"{_folder(table)}/{query_id}"


def _folder(table: Table) -> str:
    return f"{branch_folder(table)}/{_FOLDER}"
