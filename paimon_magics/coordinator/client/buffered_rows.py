"""The rows of acknowledged small inserts that are not loaded yet, as the table will have them.

Records of older schemas are converted as loading will convert them. A record that can't be loaded,
and will be a dead letter, is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paimon_magics.coordinator.inserts.log.records import DamagedError, read_segments
from paimon_magics.errors import CommitConflictError

if TYPE_CHECKING:
    import pyarrow as pa

    from paimon_magics.coordinator.client.queue_administration import BufferedInserts
    from paimon_magics.tables.reading.changed_rows import Change
    from paimon_magics.tables.table import Table

__all__ = ["buffered_entries"]


def buffered_entries(buffered: BufferedInserts, table: Table) -> list[pa.RecordBatch | Change]:
    """The rows of `buffered`, in the present columns of `table`, and the changes between them.
    Raises CommitConflictError where they can't be read."""
    from paimon_magics.coordinator.inserts.loading.rows import entries_of
    from paimon_magics.tables.schema.identity import Definitions

    try:
        records, _ = read_segments(
            buffered.segments, buffered.published, upto=buffered.acknowledged
        )
    except DamagedError as error:
        raise CommitConflictError(
            f"The acknowledged rows of `{table.name}` that are not loaded yet can't be read: "
            f"{error}.",
            hint=f"`%paimon queue {table.name}` shows the state of its queue.",
        ) from error
    entries, _ = entries_of(records, Definitions().of(table), table.schema)
    return entries
