"""Changes rows of files of a table, in a Spark task.

A task gets the places of the rows that a statement selects, file by file in ascending order, with
the values that it assigns. A file is rewritten with the changes, or its places are kept for a
deletion vector and the changed rows are written as new ones. Light to import, because Spark's
tasks load it. Memory is bounded by a batch of a file, and for a vector by the places of a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.merging import PLACE, SEQUENCE
from paimon_magics.planning.reads.views import ROW_ID
from paimon_magics.planning.writes.distributions import BUCKET_COLUMN
from paimon_magics.tables.compaction.append_rewriting import RowFiles
from paimon_magics.tables.compaction.append_units import AppendUnit
from paimon_magics.tables.reading.data_files import FileReader
from paimon_magics.tables.reading.evolving_files import updated_rows
from paimon_magics.tables.row_changes.selected_rows import (
    PLACE_COLUMN,
    FileRows,
    Report,
    SelectedRows,
)
from paimon_magics.tables.schema.arrow_casting import conform
from paimon_magics.tables.writing.new_files import NewFile
from paimon_magics.tables.writing.write_spec import WriteSpec, Written
from paimon_magics.tables.writing.writer import write_batches

if TYPE_CHECKING:
    from paimon_magics.tables.writing.columns_files import ColumnsWrite, WrittenColumns


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """The result for the file `number`: `changed` of its rows were changed, and of these `deleted`
    were deleted. `written` or `files` are the new files with its rows, and `places` the changed
    places as a roaring bitmap, where a deletion vector marks them."""

    number: int
    changed: int
    deleted: int
    written: Written | None = None
    files: tuple[NewFile, ...] = ()
    places: bytes | None = None


@dataclass(frozen=True)
class FileChanges:
    """Changes the files of `units`, each of one file: small and picklable.

    `assigned` is the serialized schema of the columns that get new values; where it is None, the
    selected rows are deleted. Rows that have a column `KIND` are deleted where it says so. With
    `marks` files stay, their places are marked, and `assigned` has
    all columns. With `has_buckets` rows stay in the bucket of their file.
    """

    units: tuple[AppendUnit, ...]
    reader: FileReader
    output: WriteSpec | RowFiles
    assigned: bytes | None
    marks: bool
    has_buckets: bool

    def __call__(self, batches: Iterable[pa.RecordBatch], report: Report) -> Iterator[ChangedFile]:
        """Change the files that the rows are in. `report` gets the rows as they come. Raises
        TableDamagedError for a file that can't be read, and what `write_batches` raises."""
        rows = SelectedRows(batches, report)
        while (number := rows.file()) is not None:
            unit = self.units[number]
            changes = FileRows(rows, number, deletes=self.assigned is None)
            new = self._marked(changes) if self.marks else self._rewritten(unit, changes)
            if self.marks and self.assigned is None:
                for _ in new:
                    pass
                count = changes.count
                yield ChangedFile(number, count, changes.deleted, places=changes.bitmap())
                continue
            written = self._written(unit, new)
            places = changes.bitmap() if self.marks else None
            yield ChangedFile(number, changes.count, changes.deleted, *written, places=places)

    def _written(
        self, unit: AppendUnit, rows: Iterator[pa.RecordBatch]
    ) -> tuple[Written | None, tuple[NewFile, ...]]:
        output = self.output
        if isinstance(output, RowFiles):
            return None, output.write(unit, rows)
        if not self.has_buckets:
            return write_batches(output, rows), ()
        bucketed = (
            row.append_column(
                BUCKET_COLUMN, pa.array(np.full(len(row), unit.bucket, dtype=np.int32))
            )
            for row in rows
        )
        return write_batches(output, bucketed, bucket_column=BUCKET_COLUMN), ()

    def _marked(self, changes: FileRows) -> Iterator[pa.RecordBatch]:
        """The changed rows as new ones; their places are kept."""
        schema = None if self.assigned is None else self._schema()
        for rows, deleted in changes.all():
            rows = rows.filter(pa.array(~deleted))
            if schema is None or not rows.num_rows:
                continue
            new = conform(rows, schema)
            if self.reader.with_row_ids:
                new = new.append_column(ROW_ID, rows.column(ROW_ID).cast(pa.int64()))
                new = new.append_column(SEQUENCE, pa.nulls(len(rows), pa.int64()))
            yield new

    def _rewritten(self, unit: AppendUnit, changes: FileRows) -> Iterator[pa.RecordBatch]:
        """The rows of the file with the changes."""
        schema = None if self.assigned is None else self._schema()
        for batch in self.reader.batches(unit.files[0]):
            place = batch.schema.get_field_index(PLACE)
            places = np.asarray(batch.column(place))
            batch = batch.remove_column(place)
            # At once: each change copies the whole batch.
            selected = list(changes.until(int(places[-1]) + 1))
            if selected:
                rows = pa.concat_batches([part for part, _ in selected])
                deleted = np.concatenate([part for _, part in selected])
                at = np.searchsorted(places, np.asarray(rows.column(PLACE_COLUMN)))
                if schema is not None and not deleted.all():
                    new = conform(rows.filter(pa.array(~deleted)), schema)
                    batch = _replaced(batch, new, at[~deleted])
                if deleted.any():
                    remains = np.ones(len(places), dtype=bool)
                    remains[at[deleted]] = False
                    batch, places = batch.filter(pa.array(remains)), places[remains]
            if batch.num_rows:
                yield batch

    def _schema(self) -> pa.Schema:
        assert self.assigned is not None
        return pa.ipc.read_schema(pa.py_buffer(self.assigned))


def _replaced(
    batch: pa.RecordBatch, new: pa.RecordBatch, at: npt.NDArray[np.int64]
) -> pa.RecordBatch:
    """The batch with the columns of `new` in the rows `at`. A changed row has no sequence number:
    it gets the snapshot's."""
    chosen = np.arange(batch.num_rows, dtype=np.int64)
    chosen[at] = batch.num_rows + np.arange(len(at), dtype=np.int64)
    indices = pa.array(chosen)
    arrays, fields = [], []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if field.name in new.schema.names:
            values = new.column(field.name)
            column = pa.concat_arrays([column, values.cast(column.type)]).take(indices)
        elif field.name == SEQUENCE:
            none = pa.nulls(len(at), column.type)
            column = pa.concat_arrays([column, none]).take(indices)
            field = field.with_nullable(True)
        arrays.append(column)
        fields.append(field)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


# Changes rows of a data-evolution table, in a Spark task: new values of columns become files of
# these columns, and deleted rows are marked.
#
# A place counts from the first row of the range that the row is in. Memory is bounded by a row
# group of a file, and the places of a range's deleted rows. Source:
# `MergeIntoPaimonDataEvolutionTable`.


@dataclass(frozen=True)
class ColumnChanges:
    """Changes rows of `units`, each the files of one range of rows, in the order of the ranges'
    ids: small and picklable.

    `write` and `reader` write and read the columns that get new values, whose serialized schema is
    `assigned`; None if no column does. With `deletes` the selected rows are deleted; otherwise
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
        files = dict(written)
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
