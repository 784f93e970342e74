"""Small inserts of a session: into the table's log if it has one, else as an ordinary statement.

If this process dies, every insert that was answered is durable; the fate of others is unknown.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

from paimon_magics.coordinator.client.small_inserts import InsertReceipt, SmallInserts
from paimon_magics.errors import InvalidValueError, nearest
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.row_changes.logged_changes import LoggedChange
from paimon_magics.planning.writes.inserts import rows_hidden_by, takes_small_inserts
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.scope import StatementScope
from paimon_magics.settings import WAITS
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.schema.history import version_of
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

_FLUSH_MS = 300_000
_UNCOUNTED = (
    "The number of changed rows is known when it is loaded, in order with the inserts around it."
)


class PendingInsert:
    """An insert that was sent and may not be acknowledged yet."""

    def __init__(
        self,
        scope: StatementScope,
        table: Table,
        answer: Future[InsertReceipt],
        visible: bool,
        kind: str,
    ) -> None:
        self._scope = scope
        self._table = table
        self.answer = answer
        self._visible = visible
        self._kind = kind

    def outcome(self) -> Outcome:
        """Wait for the answer and return it. Raises the error that the coordinator returned."""
        receipt = self.answer.result()
        snapshot_id = receipt.snapshot_id
        if self._visible and receipt.mode == "async_mode":
            snapshot_id = flush_queue(self._scope, self._table.name)[1]
        return _outcome(self._table.name, self._kind, receipt, snapshot_id, visible=self._visible)


def send_to_log(
    scope: StatementScope,
    table: Table,
    log: SmallInserts,
    rows: pa.Table | LoggedChange,
    *,
    wait: str | None,
    label: str | None = None,
    kind: str = "INSERT INTO",
) -> PendingInsert:
    """Send rows, or a change of rows, to the log of the table. `wait` specifies when that is
    acknowledged; the default is the table's mode. Raises errors of ours if it is refused."""
    mode = "async_mode" if wait is not None else None
    answer = log.insert(table.name, rows, label=label, mode=mode, version=version_of(table))
    return PendingInsert(scope, table, answer, wait == "visible", kind)


def check_wait(wait: str | None) -> None:
    """Raise InvalidValueError if `wait` is not a `Wait`."""
    if wait is not None and wait not in WAITS:
        raise InvalidValueError(
            f"`wait` can't be '{wait}'.", hint=nearest(wait, WAITS, what="values of `wait`")
        )


def flush_queue(
    scope: StatementScope, name: TableName, wait_ms: int = _FLUSH_MS
) -> tuple[int, int | None]:
    """Load everything acknowledged; return its last record, and the snapshot if it is known.
    Raises SetupError if it is not visible in time.
    """
    return scope.committer.administration().queues.flush(name, wait_ms)


def flush_table(scope: StatementScope, name: TableName) -> Outcome:
    """Make acknowledged inserts visible; see `Session.flush`."""
    lsn, snapshot_id = flush_queue(scope, name)
    where = "" if snapshot_id is None else f" (snapshot {snapshot_id})"
    message = f"All inserts of `{name}` up to record {lsn} are visible{where}."
    return Outcome(
        statement=f"flush({name})",
        query="",
        kind="FLUSH",
        table=str(name),
        snapshot_id=snapshot_id,
        message=message if lsn else f"No small inserts of `{name}` were waiting to be loaded.",
    )


def inserts_of(scope: StatementScope, table: Table) -> SmallInserts | None:
    """The client for small inserts into the table. None if the table accepts none, or if there is
    no coordinator."""
    if not takes_small_inserts(table.schema) or table.name.branch is not None:
        return None
    return scope.committer.inserts()


def at_once_note(scope: StatementScope, table: Table) -> str:
    """The note on an insert that was not put into the log."""
    return f"Committed at once: {why_not_logged(scope, table)}"


def why_not_logged(scope: StatementScope, table: Table) -> str:
    """Why the table, or this session, accepts no small inserts."""
    if scope.committer.inserts() is None:
        return "this session has no coordinator, which keeps the log of small inserts."
    if table.name.branch is not None:
        return "branches accept no small inserts."
    if table.schema.has_type("VARIANT"):
        return f"`{table.name}` has columns of type VARIANT, which small inserts can't write."
    hidden = rows_hidden_by(table.schema)
    if hidden is not None and not table.schema.write_only:
        return f"the rows of `{table.name}` become visible after a compaction ({hidden})."
    if table.schema.flag("auto_batch_load") and not table.schema.is_primary_key_table:
        return f"an insert into `{table.name}` replaces rows of the same key ('upsert-key')."
    if table.schema.flag("auto_batch_load"):
        return f"the keys of `{table.name}` can move between partitions."
    return f"the option 'auto_batch_load' of `{table.name}` is not true."


def _outcome(
    name: TableName, kind: str, receipt: InsertReceipt, snapshot_id: int | None, *, visible: bool
) -> Outcome:
    is_visible = visible or receipt.mode != "async_mode"
    again = " before, under this label" if receipt.duplicate else ""
    where = f"visible in snapshot {snapshot_id}" if snapshot_id is not None else "visible"
    inserts = kind == "INSERT INTO"
    soon = "loaded" if inserts else "carried out"
    state = where if is_visible else f"{soon} with others soon"
    notes = (f"Answered in {receipt.mode}: {receipt.fallback}.",) if receipt.fallback else ()
    if receipt.trouble and not is_visible:
        state = "durable in the coordinator's log, and not visible for now"
        notes = (*notes, f"Rows of `{name}` can't be loaded: {receipt.trouble}")
    if not inserts:
        notes = (*notes, _UNCOUNTED)
    return Outcome(
        statement=f"insert({name})",
        query="",
        kind=kind,
        table=str(name),
        snapshot_id=snapshot_id if is_visible else None,
        rows_written=receipt.rows if inserts else None,
        message=f"{kind} `{name}`: {count_text(receipt.rows, 'row' if inserts else 'key')} "
        f"acknowledged{again} (record {receipt.lsn}), {state}.",
        notes=notes,
    )
