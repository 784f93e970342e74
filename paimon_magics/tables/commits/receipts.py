"""What was committed: the snapshot of a transaction with its receipt, the records of a log of small
inserts that snapshots contain, and the transaction that each stream's last epoch has.

The properties of each batch's snapshot have the log's id and the batch's first and last record. A
batch with a record that is already in the table is never published again, even if its flusher
retries: the flusher may have stalled, or its batch may have been abandoned.

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
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from paimon_magics.errors import (
    CommitConflictError,
    InvalidValueError,
    TableDamagedError,
    UnknownOutcomeError,
)
from paimon_magics.planning.commits.requests import CommitReceipt, CommitRequest, Transaction
from paimon_magics.tables.snapshots.chain import snapshot_by_id
from paimon_magics.tables.snapshots.latest import (
    has_state,
    latest_snapshot,
    read_snapshot,
    state_of,
)
from paimon_magics.tables.snapshots.provenance import PREFIX, noted
from paimon_magics.tables.table import StoredTable, Table, branch_folder, write_beside

Document = Mapping[str, Any]


def find_commit(table: Table, transaction: Transaction) -> CommitReceipt | None:
    """The receipt of the transaction's snapshot, or None if it certainly has none.

    Reads each snapshot since the transaction's base. Raises UnknownOutcomeError if one of them has
    expired, because the answer is then unknown.
    """
    latest = latest_snapshot(table.paimon)
    snapshot = find_snapshot(table, transaction, latest, transaction.base_snapshot_id)
    return None if snapshot is None else receipt_of(snapshot)


def find_snapshot(table: Table, transaction: Transaction, latest: Any, searched_to: int) -> Any:
    """The transaction's snapshot among those after `searched_to`, None if there is none.

    Raises UnknownOutcomeError if one of them has expired.
    """
    for snapshot_id in range(0 if latest is None else latest.id, searched_to, -1):
        snapshot = latest if snapshot_id == latest.id else read_snapshot(table.paimon, snapshot_id)
        if snapshot is None:
            raise UnknownOutcomeError(
                f"Snapshot {snapshot_id} of `{table.name}` has expired, so whether this statement "
                "was committed is unknown.",
                hint=f"Look for its rows in `{table.name}` before running it again.",
            )
        if (
            snapshot.commit_user == transaction.commit_user
            and snapshot.commit_identifier == transaction.commit_identifier
        ):
            return snapshot
    return None


def receipt_of(snapshot: Any) -> CommitReceipt:
    """The receipt of the commit that made one of pypaimon's snapshots."""
    return CommitReceipt(
        snapshot_id=snapshot.id,
        commit_kind=snapshot.commit_kind,
        total_rows=snapshot.total_record_count,
        delta_rows=snapshot.delta_record_count or 0,
        manifest_list=snapshot.delta_manifest_list,
    )


# A cache of who committed the last snapshots of tables, which saves reading them again.


class RecentCommits:
    """Caches who committed the last `snapshots` snapshots of each table, for the `tables` most
    recently used tables. Each snapshot that it finds is read again before it is returned."""

    def __init__(self, *, tables: int = 1000, snapshots: int = 128) -> None:
        self._tables = tables
        self._snapshots = snapshots
        self._known: OrderedDict[str, dict[int, tuple[Any, ...]]] = OrderedDict()
        self._guard = threading.Lock()

    def of(self, table: StoredTable, latest_id: int, commit: Document) -> list[Document]:
        """The last snapshots that have the user, identifier and kind of `commit`."""
        key = f"{table.location}@{table.name.branch or ''}@{table.table_id}"
        with self._guard:
            known = self._known.pop(key, {})
        first = max(1, latest_id - self._snapshots + 1)
        seen = {}
        for snapshot_id in range(latest_id, first - 1, -1):
            who = known.get(snapshot_id)
            if who is None:
                document = snapshot_by_id(table, snapshot_id)
                if document is None:  # expired, and so are those before it
                    break
                who = _who(document)
            seen[snapshot_id] = who
        with self._guard:
            self._known[key] = seen
            while len(self._known) > self._tables:
                self._known.popitem(last=False)
        ids = [snapshot_id for snapshot_id, who in seen.items() if who == _who(commit)]
        documents = (snapshot_by_id(table, snapshot_id) for snapshot_id in ids)
        return [s for s in documents if s is not None and _who(s) == _who(commit)]

    def forget(self, location: str) -> None:
        """Drop a table whose snapshots were changed by a roll-back."""
        prefix = f"{location}@"
        with self._guard:
            for key in [key for key in self._known if key.startswith(prefix)]:
                del self._known[key]


def _who(snapshot: Document) -> tuple[Any, ...]:
    return snapshot["commitUser"], snapshot["commitIdentifier"], snapshot["commitKind"]


_LOG = f"{PREFIX}log"
_FIRST = f"{PREFIX}log.first"
_LAST = f"{PREFIX}log.last"
_LABEL = f"{PREFIX}log.label"
_DEAD = f"{PREFIX}log.dead"
_LOOKED_AT_MAX = 1_000


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The last batch of a log in a table: the records `first` to `last`, without `dead` of them
    that became dead letters."""

    snapshot_id: int
    first: int
    last: int
    dead: int


def log_properties(log: str, first: int, last: int, dead: int) -> tuple[tuple[str, str], ...]:
    """The snapshot properties that describe a batch."""
    return (
        (_LOG, log),
        (_FIRST, str(first)),
        (_LAST, str(last)),
        (_DEAD, str(dead)),
        (_LABEL, f"{log}-{last}"),
    )


def is_of_log(properties: Mapping[str, str]) -> bool:
    """Whether the properties of a snapshot are those of a batch."""
    return _LOG in properties


def log_position(table: Table, log: str, above: int, upto: int | None = None) -> LogPosition | None:
    """The log's last batch in the snapshots with ids above `above` and, if given, below `upto`;
    None if there is none. Reads at most a thousand snapshots, newest first."""
    if upto is None:
        latest = latest_snapshot(table.paimon)
        upto = 1 if latest is None else latest.id + 1
    for id in range(upto - 1, max(above, upto - 1 - _LOOKED_AT_MAX), -1):
        snapshot = read_snapshot(table.paimon, id)
        if snapshot is None:
            return None  # it has expired, and so have all before it
        noted = snapshot.properties or {}
        if noted.get(_LOG) == log and _LAST in noted:
            first, last = int(noted[_FIRST]), int(noted[_LAST])
            return LogPosition(id, first, last, int(noted.get(_DEAD, "0")))
    return None


def log_check(table: Table, request: CommitRequest) -> Callable[[Any], None] | None:
    """Return a check of the snapshots up to the latest one (None for none), for the commit of a
    batch; None for other commits. It reads each snapshot once, and raises CommitConflictError if a
    record of the batch is in the table."""
    properties = dict(request.properties)
    log = properties.get(_LOG)
    if log is None or _FIRST not in properties:
        return None
    first, last = int(properties[_FIRST]), int(properties[_LAST])
    checked = request.transaction.base

    def check(latest: Any) -> None:
        nonlocal checked
        if not has_state(table, checked, latest):
            # After a roll-back, batches may have come into snapshots with earlier ids.
            checked = state_of(None)
        latest_id = 0 if latest is None else latest.id
        position = log_position(table, log, checked[0], latest_id + 1)
        if position is not None and position.last >= first:
            raise CommitConflictError(
                f"Records {first} to {last} of the log {log} were not published: snapshot "
                f"{position.snapshot_id} of `{table.name}` already has records up to "
                f"{position.last}.",
                hint="These records are in the table and are not loaded again.",
            )
        checked = state_of(latest)

    return check


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
