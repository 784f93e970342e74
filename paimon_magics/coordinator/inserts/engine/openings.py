"""Whether the log has all acknowledged records of a table: asked before the first insert of a
process, and where an administrator opens a closed table again.

All of it reads the log, its registry and the warehouse; the owner of the queues waits for none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from paimon_magics.coordinator.inserts.engine.replies import TableQueue, dropped
from paimon_magics.coordinator.inserts.loading.flush import BatchLoader
from paimon_magics.coordinator.inserts.log.log import Log, LogTable, stored_name
from paimon_magics.coordinator.inserts.log.records import DamagedError, Record, read_segments
from paimon_magics.coordinator.inserts.log.registry import RegisteredLog
from paimon_magics.coordinator.inserts.queue.values import Batch, Hold, Queue, Thresholds
from paimon_magics.errors import SetupError

_RECORDS_AT_ONCE = 4_096
_NOBODY = 0  # waits for the hold, which is granted


class Openings:
    """Opens tables for inserts. For any thread, but one at a time for a table. `own` makes sure
    that this coordinator owns the warehouse. Raises the errors of log and store."""

    def __init__(
        self,
        log: RegisteredLog,
        flushing: BatchLoader,
        own: Callable[[], object],
        defaults: Thresholds,
    ) -> None:
        self._log = log.log
        self.registry = log.registry
        self._flushing = flushing
        self._own = own
        self._defaults = defaults

    def open_for_inserts(self, table: TableQueue) -> str:
        """See `_open`. Raises UnknownNameError for a table that is gone: who inserts may know one
        that was dropped since."""
        self._own()
        if self._flushing.table_of(table.name, table.id) is None:
            raise dropped(table.name)
        return self._open(table)

    def open_for_loading(self, table: TableQueue) -> str:
        """See `_open`. Raises NotLoadedError for a table that was dropped here."""
        self._own()
        if self._flushing.table_of(table.name, table.id) is None:
            self._flushing.check_not_dropped(table.name, table.id)
        return self._open(table)

    def _open(self, table: TableQueue) -> str:
        """Note in the log registry that this log has the table's records; or return why some are
        missing."""
        missing = self.missing(table)
        acknowledged = table.queue.acknowledged
        if not missing:
            self.registry.open(table.id, acknowledged + 1)
            table.noted = max(table.noted, acknowledged)
        return missing

    def missing(self, table: TableQueue) -> str:
        """Why acknowledged rows are missing in this log; "" when they are not.

        Another call may have opened the table meanwhile, so that more is acknowledged, noted and
        loaded. So the table's queue is looked at last: it has all that the others have.
        """
        missing = self.registry.missing(
            table.id, lambda: table.queue.acknowledged, self._log.damage
        )
        if missing:
            return missing
        last = self._flushing.last_in(table.name, table.id, table.queue.snapshot_id or 0)
        acknowledged = table.queue.acknowledged
        if last > acknowledged:
            return (
                f"The log {self._log.name} ends with record {acknowledged}, but the table has "
                f"records up to {last}"
            )
        return ""

    def reopen(self, table: TableQueue, *, accept_loss: bool) -> tuple[Queue, int] | None:
        """A closed table's queue and chain, read from the log again; None where it is open.

        With `accept_loss` the records that are missing or damaged are given up; otherwise raises
        SetupError while any are missing. Of a table that was closed for another reason all are.
        """
        if table.queue.flushing is not None and not table.queue.unsettled:
            raise SetupError(f"Rows of `{table.name}` are being loaded.", hint="Ask again.")
        missing = self.missing(table)
        if not missing and not table.queue.closed:
            return None  # there is nothing to accept, and what waits is loaded
        if missing and not accept_loss:
            raise SetupError(
                f"`{table.name}` stays closed: {missing}.",
                hint="Restore the log, or give these rows up: reopen it with `accept_loss`.",
            )
        if accept_loss and not (missing and self._goes_on(table)):
            self._begin_anew(table)
        else:
            self._log.close_table(table.id, "")
        stored = self._flushing.stored(table.id)
        assert stored is not None  # it was closed for its records, or has begun anew
        if accept_loss:
            self.registry.open(table.id, stored.acknowledged + 1)
        again = recovered(self._log, stored, self._defaults)
        if again.queue.closed:
            raise SetupError(f"`{table.name}` stays closed: {again.queue.closed}.")
        return again.queue, again.chain

    def note_end(self, table: TableQueue) -> None:
        """Note in the log registry how far a table's records are acknowledged, so that their loss
        from the log is noticed."""
        acknowledged = table.queue.acknowledged
        if table.is_open and table.noted < acknowledged:
            self._own()
            self.registry.open(table.id, acknowledged + 1)
            table.noted = acknowledged

    def note_clean(self, table: TableQueue) -> None:
        """Note in the log registry that a table has nothing left in the log."""
        if table.is_open and not table.queue.batches:
            self.registry.clean(table.id, table.queue.acknowledged)

    def _goes_on(self, table: TableQueue) -> bool:
        """Whether a log that has lost its last records can go on from its present end: the records
        that it has are whole, and none that it lost is in the table."""
        stored = self._flushing.stored(table.id)
        if stored is None or stored.flush is not None:
            return False
        last = self._flushing.last_in(table.name, table.id, stored.snapshot_id or 0)
        whole = recovered(self._log, replace(stored, closed=""), self._defaults)
        return last <= stored.acknowledged and not whole.queue.closed

    def _begin_anew(self, table: TableQueue) -> None:
        """Give up the table's records in the log, and go on above all lsns that were ever given."""
        note = self.registry.note(table.id)
        above = max(
            table.queue.acknowledged,
            0 if note is None else note.first - 1,
            self._flushing.last_in(table.name, table.id, table.queue.snapshot_id or 0),
        )
        self._log.accept_loss(table.id, stored_name(table.name), above)


# Rebuild a table's queue from the log when the coordinator starts, checking every record.
#
# Each unpublished record is read once, with its checksum and its place in the chain. A record that
# is damaged or missing closes the table with the reason: nothing of it is loaded, and no insert is
# taken, before an administrator has looked. The batch whose commit may have been asked for is being
# loaded, and unsettled: what became of it is found out before anything else is loaded.


@dataclass(frozen=True, slots=True)
class Recovered:
    """A table's queue, and the chain of the last record in its log."""

    queue: Queue
    chain: int


def recovered(log: Log, table: LogTable, thresholds: Thresholds) -> Recovered:
    """The queue of a stored table."""
    queue = Queue(
        thresholds,
        next_lsn=table.acknowledged + 1,
        published=table.published,
        closed=table.closed,
        snapshot_id=table.snapshot_id,
    )
    batches: list[Batch] = []
    after, chain = table.published, table.chain
    try:
        while after < table.acknowledged:
            segments = log.read(table.table_id, after + 1, after + _RECORDS_AT_ONCE)
            records, read_chain = read_segments(segments, after, chain)
            if not records or read_chain is None:
                raise DamagedError(
                    after + 1, f"it and all after it to {table.acknowledged} are gone"
                )
            after, chain = records[-1].lsn, read_chain
            _add(batches, records, thresholds, 0 if table.flush is None else table.flush.last)
        if after != table.acknowledged:
            raise DamagedError(table.acknowledged + 1, "it is there, and was never acknowledged")
    except DamagedError as error:
        why = f"The log {log.name} is damaged at {error}"
        return Recovered(replace(queue, closed=queue.closed or why), table.chain)
    if table.flush is not None and batches:
        first, *rest = batches
        queue = replace(queue, flushing=first, unsettled=True)
        return Recovered(replace(queue, sealed=tuple(rest)), chain)
    return Recovered(replace(queue, sealed=tuple(batches)), chain)


def with_place(queue: Queue, id: str) -> Queue:
    """The queue of a table with a transaction that began before the coordinator died: nothing is
    loaded but the batch that may have been committed already, as long as the hold `id` lasts."""
    lsn = queue.published if queue.flushing is None else queue.flushing.last
    return replace(queue, holds=(*queue.holds, Hold(id, _NOBODY, lsn, granted=True)))


def _add(
    batches: list[Batch], records: Sequence[Record], thresholds: Thresholds, flushed: int
) -> None:
    """Add records to batches; they continue the last batch until it is full. Those up to `flushed`
    are one batch: it was being loaded."""
    for record in records:
        size_bytes = len(record.payload)
        last = batches[-1] if batches else None
        is_full = last is not None and (
            last.rows >= thresholds.rows or last.size_bytes >= thresholds.data_bytes
        )
        if last is None or record.lsn == flushed + 1 or (is_full and record.lsn > flushed):
            batches.append(Batch(record.lsn, record.lsn, record.rows, size_bytes, record.at_ms))
        else:
            batches[-1] = replace(
                last,
                last=record.lsn,
                rows=last.rows + record.rows,
                size_bytes=last.size_bytes + size_bytes,
            )
