"""Changes rows of a data-evolution table, in a Spark task: new values of columns become files of
these columns, and deleted rows are marked.

A task gets the places of the rows that a statement selects, as `rewriting` does: a place counts
from the first row of the range that the row is in. Light to import, because Spark's tasks load it.
Memory is bounded by a row group of a file, and the places of a range's deleted rows. Source:
`MergeIntoPaimonDataEvolutionTable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_magics.planning.reads.views import ROW_ID
from paimon_magics.tables.compaction.append_units import AppendUnit
from paimon_magics.tables.reading.data_files import FileReader
from paimon_magics.tables.reading.evolving_files import updated_rows
from paimon_magics.tables.row_changes.rewriting import ChangedFile
from paimon_magics.tables.row_changes.selected_rows import (
    PLACE_COLUMN,
    FileRows,
    Report,
    SelectedRows,
)
from paimon_magics.tables.schema.arrow_casting import conform
from paimon_magics.tables.writing.columns_files import ColumnsWrite, WrittenColumns


@dataclass(frozen=True)
class ColumnChanges:
    """Changes rows of `units`, each the files of one range of rows, in the order of the ranges'
    ids: small and picklable.

    `write` and `reader` write and read the columns that get new values, whose serialised schema is
    `assigned`; None where no column does. With `deletes` the selected rows are deleted; otherwise
    those of which a column `KIND` says so.
    """

    units: tuple[AppendUnit, ...]
    deletes: bool
    write: ColumnsWrite | None = None
    reader: FileReader | None = None
    assigned: bytes = b""

    def __call__(self, batches: Iterable[pa.RecordBatch], report: Report) -> Iterator[ChangedFile]:
        """Change the ranges that the rows are in. `report` gets the rows as they come. Raises
        TableDamagedError for a file that can't be read, and what `ColumnsWrite.run` raises."""
        rows = SelectedRows(batches, report)
        if rows.file() is None:
            return
        changed: dict[int, FileRows] = {}
        updates = self._updates(rows, changed)
        written: tuple[WrittenColumns, ...] = ()
        if self.write is None or self.reader is None:
            for _ in updates:
                pass
        else:
            ranges = self.write.ranges
            written = self.write.run(updated_rows(self.reader, ranges, updates))
        files = {each.first_row_id: each.file for each in written}
        for number, changes in changed.items():
            file = files.get(first_row_id(self.units[number]))
            yield ChangedFile(
                number,
                changes.count,
                changes.deleted,
                files=() if file is None else (file,),
                places=changes.bitmap() if changes.deleted else None,
            )

    def _updates(
        self, rows: SelectedRows, changed: dict[int, FileRows]
    ) -> Iterator[pa.RecordBatch]:
        """The new values of updated rows with their ids. The rows of each range are noted in
        `changed`, with the places of those that are deleted."""
        schema = pa.ipc.read_schema(pa.py_buffer(self.assigned)) if self.write else None
        while (number := rows.file()) is not None:
            changes = changed[number] = FileRows(rows, number, deletes=self.deletes)
            first = first_row_id(self.units[number])
            for batch, deleted in changes.all(deleted_only=True):
                if schema is None or deleted.all():
                    continue
                batch = batch.filter(pa.array(~deleted))
                ids = np.asarray(batch.column(PLACE_COLUMN)).astype(np.int64) + first
                yield conform(batch, schema).append_column(ROW_ID, pa.array(ids))


def first_row_id(unit: AppendUnit) -> int:
    """The id of the first row of a unit's range."""
    return min(file.first_row_id or 0 for file in unit.files)
