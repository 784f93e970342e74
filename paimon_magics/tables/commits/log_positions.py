"""Which records of a log of small inserts are in a table: told by its snapshots, nobody's memory.

The snapshot of each batch has the log's id and the batch's first and last record among its
properties. A batch of which some record is in the table already is not published again, whoever
thinks that it is not: a flusher that stood still, or one whose batch was given up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paimon_magics.errors import CommitConflictError
from paimon_magics.planning.commits.requests import CommitRequest
from paimon_magics.tables.snapshots.latest import latest_snapshot, read_snapshot
from paimon_magics.tables.snapshots.provenance import PREFIX
from paimon_magics.tables.table import Table

__all__ = ["LogPosition", "log_check", "log_position", "log_properties"]

_LOG = f"{PREFIX}log"
_FIRST = f"{PREFIX}log.first"
_LAST = f"{PREFIX}log.last"
_LABEL = f"{PREFIX}log.label"
_DEAD = f"{PREFIX}log.dead"
_LOOKED_AT_MAX = 1_000


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The last batch of a log in a table: its records but for `dead` ones are in the snapshot."""

    snapshot_id: int
    first: int
    last: int
    dead: int


def log_properties(log: str, first: int, last: int, dead: int) -> tuple[tuple[str, str], ...]:
    """What the snapshot of a batch says of it."""
    return (
        (_LOG, log),
        (_FIRST, str(first)),
        (_LAST, str(last)),
        (_DEAD, str(dead)),
        (_LABEL, f"{log}-{last}"),
    )


def log_position(table: Table, log: str, above: int, upto: int | None = None) -> LogPosition | None:
    """The log's last batch among the snapshots with ids above `above`, and below `upto` where that
    is given; None where there is none. Looks at a thousand snapshots at most, the newest first."""
    if upto is None:
        latest = latest_snapshot(table.paimon)
        upto = 1 if latest is None else latest.id + 1
    for id in range(upto - 1, max(above, upto - 1 - _LOOKED_AT_MAX), -1):
        snapshot = read_snapshot(table.paimon, id)
        if snapshot is None:
            return None  # it has expired, and all before it
        found = snapshot.properties or {}
        if found.get(_LOG) == log and _LAST in found:
            first, last = int(found[_FIRST]), int(found[_LAST])
            return LogPosition(id, first, last, int(found.get(_DEAD, "0")))
    return None


def log_check(table: Table, request: CommitRequest) -> Callable[[int], None]:
    """A check of the snapshots before the given id, for a commit of a batch; each of them is looked
    at once. It raises CommitConflictError where a record of the batch is in the table."""
    properties = dict(request.properties)
    log = properties.get(_LOG)
    if log is None or _FIRST not in properties:
        return _passes
    first, last = int(properties[_FIRST]), int(properties[_LAST])
    checked_to = request.transaction.base_snapshot_id

    def check(snapshot_id: int) -> None:
        nonlocal checked_to
        found = log_position(table, log, checked_to, snapshot_id)
        if found is not None and found.last >= first:
            raise CommitConflictError(
                f"Records {first} to {last} of the log {log} were not published: snapshot "
                f"{found.snapshot_id} of `{table.name}` has records up to {found.last} already.",
                hint="They are found there, and not loaded again.",
            )
        checked_to = max(checked_to, snapshot_id - 1)

    return check


def _passes(snapshot_id: int) -> None:
    """Nothing to check."""
