"""A table's queue, rebuilt from the log when the coordinator starts, checking every record.

Each unpublished record is read once, with its checksum and its place in the chain. A damaged or
missing record closes the table with the reason: no record is loaded and no insert accepted until an
administrator has checked the table. A batch whose commit may have been requested counts as being
loaded, and unsettled: its outcome is determined before anything else is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paimon_magics.coordinator.inserts.log.log import Log, LogTable
from paimon_magics.coordinator.inserts.log.records import DamagedError, Record, read_segments
from paimon_magics.coordinator.inserts.queue.values import Batch, Hold, Queue, Thresholds

_RECORDS_AT_ONCE = 4_096
_NOBODY = 0  # waits for the hold, which is granted


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
                    after + 1, f"it and all records after it up to {table.acknowledged} are gone"
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
    """The queue of a table with a transaction that began before the coordinator died. As long as
    the hold `id` lasts, only the batch that may have been committed already is loaded.
    """
    lsn = queue.published if queue.flushing is None else queue.flushing.last
    return replace(queue, holds=(*queue.holds, Hold(id, _NOBODY, lsn, granted=True)))


def _add(
    batches: list[Batch], records: Sequence[Record], thresholds: Thresholds, flushed: int
) -> None:
    """Add records to batches; they continue the last batch until it is full. Records up to
    `flushed` are one batch: it was being loaded.
    """
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
