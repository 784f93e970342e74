"""Administration of the session's coordinator: status, pause, resume, drain, small inserts.

Answers are Outcomes, like those of statements. Nothing here waits for a Spark job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa

from paimon_magics.boundary import short_errors
from paimon_magics.columnar.time_zones import moment_text, moments_in_zone
from paimon_magics.coordinator.client.administration import (
    CompactedTable,
    DeadLetter,
    Pause,
    Phase,
    Status,
    UnfinishedTransaction,
    WaitingInserts,
)
from paimon_magics.errors import UnknownNameError
from paimon_magics.planning.formatting import count_text
from paimon_magics.session.connection import Connection
from paimon_magics.session.outcome import Outcome
from paimon_magics.statements.clauses.names import named

_DRAIN_SECONDS = 60.0

_Row = TypeVar("_Row")
_Columns = Mapping[str, tuple[pa.DataType, Callable[[_Row, int], object]]]
"""The columns of a table: each one's type, and its value at a moment, in milliseconds."""

_TRANSACTIONS: _Columns[UnfinishedTransaction] = {
    "id": (pa.string(), lambda row, _: row.id),
    "table": (pa.string(), lambda row, _: row.table),
    "state": (pa.string(), lambda row, _: row.phase.value),
    "user": (pa.string(), lambda row, _: row.owner or None),
    "notebook": (pa.string(), lambda row, _: row.origin.notebook or None),
    "host": (pa.string(), lambda row, _: row.origin.host or None),
    "engine": (pa.string(), lambda row, _: row.origin.engine or None),
    "age_seconds": (pa.int64(), lambda row, now_ms: (now_ms - row.begun_at_ms) // 1000),
    "lease_seconds": (pa.int64(), lambda row, now_ms: _lease_seconds(row, now_ms)),
    "reason": (pa.string(), lambda row, _: row.reason or None),
}
_QUEUES: _Columns[WaitingInserts] = {
    "table": (pa.string(), lambda row, _: str(row.table)),
    "state": (pa.string(), lambda row, _: _queue_state(row)),
    "mode": (pa.string(), lambda row, _: row.mode),
    "acknowledged": (pa.int64(), lambda row, _: row.acknowledged),
    "visible": (pa.int64(), lambda row, _: row.published),
    "waiting_rows": (pa.int64(), lambda row, _: row.waiting_rows),
    "waiting_bytes": (pa.int64(), lambda row, _: row.waiting_bytes),
    "oldest_seconds": (pa.int64(), lambda row, now_ms: _seconds_since(row.oldest_ms, now_ms)),
    "dead_letters": (pa.int64(), lambda row, _: row.dead_letters),
    "last_error": (pa.string(), lambda row, _: row.closed or row.last_error),
}
_COMPACTIONS: _Columns[CompactedTable] = {
    "table": (pa.string(), lambda row, _: str(row.table)),
    "state": (pa.string(), lambda row, _: row.state),
    "buckets": (pa.int64(), lambda row, _: row.buckets),
    "bytes": (pa.int64(), lambda row, _: row.size_bytes),
    "large_buckets": (pa.int64(), lambda row, _: row.large_buckets),
    "large_bytes": (pa.int64(), lambda row, _: row.large_bytes),
    "waiting_seconds": (pa.int64(), lambda row, now_ms: _seconds_since(row.since_ms, now_ms)),
    "why": (pa.string(), lambda row, _: row.why or None),
}
_DEAD_LETTERS: _Columns[DeadLetter] = {
    "record": (pa.int64(), lambda row, _: row.lsn),
    "rows": (pa.int64(), lambda row, _: row.rows),
    "reason": (pa.string(), lambda row, _: row.why),
    "since": (pa.timestamp("ms", tz="UTC"), lambda row, _: row.at_ms),
}


@short_errors
class Administration:
    """Administration of the coordinator, as `session.administration`.

    Raises SetupError if the session has no coordinator. Every method raises it if the coordinator
    can't be reached, or if the user lacks the permission.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._coordinator = connection.committer.administration()

    @property
    def is_closed(self) -> bool:
        """Whether the session is closed; then no method works any more."""
        return self._connection.state.closed

    def status(self) -> Outcome:
        """Which coordinator it is, whether it accepts new work, what is pending and stopped."""
        zone = self._connection.zone
        return _outcome("STATUS", _status_lines(self._coordinator.status(), zone))

    def transactions(self) -> Outcome:
        """The transactions that are not finished, the oldest first, with their owners.

        `lease_seconds` is how long a transaction stays open without a renewal by its owner;
        NULL while its commit is under way. A transaction that is `aborting` has ended, and its
        files are being removed.
        """
        rows = self.transaction_rows()
        return Outcome.of_rows(self._connection.spark, "transactions", "TRANSACTIONS", rows, "")

    def transaction_rows(self) -> pa.Table:
        """The same as an Arrow table."""
        return self._rows(_TRANSACTIONS, self._coordinator.transactions(), "reason")

    def status_now(self) -> Status:
        """The coordinator's current status."""
        return self._coordinator.status()

    def in_zone(self, text: str) -> str:
        """Return a coordinator's text with its moments in the session's zone."""
        return moments_in_zone(text, self._connection.zone)

    def queue_rows(self) -> pa.Table:
        """The queues of small inserts, by table, as an Arrow table."""
        return self._rows(_QUEUES, self._coordinator.queues.queues(), "last_error")

    def queues(self, table: str | None = None) -> Outcome:
        """The queues of small inserts, by table; with a name, that table's queue."""
        queues = self._coordinator.queues.queues()
        if table is not None:
            full = self._connection.full_name(named(table))
            queues = tuple(queue for queue in queues if queue.table == full)
        rows = self._rows(_QUEUES, queues, "last_error")
        return Outcome.of_rows(self._connection.spark, "queue", "QUEUE", rows, "")

    def compactions(self) -> Outcome:
        """The tables that the coordinator compacts by itself, with what waits and why."""
        rows = self.compaction_rows()
        return Outcome.of_rows(self._connection.spark, "compactions", "COMPACTIONS", rows, "")

    def compaction_rows(self) -> pa.Table:
        """The same as an Arrow table."""
        try:
            tables = self._coordinator.compactions.status().tables
        except UnknownNameError:  # a coordinator of an earlier version
            tables = ()
        return self._rows(_COMPACTIONS, tables, "why")

    def _rows(self, columns: _Columns[_Row], rows: Sequence[_Row], text: str) -> pa.Table:
        """The rows as an Arrow table. The moments in the column `text` are in the session's
        zone."""
        now_ms, zone = _now_ms(), self._connection.zone
        table = pa.table(
            {
                name: pa.array([value(row, now_ms) for row in rows], kind)
                for name, (kind, value) in columns.items()
            }
        )
        place = table.schema.get_field_index(text)
        texts = [
            value and moments_in_zone(value, zone) for value in table.column(place).to_pylist()
        ]
        return table.set_column(place, table.schema.field(place), pa.array(texts, pa.string()))

    def pause_compactions(self) -> Outcome:
        """Let the coordinator begin no compaction of its own; statements still compact."""
        pause = self._coordinator.compactions.pause()
        since = moment_text(pause.since_ms, self._connection.zone)
        line = (
            f"The coordinator compacts nothing: paused by {pause.by or 'somebody'} since {since}."
        )
        return _outcome("PAUSE COMPACTIONS", [line])

    def resume_compactions(self) -> Outcome:
        """End the pause of compactions."""
        self._coordinator.compactions.resume()
        return _outcome("RESUME COMPACTIONS", ["The coordinator compacts tables again."])

    def dead_letters(self, table: str) -> Outcome:
        """The acknowledged small inserts of a table that could not be loaded, with the reasons."""
        full = self._connection.full_name(named(table))
        letters = self._coordinator.queues.dead_letters(full)
        rows = self._rows(_DEAD_LETTERS, letters, "reason")
        return Outcome.of_rows(self._connection.spark, f"dead {table}", "DEAD LETTERS", rows, "")

    def retry(self, table: str, record: int) -> Outcome:
        """Insert the rows of a dead letter again, as they were sent. Raises InvalidValueError if
        they still do not fit."""
        full = self._connection.full_name(named(table))
        lsn = self._coordinator.queues.retry(full, record)
        line = f"The rows of record {record} of `{full}` are acknowledged again (record {lsn})."
        return _outcome("RETRY", [line])

    def discard(self, table: str, record: int) -> Outcome:
        """Delete a dead letter with its rows."""
        full = self._connection.full_name(named(table))
        self._coordinator.queues.discard(full, record)
        return _outcome("DISCARD", [f"The dead letter {record} of `{full}` is deleted."])

    def loss(self, table: str) -> str:
        """What a table would lose if it is reopened with `accept_loss`."""
        full = self._connection.full_name(named(table))
        for queue in self._coordinator.queues.queues():
            why = queue.closed or queue.last_error
            if queue.table == full and (why or queue.waiting_rows):
                count = count_text(queue.waiting_rows, "acknowledged row")
                shown = f": {self.in_zone(why)}" if why else "."
                return (
                    f"Acknowledged rows of `{full}` that can't be loaded are given up for good; "
                    f"{count} wait{shown}"
                )
        return f"Rows of `{full}` that were acknowledged, and are not in it, are given up for good."

    def reopen(self, table: str, *, accept_loss: bool = False) -> Outcome:
        """Reopen a table whose log was lost or damaged: after the log is back or, with
        `accept_loss`, without the missing rows. A table that is closed for another reason, or
        whose rows can't be loaded, loses all its waiting rows by `accept_loss`. Requires permission
        to administer."""
        full = self._connection.full_name(named(table))
        self._coordinator.queues.reopen(full, accept_loss=accept_loss)
        return _outcome("REOPEN", [f"`{full}` accepts inserts again."])

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
            return _outcome("RESUME", ["The coordinator accepts new transactions."])
        name = self._connection.full_name(named(table))
        self._coordinator.resume_table(name)
        return _outcome("RESUME", [f"Table `{name}` accepts commits again, as it is."])

    def drain(
        self, seconds: float = _DRAIN_SECONDS, *, waits: Callable[[int], None] = lambda count: None
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
        for transaction in pending:
            age = (now_ms - transaction.begun_at_ms) // 1000
            owner = transaction.origin.describe(transaction.owner)
            lines.append(
                f"  {transaction.id} on `{transaction.table}` of {owner}, "
                f"{transaction.phase.value}, begun {age:,} s ago"
            )
        lines += [f"  {commit}" for commit in status.pending_commits]
        lines.append("Run the same again to continue waiting, or end one: `%paimon abort ID`.")
        return _outcome("DRAIN", lines)


def _outcome(kind: str, lines: list[str]) -> Outcome:
    return Outcome(statement=kind.lower(), kind=kind, message="\n".join(lines), query="")


def _status_lines(status: Status, zone: str) -> list[str]:
    lines = [
        f"Coordinator of {status.warehouse} at {status.address}",
        f"  {status.user} on {status.host} (process {status.process}), version {status.version}, "
        f"since {moment_text(status.started_at_ms, zone)}",
    ]
    if status.problem is not None:
        lines.append(f"  It accepts no commits and no inserts: {status.problem}")
    elif status.pause is not None:
        lines.append(f"  {_paused(status.pause, zone)}")
    else:
        lines.append("  It accepts new transactions.")
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
        since = moment_text(table.since_ms, zone)
        lines.append(f"  Stopped: {table.location}, since {since}: {table.reason}")
    return [moments_in_zone(line, zone) for line in lines]


def _paused(pause: Pause, zone: str) -> str:
    return (
        f"It is paused by {pause.by or 'somebody'} since {moment_text(pause.since_ms, zone)}: "
        "nothing new begins."
    )


def _lease_seconds(transaction: UnfinishedTransaction, now_ms: int) -> int | None:
    is_active = transaction.phase is Phase.ACTIVE
    return (transaction.expires_at_ms - now_ms) // 1000 if is_active else None


def _queue_state(queue: WaitingInserts) -> str:
    return "closed" if queue.closed else "held" if queue.held_by else "open"


def _seconds_since(at_ms: int | None, now_ms: int) -> int | None:
    return None if at_ms is None else (now_ms - at_ms) // 1000


def _counted(count: int, singular: str, plural: str) -> str:
    return f"{count:,} {singular if count == 1 else plural}"


def _now_ms() -> int:
    return int(time.time() * 1000)
