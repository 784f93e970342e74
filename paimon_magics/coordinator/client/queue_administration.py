"""The client's side of queues of small inserts: status, flush, reopening, dead letters."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paimon_magics.coordinator.client.small_inserts import table_path
from paimon_magics.errors import SetupError
from paimon_magics.statements.statement import TableName

__all__ = ["BufferedInserts", "DeadLetter", "QueueAdministration", "TooLateError", "WaitingInserts"]

_WAIT_MS_MAX = 20_000

_Ask = Callable[[str, str, Any], tuple[str, Any]]


class TooLateError(SetupError):
    """A wait has ended without its result."""


@dataclass(frozen=True, slots=True)
class WaitingInserts:
    """The queue of one table. Records up to `acknowledged` are durable, those up to `published`
    visible (in `snapshot_id`). `oldest_ms` is when the oldest waiting record arrived. `closed` is
    why nothing is taken, `held_by` the number of statements with a place."""

    table: TableName
    acknowledged: int
    published: int
    snapshot_id: int | None
    waiting_rows: int
    waiting_bytes: int
    oldest_ms: int | None
    mode: str | None
    held_by: int
    dead_letters: int
    closed: str | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class BufferedInserts:
    """The acknowledged records that the snapshot `snapshot_id` (0 for none), the table's latest at
    that moment, does not show: those above `published`, in segments of the log by their first
    lsns."""

    snapshot_id: int
    published: int
    acknowledged: int
    segments: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Rows that were acknowledged and could not be loaded, and why."""

    lsn: int
    rows: int
    why: str
    at_ms: int


class QueueAdministration:
    """Requests about the queues of small inserts. `ask` is as in `administration.Ask`."""

    def __init__(self, ask: _Ask) -> None:
        self._ask = ask

    def queues(self) -> tuple[WaitingInserts, ...]:
        """The queues of all tables that have or had small inserts."""
        _, found = self._ask("GET", "/v1/inserts", None)
        return tuple(_queue(one) for one in found["tables"])

    def flush(self, table: TableName, wait_ms: int) -> tuple[int, int | None]:
        """Have everything acknowledged loaded. Return the last record's lsn, and the snapshot where
        it is known. Raises SetupError if that takes longer than `wait_ms`, or the store refuses."""
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            left_ms = max(0, int((deadline - time.monotonic()) * 1000))
            # Asked again every 20 s: an answer that takes longer looks like a process that hangs.
            document = {"wait_ms": min(left_ms, _WAIT_MS_MAX)}
            try:
                _, found = self._ask("POST", f"{table_path(table)}/flush", document)
            except TooLateError:
                if left_ms <= _WAIT_MS_MAX:
                    raise
                continue
            return int(found["lsn"]), found["snapshot_id"]

    def buffer(self, table: TableName) -> BufferedInserts:
        """The acknowledged records that are not visible yet. Raises CommitConflictError while they
        are unknown, InvalidValueError where they are too many bytes."""
        _, found = self._ask("GET", f"{table_path(table)}/buffer", None)
        segments = tuple((int(first), base64.b64decode(body)) for first, body in found["segments"])
        return BufferedInserts(
            int(found["snapshot_id"]), int(found["published"]), int(found["acknowledged"]), segments
        )

    def dead_letters(self, table: TableName) -> tuple[DeadLetter, ...]:
        """The dead letters of a table, oldest first."""
        _, found = self._ask("GET", f"{table_path(table)}/dead-letters", None)
        return tuple(
            DeadLetter(one["lsn"], one["rows"], one["why"], one["at_ms"])
            for one in found["dead_letters"]
        )

    def retry(self, table: TableName, lsn: int) -> int:
        """Insert a dead letter's rows anew. Return the lsn of their new record."""
        _, found = self._ask("POST", f"{table_path(table)}/dead-letters/{lsn}/retry", None)
        return int(found["lsn"])

    def discard(self, table: TableName, lsn: int) -> None:
        """Forget a dead letter."""
        self._ask("DELETE", f"{table_path(table)}/dead-letters/{lsn}", None)

    def reopen(self, table: TableName, *, accept_loss: bool) -> None:
        """Open a closed table again, with `accept_loss` without the missing records."""
        self._ask("POST", f"{table_path(table)}/reopen", {"accept_loss": accept_loss})


def _queue(document: Any) -> WaitingInserts:
    name = document["table"]
    return WaitingInserts(
        TableName(name["table"], name["database"]),
        document["acknowledged"],
        document["published"],
        document["snapshot_id"],
        document["waiting_rows"],
        document["waiting_bytes"],
        document["oldest_ms"],
        document["mode"],
        document["held_by"],
        document["dead_letters"],
        document["closed"],
        document["last_error"],
    )
