"""Notes of streams that write a table: which transaction each stream's last epoch has.

A stream's query numbers its micro-batches, its epochs, and runs the last one again after a restart.
So the transaction of an epoch is noted beside the table before anything of it can be committed: the
next run of the epoch finds out what became of it, and commits nothing twice.

A note is one file for each query, `.streams/ID`, which is replaced whole. A process that dies
leaves the old note or the new one.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from paimon_magics.errors import InvalidValueError, TableDamagedError
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.tables.table import Table

__all__ = ["EpochNote", "note_epoch", "noted_epoch"]

_FOLDER = ".streams"
_ID = re.compile(r"[0-9A-Za-z-]{1,100}")


@dataclass(frozen=True, slots=True)
class EpochNote:
    """The last epoch of a query that began to write, and its transaction. `key` is what the
    coordinator knows the transaction by."""

    epoch: int
    transaction: Transaction
    key: str


def noted_epoch(table: Table, query_id: str) -> EpochNote | None:
    """The note of a query; None if it has not begun to write this table. Raises TableDamagedError
    for a note that can't be read."""
    path = _path(table, query_id)
    body = table.store.read(path)
    if body is None:
        return None
    try:
        found: dict[str, Any] = json.loads(body)
        transaction = Transaction(table=table.name, **found["transaction"])
        return EpochNote(int(found["epoch"]), transaction, str(found["key"]))
    except (ValueError, KeyError, TypeError) as error:
        raise TableDamagedError(
            f"The note of a stream, {path}, can't be read: {error}.",
            hint=f"See in `{table.name}$snapshots` what the stream has committed, then remove the "
            "file: the stream's last epoch is written again.",
        ) from error


def note_epoch(table: Table, query_id: str, note: EpochNote) -> None:
    """Replace the note of a query."""
    document = asdict(note.transaction)
    del document["table"]
    body = json.dumps({"epoch": note.epoch, "key": note.key, "transaction": document}).encode()
    table.store.make_folder(_folder(table))
    table.store.write(_path(table, query_id), body)


def _path(table: Table, query_id: str) -> str:
    if not _ID.fullmatch(query_id):
        raise InvalidValueError(f"{query_id!r} is not the id of a streaming query.")
    return f"{_folder(table)}/{query_id}"


def _folder(table: Table) -> str:
    root = str(table.paimon.table_path).rstrip("/")
    branch = table.paimon.current_branch()
    prefix = "" if branch == "main" else f"/branch/branch-{branch}"
    return f"{root}{prefix}/{_FOLDER}"
