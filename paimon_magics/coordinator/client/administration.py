"""The client's side of administration: status, pause, resume, drain and abort, of the coordinator,
its queues of small inserts, and its compactions.

Every request is sent once, without repetition; a new look at the status shows its effect.
"""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from paimon_magics.coordinator.client.small_inserts import table_path
from paimon_magics.coordinator.core import Origin, Pause, Phase
from paimon_magics.coordinator.protocol.documents import origin_of, table_document, table_of
from paimon_magics.coordinator.protocol.json_text import member
from paimon_magics.errors import SetupError, UnknownNameError, UnknownOutcomeError
from paimon_magics.origin import user_name
from paimon_magics.planning.formatting import count_text
from paimon_magics.statements.statement import TableName

__all__ = [
    "Administration",
    "BufferedInserts",
    "CompactedTable",
    "Pause",
    "Phase",
    "Status",
    "StoppedTable",
    "TooLateError",
    "Transactions",
    "UnfinishedTransaction",
    "WaitingInserts",
]

_LOOK_SECONDS = 0.1
_LOOK_SECONDS_MAX = 1.0
_PENDING = (Phase.ACTIVE, Phase.COMMITTING, Phase.UNCLEAR)
_UNFINISHED = (*_PENDING, Phase.ABORTING)

_Ask = Callable[[str, str, Any], tuple[str, Any]]

_WAIT_MS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class StoppedTable:
    """A table that takes no commits: its location, why, and since when."""

    location: str
    reason: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a coordinator: where and whose it is, and whether new work may begin.

    `problem` is why it takes nothing at all. `pending_commits` describes the engines' commits that
    are being published. `store` is how the coordinator reaches the warehouse, `store_trouble` why
    that failed the last time. `waiting` describes the tables whose small inserts can't be loaded.
    `is_ready` tells whether inserts and commits would be taken, `problems` what is wrong, the worst
    first.
    """

    address: str
    warehouse: str
    version: str
    user: str
    host: str
    process: int
    started_at_ms: int
    problem: str | None
    pause: Pause | None
    pending_transactions: int
    pending_commits: tuple[str, ...]
    stopped_tables: tuple[StoppedTable, ...]
    store: Mapping[str, str]
    store_trouble: str
    waiting: tuple[str, ...]
    is_ready: bool = True
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnfinishedTransaction:
    """A transaction that is open or being ended. Times are milliseconds since the epoch."""

    id: str
    table: str
    phase: Phase
    owner: str
    origin: Origin
    begun_at_ms: int
    expires_at_ms: int
    reason: str

    @property
    def is_pending(self) -> bool:
        """Whether it may still be committed."""
        return self.phase in _PENDING


Transactions = tuple[UnfinishedTransaction, ...]


class Ask(Protocol):
    """Sends one request to the coordinator; returns its address and the answer's document."""

    def __call__(self, method: str, path: str, document: Any = None) -> tuple[str, Any]:
        """Send a request. Raises PaimonMagicsErrors for answers that are errors."""


class Administration:
    """Requests to a coordinator beyond the client's own transactions."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    @property
    def queues(self) -> QueueAdministration:
        """The queues of small inserts."""
        return QueueAdministration(self._ask)

    @property
    def compactions(self) -> CompactionAdministration:
        """The coordinator's own compactions."""
        return CompactionAdministration(self._ask)

    def status(self) -> Status:
        """The coordinator's present state."""
        address, found = self._ask("GET", "/v1/coordinator")
        pause = found["pause"]
        return Status(
            address=address,
            warehouse=member(found, "warehouse", str),
            version=member(found, "version", str),
            user=member(found, "user", str),
            host=member(found, "host", str),
            process=member(found, "process", int),
            started_at_ms=member(found, "started_at_ms", int),
            problem=found["problem"],
            pause=None if pause is None else Pause(str(pause["by"]), int(pause["since_ms"])),
            pending_transactions=member(found, "pending_transactions", int),
            pending_commits=tuple(
                f"snapshot {one['snapshot_id']} of `{one['name']}` by {one['commit_user']}"
                for one in found["pending_commits"]
            ),
            stopped_tables=tuple(
                StoppedTable(one["location"], one["reason"], one["since_ms"])
                for one in found["stopped_tables"]
            ),
            # A coordinator of an earlier version leaves these out.
            store=found.get("store", {}),
            store_trouble=found.get("store_trouble", ""),
            waiting=tuple(
                f"{count_text(one['rows'], 'row')} of `{one['table']}`: {one['why']}"
                for one in found.get("waiting", ())
            ),
            is_ready=bool(found.get("ready", True)),
            problems=tuple(str(one["problem"]) for one in found.get("problems", ())),
        )

    def transactions(self) -> Transactions:
        """The unfinished transactions, oldest first."""
        _, found = self._ask("GET", "/v1/transactions")
        held = (_transaction(one) for one in found["transactions"])
        unfinished = (one for one in held if one.phase in _UNFINISHED)
        return tuple(sorted(unfinished, key=lambda one: (one.begun_at_ms, one.id)))

    def abort(self, id: str) -> None:
        """Abort an open transaction; its files are removed.

        Raises UnknownNameError for an unknown id, CommitConflictError if the commit is under way or
        done.
        """
        document = {"reason": f"{user_name() or 'somebody'} ended it"}
        self._ask("POST", f"/v1/transactions/{id}/abort", document)

    def pause(self) -> Pause:
        """Pause the coordinator: nothing new begins. Return who has paused it, and when."""
        _, found = self._ask("POST", "/v1/coordinator/pause", {"owner": user_name()})
        return Pause(member(found, "by", str), member(found, "since_ms", int))

    def resume(self) -> None:
        """End the pause."""
        self._ask("POST", "/v1/coordinator/resume")

    def resume_table(self, name: TableName) -> None:
        """Let a stopped table take commits again, in its present state."""
        self._ask("POST", "/v1/tables/resume", {"table": table_document(name)})

    def drain(self, wait_ms: int, waits: Callable[[int], None]) -> tuple[Transactions, Status]:
        """Pause the coordinator, wait until nothing is pending, and load the waiting inserts.

        Return what is still pending after `wait_ms`, and the status. `waits` is called once with
        the number of pending transactions and commits. The coordinator stays paused in any case.
        """
        self.pause()
        deadline = time.monotonic() + wait_ms / 1000
        pause_seconds = _LOOK_SECONDS
        told = False
        while True:
            status = self.status()
            count = status.pending_transactions + len(status.pending_commits)
            if not count:
                self._load_inserts(deadline)
            if not count or time.monotonic() >= deadline:
                return tuple(
                    transaction for transaction in self.transactions() if transaction.is_pending
                ), status
            if not told:
                waits(count)
                told = True
            time.sleep(min(pause_seconds, max(0.0, deadline - time.monotonic())))
            pause_seconds = min(pause_seconds * 2, _LOOK_SECONDS_MAX)

    def _load_inserts(self, deadline: float) -> None:
        """Load the waiting inserts of all queues, as far as time allows."""
        with contextlib.suppress(UnknownNameError):  # behind a REST catalog there are no queues
            for queue in self.queues.queues():
                left_ms = int((deadline - time.monotonic()) * 1000)
                if queue.waiting_rows and not queue.closed and left_ms > 0:
                    # `queues` still shows it
                    with contextlib.suppress(SetupError, UnknownOutcomeError):
                        self.queues.flush(queue.table, left_ms)


def _transaction(document: Any) -> UnfinishedTransaction:
    return UnfinishedTransaction(
        id=member(document, "id", str),
        table=member(document, "name", str) or member(document, "table", str),
        phase=Phase(member(document, "phase", str)),
        owner=member(document, "owner", str),
        origin=origin_of(document.get("origin")),
        begun_at_ms=member(document, "begun_at_ms", int),
        expires_at_ms=member(document, "expires_at_ms", int),
        reason=member(document, "reason", str),
    )


# The client's side of a coordinator's own compactions: what they do, pause and resume.


@dataclass(frozen=True, slots=True)
class CompactedTable:
    """A table that the coordinator looks after. `state` is tidy, due, waiting, running, left or
    failed; `buckets` with `size_bytes` to read are above their triggers since `since_ms`,
    `large_buckets` are too large for the coordinator. `why` says what stands in the way."""

    table: TableName
    state: str
    buckets: int
    size_bytes: int
    large_buckets: int
    large_bytes: int
    since_ms: int | None
    why: str


@dataclass(frozen=True, slots=True)
class CompactionStatus:
    """What the coordinator compacts by itself. `is_auto` if that includes tables whose options say
    nothing on it. `compacted_buckets` and `compacted_bytes` count since its start."""

    is_auto: bool
    pause: Pause | None
    workers: int
    compacted_buckets: int
    compacted_bytes: int
    tables: tuple[CompactedTable, ...]


class CompactionAdministration:
    """Requests about compactions. `ask` is as in `administration.Ask`."""

    def __init__(self, ask: _Ask) -> None:
        self._ask = ask

    def status(self) -> CompactionStatus:
        """What is compacted, and what waits. Raises UnknownNameError if the coordinator is of an
        earlier version, which compacts nothing."""
        _, found = self._ask("GET", "/v1/compactions", None)
        pause = found["pause"]
        return CompactionStatus(
            is_auto=member(found, "auto", bool),
            pause=None if pause is None else Pause(str(pause["by"]), int(pause["since_ms"])),
            workers=member(found, "workers", int),
            compacted_buckets=member(found, "compacted_buckets", int),
            compacted_bytes=member(found, "compacted_bytes", int),
            tables=tuple(_table(one) for one in found["tables"]),
        )

    def pause(self) -> Pause:
        """Let no compaction of the coordinator's begin. Return who has paused them, and when."""
        _, found = self._ask("POST", "/v1/compactions/pause", {"owner": user_name()})
        return Pause(member(found, "by", str), member(found, "since_ms", int))

    def resume(self) -> None:
        """End the pause."""
        self._ask("POST", "/v1/compactions/resume", None)


def _table(document: Any) -> CompactedTable:
    since_ms = document["since_ms"]
    return CompactedTable(
        table=table_of(document["table"]),
        state=member(document, "state", str),
        buckets=member(document, "buckets", int),
        size_bytes=member(document, "bytes", int),
        large_buckets=member(document, "large_buckets", int),
        large_bytes=member(document, "large_bytes", int),
        since_ms=None if since_ms is None else int(since_ms),
        why=member(document, "why", str),
    )


# The client's side of queues of small inserts: status, flush, reopening, dead letters.


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
