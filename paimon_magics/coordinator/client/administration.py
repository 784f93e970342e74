"""The client's side of administration: status, pause, resume, drain, abort.

Every request is sent once, without repetition; a new look at the status shows its effect.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from paimon_magics.coordinator.client.compaction_administration import CompactionAdministration
from paimon_magics.coordinator.client.queue_administration import QueueAdministration
from paimon_magics.coordinator.core import Origin, Pause, Phase
from paimon_magics.coordinator.protocol.documents import origin_of, table_document
from paimon_magics.coordinator.protocol.members import member
from paimon_magics.errors import SetupError, UnknownNameError, UnknownOutcomeError
from paimon_magics.origin import user_name
from paimon_magics.planning.formatting import count_text
from paimon_magics.statements.statement import TableName

__all__ = [
    "Administration",
    "Pause",
    "Phase",
    "Status",
    "StoppedTable",
    "Transactions",
    "UnfinishedTransaction",
]

_LOOK_SECONDS = 0.1
_LOOK_SECONDS_MAX = 1.0
_PENDING = (Phase.ACTIVE, Phase.COMMITTING, Phase.UNCLEAR)
_UNFINISHED = (*_PENDING, Phase.ABORTING)


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
                return tuple(one for one in self.transactions() if one.is_pending), status
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
