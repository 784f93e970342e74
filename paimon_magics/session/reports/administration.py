"""Administration of the session's coordinator: status, pause, resume, drain, small inserts.

Answers are Outcomes, like those of statements. Nothing here waits for a Spark job.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence

import pyarrow as pa

from paimon_magics.boundary import short_errors
from paimon_magics.columnar.time_zones import rules_of
from paimon_magics.coordinator.client.administration import (
    CompactedTable,
    Pause,
    Phase,
    Status,
    Transactions,
    WaitingInserts,
)
from paimon_magics.errors import UnknownNameError
from paimon_magics.session.connection import Connection
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.times import moments_in_zone
from paimon_magics.statements.clauses.names import named

DRAIN_SECONDS = 60.0

TRANSACTIONS_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("table", pa.string()),
        ("state", pa.string()),
        ("user", pa.string()),
        ("notebook", pa.string()),
        ("host", pa.string()),
        ("engine", pa.string()),
        ("age_seconds", pa.int64()),
        ("lease_seconds", pa.int64()),
        ("reason", pa.string()),
    ]
)


QUEUES_SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("state", pa.string()),
        ("mode", pa.string()),
        ("acknowledged", pa.int64()),
        ("visible", pa.int64()),
        ("waiting_rows", pa.int64()),
        ("waiting_bytes", pa.int64()),
        ("oldest_seconds", pa.int64()),
        ("dead_letters", pa.int64()),
        ("last_error", pa.string()),
    ]
)

COMPACTIONS_SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("state", pa.string()),
        ("buckets", pa.int64()),
        ("bytes", pa.int64()),
        ("large_buckets", pa.int64()),
        ("large_bytes", pa.int64()),
        ("waiting_seconds", pa.int64()),
        ("why", pa.string()),
    ]
)

DEAD_LETTERS_SCHEMA = pa.schema(
    [
        ("record", pa.int64()),
        ("rows", pa.int64()),
        ("reason", pa.string()),
        ("since", pa.timestamp("ms", tz="UTC")),
    ]
)


@short_errors
class Administration:
    """What `session.administration` offers.

    Raises SetupError if the session has no coordinator. Every method raises it if the coordinator
    can't be reached, or if the user lacks the right.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._coordinator = connection.committer.administration()

    @property
    def is_closed(self) -> bool:
        """Whether the session is closed; then no method works any more."""
        return self._connection.state.closed

    def status(self) -> Outcome:
        """Which coordinator it is, whether it takes new work, what is pending and stopped."""
        zone = self._connection.zone
        return _outcome("STATUS", _status_lines(self._coordinator.status(), zone))

    def transactions(self) -> Outcome:
        """The transactions that are not finished, the oldest first, with their owners.

        `lease_seconds` is how long a transaction stays open without a sign of life from its owner;
        NULL while its commit is under way. A transaction that is `aborting` has ended, and its
        files are being removed.
        """
        rows = self.transaction_rows()
        return Outcome.of_rows(self._connection.spark, "transactions", "TRANSACTIONS", rows, "")

    def transaction_rows(self) -> pa.Table:
        """The same as an Arrow table (`TRANSACTIONS_SCHEMA`)."""
        return _told(_rows(self._coordinator.transactions()), "reason", self._connection.zone)

    def status_now(self) -> Status:
        """The coordinator's current status."""
        return self._coordinator.status()

    def in_zone(self, text: str) -> str:
        """Return a coordinator's text with its moments in the session's zone."""
        return moments_in_zone(text, self._connection.zone)

    def queue_rows(self) -> pa.Table:
        """The queues of small inserts, by table (`QUEUES_SCHEMA`)."""
        return self._queues(self._coordinator.queues.queues())

    def queues(self, table: str | None = None) -> Outcome:
        """The queues of small inserts, by table; with a name, that table's queue."""
        found = self._coordinator.queues.queues()
        if table is not None:
            full = self._connection.full_name(named(table))
            found = tuple(one for one in found if one.table == full)
        return Outcome.of_rows(self._connection.spark, "queue", "QUEUE", self._queues(found), "")

    def _queues(self, queues: Sequence[WaitingInserts]) -> pa.Table:
        return _told(_queue_rows(queues), "last_error", self._connection.zone)

    def compactions(self) -> Outcome:
        """The tables that the coordinator compacts by itself, with what waits and why."""
        rows = self.compaction_rows()
        return Outcome.of_rows(self._connection.spark, "compactions", "COMPACTIONS", rows, "")

    def compaction_rows(self) -> pa.Table:
        """The same as an Arrow table (`COMPACTIONS_SCHEMA`)."""
        try:
            found = self._coordinator.compactions.status().tables
        except UnknownNameError:  # a coordinator of an earlier version
            found = ()
        return _told(_compaction_rows(found), "why", self._connection.zone)

    def pause_compactions(self) -> Outcome:
        """Let the coordinator begin no compaction of its own; statements still compact."""
        pause = self._coordinator.compactions.pause()
        since = _when(pause.since_ms, self._connection.zone)
        told = f"The coordinator compacts nothing: paused by {pause.by or 'somebody'} since {since}"
        return _outcome("PAUSE COMPACTIONS", [f"{told}."])

    def resume_compactions(self) -> Outcome:
        """End the pause of compactions."""
        self._coordinator.compactions.resume()
        return _outcome("RESUME COMPACTIONS", ["The coordinator compacts tables again."])

    def dead_letters(self, table: str) -> Outcome:
        """The acknowledged small inserts of a table that could not be loaded, with the reasons."""
        full = self._connection.full_name(named(table))
        letters = self._coordinator.queues.dead_letters(full)
        rows = [
            {"record": letter.lsn, "rows": letter.rows, "reason": letter.why, "since": letter.at_ms}
            for letter in letters
        ]
        found = pa.Table.from_pylist(rows, schema=DEAD_LETTERS_SCHEMA)
        found = _told(found, "reason", self._connection.zone)
        return Outcome.of_rows(self._connection.spark, f"dead {table}", "DEAD LETTERS", found, "")

    def retry(self, table: str, record: int) -> Outcome:
        """Insert the rows of a dead letter again, as they were sent. Raises InvalidValueError if
        they still do not fit."""
        full = self._connection.full_name(named(table))
        lsn = self._coordinator.queues.retry(full, record)
        told = f"The rows of record {record} of `{full}` are acknowledged again (record {lsn})."
        return _outcome("RETRY", [told])

    def discard(self, table: str, record: int) -> Outcome:
        """Delete a dead letter with its rows."""
        full = self._connection.full_name(named(table))
        self._coordinator.queues.discard(full, record)
        return _outcome("DISCARD", [f"The dead letter {record} of `{full}` is deleted."])

    def reopen(self, table: str, *, accept_loss: bool = False) -> Outcome:
        """Reopen a table whose log was lost or damaged: after the log is back or, with
        `accept_loss`, without the missing rows. Needs the right to administer."""
        full = self._connection.full_name(named(table))
        self._coordinator.queues.reopen(full, accept_loss=accept_loss)
        return _outcome("REOPEN", [f"`{full}` takes inserts again."])

    def abort(self, id: str) -> Outcome:
        """Abort an open transaction: its statement fails, and its files are removed.

        Raises UnknownNameError for an unknown id, CommitConflictError if its commit is under way or
        done.
        """
        self._coordinator.abort(id)
        return _outcome("ABORT", [f"Transaction {id} is ended. Its files are being removed."])

    def pause(self) -> Outcome:
        """Refuse new transactions; those that have begun can still be committed."""
        return _outcome("PAUSE", [_paused(self._coordinator.pause(), self._connection.zone)])

    def resume(self, table: str | None = None) -> Outcome:
        """End a pause; or, with a name, let a stopped table continue as it is."""
        if table is None:
            self._coordinator.resume()
            return _outcome("RESUME", ["The coordinator takes new transactions."])
        name = self._connection.full_name(named(table))
        self._coordinator.resume_table(name)
        return _outcome("RESUME", [f"Table `{name}` takes commits again, as it is."])

    def drain(
        self, seconds: float = DRAIN_SECONDS, *, waits: Callable[[int], None] = lambda count: None
    ) -> Outcome:
        """Pause, and wait until nothing is pending, at most `seconds`.

        The outcome says what is still pending. `waits` is called once, with the number of
        transactions to wait for.
        """
        pending, status = self._coordinator.drain(round(seconds * 1000), waits)
        lines = [_paused(status.pause, self._connection.zone)] if status.pause is not None else []
        if not pending and not status.pending_commits:
            return _outcome("DRAIN", [*lines, "Nothing is pending."])
        count = len(pending) + len(status.pending_commits)
        lines.append(f"After {seconds:g} s {_counted(count, 'is', 'are')} still pending:")
        now_ms = _now_ms()
        for one in pending:
            age = (now_ms - one.begun_at_ms) // 1000
            who = one.origin.describe(one.owner)
            lines.append(
                f"  {one.id} on `{one.table}` of {who}, {one.phase.value}, begun {age:,} s ago"
            )
        lines += [f"  {commit}" for commit in status.pending_commits]
        lines.append("Run the same again to go on waiting, or end one: `%paimon abort ID`.")
        return _outcome("DRAIN", lines)


def _outcome(kind: str, lines: list[str]) -> Outcome:
    return Outcome(statement=kind.lower(), kind=kind, message="\n".join(lines), query="")


def _told(rows: pa.Table, name: str, zone: str) -> pa.Table:
    """Return the rows with the moments in one text column converted to `zone`."""
    place = rows.schema.get_field_index(name)
    texts = [
        None if text is None else moments_in_zone(text, zone)
        for text in rows.column(place).to_pylist()
    ]
    return rows.set_column(place, rows.schema.field(place), pa.array(texts, pa.string()))


def _status_lines(status: Status, zone: str) -> list[str]:
    lines = [
        f"Coordinator of {status.warehouse} at {status.address}",
        f"  {status.user} on {status.host} (process {status.process}), version {status.version}, "
        f"since {_when(status.started_at_ms, zone)}",
    ]
    if status.problem is not None:
        lines.append(f"  It takes no commits and no inserts: {status.problem}")
    elif status.pause is not None:
        lines.append(f"  {_paused(status.pause, zone)}")
    else:
        lines.append("  It takes new transactions.")
    count = status.pending_transactions
    lines.append(f"  {_counted(count, 'transaction is', 'transactions are')} open.")
    lines += [f"  Being published: {commit}" for commit in status.pending_commits]
    if status.store:
        reached = ", ".join(f"{name} {value}" for name, value in status.store.items())
        lines.append(f"  Its access to the warehouse: {reached}.")
    if status.store_trouble:
        lines.append(f"  It can't write there now: {status.store_trouble}")
    for waiting in status.waiting:
        lines.append(f"  Acknowledged, durable, and not loaded: {waiting}")
    for table in status.stopped_tables:
        since = _when(table.since_ms, zone)
        lines.append(f"  Stopped: {table.location}, since {since}: {table.reason}")
    return [moments_in_zone(line, zone) for line in lines]


def _paused(pause: Pause, zone: str) -> str:
    return (
        f"It is paused by {pause.by or 'somebody'} since {_when(pause.since_ms, zone)}: "
        "nothing new begins."
    )


def _rows(transactions: Transactions) -> pa.Table:
    now_ms = _now_ms()
    rows = [
        {
            "id": transaction.id,
            "table": transaction.table,
            "state": transaction.phase.value,
            "user": transaction.owner or None,
            "notebook": transaction.origin.notebook or None,
            "host": transaction.origin.host or None,
            "engine": transaction.origin.engine or None,
            "age_seconds": (now_ms - transaction.begun_at_ms) // 1000,
            "lease_seconds": (transaction.expires_at_ms - now_ms) // 1000
            if transaction.phase is Phase.ACTIVE
            else None,
            "reason": transaction.reason or None,
        }
        for transaction in transactions
    ]
    return pa.Table.from_pylist(rows, schema=TRANSACTIONS_SCHEMA)


def _queue_rows(queues: Sequence[WaitingInserts]) -> pa.Table:
    now_ms = _now_ms()
    rows = [
        {
            "table": str(queue.table),
            "state": "closed" if queue.closed else "held" if queue.held_by else "open",
            "mode": queue.mode,
            "acknowledged": queue.acknowledged,
            "visible": queue.published,
            "waiting_rows": queue.waiting_rows,
            "waiting_bytes": queue.waiting_bytes,
            "oldest_seconds": None
            if queue.oldest_ms is None
            else (now_ms - queue.oldest_ms) // 1000,
            "dead_letters": queue.dead_letters,
            "last_error": queue.closed or queue.last_error,
        }
        for queue in queues
    ]
    return pa.Table.from_pylist(rows, schema=QUEUES_SCHEMA)


def _compaction_rows(tables: Sequence[CompactedTable]) -> pa.Table:
    now_ms = _now_ms()
    rows = [
        {
            "table": str(table.table),
            "state": table.state,
            "buckets": table.buckets,
            "bytes": table.size_bytes,
            "large_buckets": table.large_buckets,
            "large_bytes": table.large_bytes,
            "waiting_seconds": None
            if table.since_ms is None
            else (now_ms - table.since_ms) // 1000,
            "why": table.why or None,
        }
        for table in tables
    ]
    return pa.Table.from_pylist(rows, schema=COMPACTIONS_SCHEMA)


def _counted(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _when(at_ms: int, zone: str) -> str:
    when = datetime.datetime.fromtimestamp(at_ms / 1000, tz=rules_of(zone))
    return f"{when:%Y-%m-%d %H:%M:%S} {zone}"


def _now_ms() -> int:
    return int(time.time() * 1000)
