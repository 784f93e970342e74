"""The queues of small inserts from a client: looked at, waited for, seen to."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from paimon_magics.coordinator.client.small_inserts import table_path
from paimon_magics.errors import SetupError
from paimon_magics.statements.statement import TableName

__all__ = ["BufferedInserts", "DeadLetter", "QueueAdministration", "TooLateError", "WaitingInserts"]

_WAIT_MS_MAX = 20_000

_Ask = Callable[[str, str, Any], tuple[str, Any]]


class TooLateError(SetupError):
    """What was waited for has not come in time."""


@dataclass(frozen=True, slots=True)
class WaitingInserts:
    """The queue of one table. Up to the record `acknowledged` all is durable, up to `published`
    visible (in `snapshot_id`); `oldest_ms` is when the oldest came that waits. `closed` says why
    nothing is taken, `held_by` how many statements keep their place."""

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
    """What is acknowledged and not visible in the snapshot `snapshot_id` (0 for none), which is the
    table's latest at that moment: the records above `published`, in segments of the log, each
    with its first record's number."""

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
    """What one may ask about small inserts. `ask` is as in `administering.Ask`."""

    def __init__(self, ask: _Ask) -> None:
        self._ask = ask

    def queues(self) -> tuple[WaitingInserts, ...]:
        """All tables that have, or had, small inserts."""
        _, found = self._ask("GET", "/v1/inserts", None)
        return tuple(_queue(one) for one in found["tables"])

    def flush(self, table: TableName, wait_ms: int) -> tuple[int, int | None]:
        """Have all loaded that was acknowledged: the last record's number, and the snapshot, where
        that is known. Raises SetupError when that takes longer, or when the store refuses them."""
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            left_ms = max(0, int((deadline - time.monotonic()) * 1000))
            # Asked again and again: an answer that takes longer looks like a process that hangs.
            document = {"wait_ms": min(left_ms, _WAIT_MS_MAX)}
            try:
                _, found = self._ask("POST", f"{table_path(table)}/flush", document)
            except TooLateError:
                if left_ms <= _WAIT_MS_MAX:
                    raise
                continue
            return int(found["lsn"]), found["snapshot_id"]

    def buffer(self, table: TableName) -> BufferedInserts:
        """What is acknowledged and not visible yet. Raises CommitConflictError while that is
        unknown, InvalidValueError where it is too much."""
        _, found = self._ask("GET", f"{table_path(table)}/buffer", None)
        segments = tuple((int(first), base64.b64decode(body)) for first, body in found["segments"])
        return BufferedInserts(
            int(found["snapshot_id"]), int(found["published"]), int(found["acknowledged"]), segments
        )

    def begin_change(
        self, table: TableName, *, takes_away: bool, renamed_to: TableName | None = None
    ) -> str:
        """The place of a statement that changes the table, or `takes_away` what has its name
        (`renamed_to` another one): all that was acknowledged is visible, and no insert is taken
        until `end_change`."""
        document: dict[str, Any] = {"takes_away": takes_away}
        if renamed_to is not None:
            to = {"database": renamed_to.database, "table": renamed_to.table}
            document["renamed_to"] = to
        _, found = self._ask("POST", f"{table_path(table)}/changes", document)
        return str(found["id"])

    def end_change(self, table: TableName, id: str, *, done: bool) -> None:
        """The statement has ended."""
        path = f"{table_path(table)}/changes/{quote(id, safe='')}?done={str(done).lower()}"
        self._ask("DELETE", path, None)

    def dead_letters(self, table: TableName) -> tuple[DeadLetter, ...]:
        """The dead letters of a table, oldest first."""
        _, found = self._ask("GET", f"{table_path(table)}/dead-letters", None)
        return tuple(
            DeadLetter(one["lsn"], one["rows"], one["why"], one["at_ms"])
            for one in found["dead_letters"]
        )

    def retry(self, table: TableName, lsn: int) -> int:
        """Insert a dead letter's rows anew; the number of their record."""
        _, found = self._ask("POST", f"{table_path(table)}/dead-letters/{lsn}/retry", None)
        return int(found["lsn"])

    def discard(self, table: TableName, lsn: int) -> None:
        """Forget a dead letter."""
        self._ask("DELETE", f"{table_path(table)}/dead-letters/{lsn}", None)

    def reopen(self, table: TableName, *, accept_loss: bool) -> None:
        """Let a closed table go on, with `accept_loss` without the records that are missing."""
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
