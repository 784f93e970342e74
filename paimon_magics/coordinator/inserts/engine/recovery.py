"""Rebuild a table's queue from the log when the coordinator starts, checking every record.

Each unpublished record is read once, with its checksum and its place in the chain. A record that is
damaged or missing closes the table with the reason: nothing of it is loaded, and no insert is
taken, before an administrator has looked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paimon_magics.coordinator.inserts.log.interface import Log, LogTable
from paimon_magics.coordinator.inserts.log.records import DamagedError, Record, read_segments
from paimon_magics.coordinator.inserts.queue.values import Batch, Queue, Thresholds
from paimon_magics.statements.statement import TableName

__all__ = ["Recovered", "recovered", "stored_name", "table_name"]

_RECORDS_AT_ONCE = 4_096


@dataclass(frozen=True, slots=True)
class Recovered:
    """A table's queue, and the chain of the last record in its log."""

    queue: Queue
    chain: int


def recovered(log: Log, table: LogTable, thresholds: Thresholds, now_ms: int) -> Recovered:
    """The queue of a stored table whose last flush is settled."""
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
            segments = log.read(table.location, after + 1, after + _RECORDS_AT_ONCE)
            records, read_chain = read_segments(segments, after, chain)
            if not records or read_chain is None:
                raise DamagedError(
                    after + 1, f"it and all after it to {table.acknowledged} are gone"
                )
            after, chain = records[-1].lsn, read_chain
            _add(batches, records, thresholds)
        if after != table.acknowledged:
            raise DamagedError(table.acknowledged + 1, "it is there, and was never acknowledged")
    except DamagedError as error:
        why = f"The log {log.name} is damaged at {error}"
        return Recovered(replace(queue, closed=queue.closed or why), table.chain)
    return Recovered(replace(queue, sealed=tuple(batches)), chain)


def stored_name(name: TableName) -> str:
    """A table's name as the log keeps it."""
    return json.dumps([name.database, name.table])


def table_name(stored: str) -> TableName:
    """The table's name, from the log's form."""
    database, table = json.loads(stored)
    return TableName(table, database)


def _add(batches: list[Batch], records: Sequence[Record], thresholds: Thresholds) -> None:
    """Add records to batches; they continue the last batch until it is full."""
    for record in records:
        size_bytes = len(record.payload)
        last = batches[-1] if batches else None
        if last is None or last.rows >= thresholds.rows or last.size_bytes >= thresholds.data_bytes:
            batches.append(Batch(record.lsn, record.lsn, record.rows, size_bytes, record.at_ms))
        else:
            batches[-1] = replace(
                last,
                last=record.lsn,
                rows=last.rows + record.rows,
                size_bytes=last.size_bytes + size_bytes,
            )
