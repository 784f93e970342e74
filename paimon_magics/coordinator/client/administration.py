"""The client's side of administration: status, pause, resume, drain and abort, of the coordinator,
its queues of small inserts, and its compactions.

Every request is sent once, without repetition; a new look at the status shows its effect.
"""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from paimon_magics.coordinator.client.small_inserts import table_path
from paimon_magics.coordinator.core.values import Origin
from paimon_magics.coordinator.core.values import Pause as Pause
from paimon_magics.coordinator.core.values import Phase as Phase
from paimon_magics.coordinator.protocol.documents import origin_of, table_document, table_of
from paimon_magics.coordinator.protocol.json_text import member
from paimon_magics.errors import SetupError, UnknownNameError, UnknownOutcomeError
from paimon_magics.origin import user_name
from paimon_magics.planning.formatting import count_text
from paimon_magics.statements.statement import TableName

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_LOOK_SECONDS = 0.1
_LOOK_SECONDS_MAX = 1.0
_PENDING = (Phase.ACTIVE, Phase.COMMITTING, Phase.UNCLEAR)
_UNFINISHED = (*_PENDING, Phase.ABORTING)
_WAIT_MS_MAX = 20_000
_CHECKED = {"str": str, "int": int, "bool": bool}

_T = TypeVar("_T", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class StoppedTable:
    """A table that takes no commits: its location, why, and since when."""

    location: str
    reason: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a coordinator: where and whose it is, and whether new work may begin.

    `problem` is why it accepts no requests at all. `pending_commits` describes the engines' commits
    that are being published. `store` is how the coordinator reaches the warehouse, `store_trouble`
    why that failed the last time. `waiting` describes the tables whose small inserts can't be
    loaded. `is_ready` is whether inserts and commits are accepted. `problems` lists what is wrong,
    the worst problem first. `hands_out_keys`: whether sessions get keys of its store from it.
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
    hands_out_keys: bool = False


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
        self.queues = QueueAdministration(ask)
        self.grants = GrantAdministration(ask)
        self.compactions = CompactionAdministration(ask)

    def status(self) -> Status:
        """The coordinator's present state."""
        address, document = self._ask("GET", "/v1/coordinator")
        return _read(
            Status,
            document,
            address=address,
            pause=_pause(document["pause"]),
            pending_commits=tuple(
                f"snapshot {commit['snapshot_id']} of `{commit['name']}` by {commit['commit_user']}"
                for commit in document["pending_commits"]
            ),
            stopped_tables=tuple(
                _read(StoppedTable, table) for table in document["stopped_tables"]
            ),
            # A coordinator of an earlier version leaves these out.
            store=document.get("store", {}),
            store_trouble=document.get("store_trouble", ""),
            waiting=tuple(
                f"{count_text(queue['rows'], 'row')} of `{queue['table']}`: {queue['why']}"
                for queue in document.get("waiting", ())
            ),
            is_ready=bool(document.get("ready", True)),
            hands_out_keys=bool(document.get("hands_out_keys")),
            problems=tuple(str(problem["problem"]) for problem in document.get("problems", ())),
        )

    def transactions(self) -> Transactions:
        """The unfinished transactions, oldest first."""
        documents = self._ask("GET", "/v1/transactions")[1]["transactions"]
        transactions = [
            _read(
                UnfinishedTransaction,
                document,
                table=member(document, "name", str) or member(document, "table", str),
                phase=Phase(member(document, "phase", str)),
                origin=origin_of(document.get("origin")),
            )
            for document in documents
        ]
        unfinished = (each for each in transactions if each.phase in _UNFINISHED)
        return tuple(sorted(unfinished, key=lambda each: (each.begun_at_ms, each.id)))

    def abort(self, id: str) -> None:
        """Abort an open transaction; its files are removed.

        Raises UnknownNameError for an unknown id, CommitConflictError if the commit is under way or
        done.
        """
        document = {"reason": f"{user_name() or 'somebody'} ended it"}
        self._ask("POST", f"/v1/transactions/{id}/abort", document)

    def pause(self) -> Pause:
        """Pause the coordinator: nothing new begins. Return who has paused it, and when."""
        _, document = self._ask("POST", "/v1/coordinator/pause", {"owner": user_name()})
        return _read(Pause, document)

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
        is_reported = False
        while True:
            status = self.status()
            count = status.pending_transactions + len(status.pending_commits)
            if not count:
                self._load_inserts(deadline)
            if not count or time.monotonic() >= deadline:
                return tuple(each for each in self.transactions() if each.is_pending), status
            if not is_reported:
                waits(count)
                is_reported = True
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


def _read(kind: type[_T], document: Any, **others: Any) -> _T:
    """A `kind` from a document whose members have the names of its fields, except `others`."""
    members = {}
    for field in fields(kind):
        checked = _CHECKED.get(str(field.type))
        if field.name not in others:
            name = field.name
            members[name] = document[name] if checked is None else member(document, name, checked)
    return kind(**members, **others)


def _pause(document: Any) -> Pause | None:
    return None if document is None else _read(Pause, document)


@dataclass(frozen=True, slots=True)
class CompactedTable:
    """A table that the coordinator compacts. `state` is tidy, due, waiting, running, left or
    failed. `buckets` with `size_bytes` to read are above their triggers since `since_ms`;
    `large_buckets` are too large for the coordinator. `why` is the obstacle.
    """

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
    """What the coordinator compacts by itself. `is_auto` if that includes tables without an option
    for it. `compacted_buckets` and `compacted_bytes` count since its start.
    """

    is_auto: bool
    pause: Pause | None
    workers: int
    compacted_buckets: int
    compacted_bytes: int
    tables: tuple[CompactedTable, ...]


class CompactionAdministration:
    """Requests about the coordinator's own compactions."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def status(self) -> CompactionStatus:
        """What is compacted, and what waits. Raises UnknownNameError if the coordinator is of an
        earlier version, which compacts nothing."""
        _, document = self._ask("GET", "/v1/compactions")
        tables = tuple(
            _read(
                CompactedTable,
                table,
                table=table_of(table["table"]),
                size_bytes=member(table, "bytes", int),
            )
            for table in document["tables"]
        )
        is_auto = member(document, "auto", bool)
        pause = _pause(document["pause"])
        return _read(CompactionStatus, document, is_auto=is_auto, pause=pause, tables=tables)

    def pause(self) -> Pause:
        """Let no compaction of the coordinator's begin. Return who has paused them, and when."""
        _, document = self._ask("POST", "/v1/compactions/pause", {"owner": user_name()})
        return _read(Pause, document)

    def resume(self) -> None:
        """End the pause."""
        self._ask("POST", "/v1/compactions/resume")


class TooLateError(SetupError):
    """A wait ended without a result."""


@dataclass(frozen=True, slots=True)
class WaitingInserts:
    """The queue of one table. Records up to `acknowledged` are durable, those up to `published`
    visible (in `snapshot_id`). `oldest_ms` is when the oldest waiting record arrived. `closed` is
    why the queue accepts no inserts, `held_by` the number of statements with a place.
    """

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
    """The acknowledged records that are not in `snapshot_id`, the table's latest snapshot at that
    moment (0 for none). These are the records above `published`, in segments of the log by their
    first lsns.
    """

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


@dataclass(frozen=True, slots=True)
class GrantRow:
    """What a user, group or role (`to`, as `user:alice`) may do: `allow` is a scope with tables, or
    a role. `by` granted it."""

    to: str
    allow: str
    by: str
    at_ms: int

    @property
    def is_role(self) -> bool:
        """Whether it is a role, whose grants count."""
        return self.allow.startswith("role:")


class GrantAdministration:
    """Requests about grants."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def all(self) -> list[GrantRow]:
        """All grants for an administrator; for others those to them, their groups and roles."""
        return _grant_rows(self._ask("GET", "/v1/grants")[1]["grants"])

    def grant(self, to: Sequence[str], allow: Sequence[str]) -> list[GrantRow]:
        """Grant scopes or roles; return what is new."""
        document = {"to": list(to), "allow": list(allow)}
        return _grant_rows(self._ask("POST", "/v1/grants", document)[1]["granted"])

    def revoke(self, to: Sequence[str], allow: Sequence[str]) -> list[GrantRow]:
        """Take grants back; return them. Raises UnknownNameError where there are none."""
        document = {"to": list(to), "allow": list(allow)}
        return _grant_rows(self._ask("POST", "/v1/grants/revoke", document)[1]["revoked"])


def _grant_rows(documents: Sequence[Mapping[str, Any]]) -> list[GrantRow]:
    return [
        GrantRow(row["grantee"], row["text"], row["granted_by"], int(row["granted_at_ms"]))
        for row in documents
    ]


class QueueAdministration:
    """Requests about the queues of small inserts."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def queues(self) -> tuple[WaitingInserts, ...]:
        """The queues of all tables that have or had small inserts."""
        documents = self._ask("GET", "/v1/inserts")[1]["tables"]
        return tuple(
            _read(WaitingInserts, each, table=TableName(**each["table"])) for each in documents
        )

    def flush(self, table: TableName, wait_ms: int) -> tuple[int, int | None]:
        """Load all acknowledged records. Return the last record's lsn, and the snapshot if it is
        known. Raises SetupError if that takes longer than `wait_ms`, or the store refuses.
        """
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            left_ms = max(0, int((deadline - time.monotonic()) * 1000))
            # Asked again every 20 s: an answer that takes longer looks like a process that hangs.
            document = {"wait_ms": min(left_ms, _WAIT_MS_MAX)}
            try:
                _, flushed = self._ask("POST", f"{table_path(table)}/flush", document)
            except TooLateError:
                if left_ms <= _WAIT_MS_MAX:
                    raise
                continue
            return int(flushed["lsn"]), flushed["snapshot_id"]

    def buffer(self, table: TableName) -> BufferedInserts:
        """The acknowledged records that are not visible yet. Raises CommitConflictError while they
        are unknown, InvalidValueError if they have too many bytes.
        """
        _, document = self._ask("GET", f"{table_path(table)}/buffer")
        segments = document["segments"]
        decoded = tuple((int(first), base64.b64decode(body)) for first, body in segments)
        return _read(BufferedInserts, document, segments=decoded)

    def dead_letters(self, table: TableName) -> tuple[DeadLetter, ...]:
        """The dead letters of a table, oldest first."""
        _, document = self._ask("GET", f"{table_path(table)}/dead-letters")
        return tuple(_read(DeadLetter, letter) for letter in document["dead_letters"])

    def retry(self, table: TableName, lsn: int) -> int:
        """Insert a dead letter's rows again. Return the lsn of their new record."""
        _, document = self._ask("POST", f"{table_path(table)}/dead-letters/{lsn}/retry")
        return int(document["lsn"])

    def discard(self, table: TableName, lsn: int) -> None:
        """Forget a dead letter."""
        self._ask("DELETE", f"{table_path(table)}/dead-letters/{lsn}")

    def reopen(self, table: TableName, *, accept_loss: bool) -> None:
        """Open a closed table again. With `accept_loss`, without the missing records; without all
        waiting rows if the table is closed for another reason, or they can't be loaded."""
        self._ask("POST", f"{table_path(table)}/reopen", {"accept_loss": accept_loss})
