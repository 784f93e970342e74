"""What a statement removes from a table: partitions, files, bytes and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paimon_magics.planning.commits.requests import (
    Append,
    InsertChange,
    OverwritePartitions,
    OverwriteTouched,
)
from paimon_magics.planning.formatting import count_text, size_text, stored_rows_text
from paimon_magics.session.writes.prepare import PreparedInsert
from paimon_magics.spark.failures import translate
from paimon_magics.spark.queries import cancellable
from paimon_magics.tables.commits.replaced_partitions import PartitionSize, sizes_of_replaced
from paimon_magics.tables.table import Table

__all__ = ["Replaced", "replaced_by_insert", "rows_taken"]


@dataclass(frozen=True, slots=True)
class Replaced:
    """The partitions of a table that lose rows, and what they lose."""

    table: Table
    sizes: Sequence[PartitionSize]


def replaced_by_insert(prepared: PreparedInsert) -> Replaced:
    """Return what an INSERT replaces. A dynamic overwrite runs its query to find partitions."""
    table, frame = prepared.table, prepared.frame
    change: InsertChange = prepared.change
    match change:
        case Append():
            return Replaced(table, ())
        case OverwritePartitions(specs=specs):
            return Replaced(table, sizes_of_replaced(table, specs=specs))
        case OverwriteTouched():
            keys = list(table.schema.partition_keys)
            try:
                with cancellable(frame.sparkSession):
                    written = frame.select(*keys).distinct().toArrow()
            except Exception as error:
                raise translate(error) from error
            values = [tuple(row.values()) for row in written.to_pylist()]
            return Replaced(table, sizes_of_replaced(table, partitions=values))


def rows_taken(sizes: Sequence[PartitionSize]) -> str:
    """Return `9,200,000 rows in 48 files (3.1 GiB) of 365 partitions`, or `nothing`. It says
    `stored rows` if reading merges some of them."""
    if not sizes:
        return "nothing"
    rows, files = sum(size.rows for size in sizes), sum(size.files for size in sizes)
    size = size_text(sum(size.size_bytes for size in sizes))
    where = f" of {count_text(len(sizes), 'partition')}" if sizes[0].partition else ""
    told = stored_rows_text(rows, is_merged=any(size.is_merged for size in sizes))
    return f"{told} in {count_text(files, 'file')} ({size}){where}"
