"""Finds in a table's snapshots which records of a log of small inserts it contains.

The properties of each batch's snapshot have the log's id and the batch's first and last record. A
batch with a record that is already in the table is never published again, even if its flusher
retries: the flusher may have stalled, or its batch may have been abandoned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from paimon_magics.errors import CommitConflictError
from paimon_magics.planning.commits.requests import CommitRequest
from paimon_magics.tables.snapshots.latest import (
    has_state,
    latest_snapshot,
    read_snapshot,
    state_of,
)
from paimon_magics.tables.snapshots.provenance import PREFIX
from paimon_magics.tables.table import Table

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
