"""Changes rows of files of an append table, in a Spark task.

A task gets the places of the rows that a statement selects, file by file in ascending order, with
the values that it assigns. A file is written anew with the changes, or its places are kept for a
deletion vector and the changed rows are written as new ones. Light to import, because Spark's
tasks load it. Memory is bounded by a batch of a file, and for a vector by the places of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.merging import KIND, PLACE, SEQUENCE
from paimon_magics.columnar.roaring import roaring_bitmap
from paimon_magics.planning.reads.views import ROW_ID
from paimon_magics.tables.compaction.append_units import AppendUnit
from paimon_magics.tables.compaction.row_files import RowFiles
from paimon_magics.tables.reading.data_files import FileReader
from paimon_magics.tables.schema.arrow_casting import conform
from paimon_magics.tables.writing.new_files import NewFile
from paimon_magics.tables.writing.write_spec import WriteSpec, Written
from paimon_magics.tables.writing.writer import write_batches

__all__ = ["FILE_COLUMN", "PLACE_COLUMN", "ChangedFile", "FileChanges"]

FILE_COLUMN = "__paimon_magics_file"
"""The number of the file that a selected row is in (INT)."""
PLACE_COLUMN = "__paimon_magics_place"
"""The number of a selected row in its file (BIGINT)."""

_BUCKET = "__paimon_magics_bucket"
_DELETED = 3  # `RowKind.DELETE`

Told = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """What became of the file `number`: `changed` of its rows were changed, and of these `deleted`
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

    `assigned` is the serialised schema of the columns that get new values; where it is None, the
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

    def __call__(self, batches: Iterable[pa.RecordBatch], told: Told) -> Iterator[ChangedFile]:
        """Change the files that the rows are in. `told` gets the rows as they come. Raises
        TableDamagedError for a file that can't be read, and what `write_batches` raises."""
        rows = _Rows(batches, told)
        while (number := rows.file()) is not None:
            unit = self.units[number]
            changes = _Changes(rows, number, deletes=self.assigned is None)
            new = self._marked(changes) if self.marks else self._rewritten(unit, changes)
            if self.marks and self.assigned is None:
                for _ in new:
                    pass
                count = changes.count
                yield ChangedFile(number, count, changes.deleted, places=changes.bitmap())
                continue
            written, files = self._written(unit, new)
            places = changes.bitmap() if self.marks else None
            yield ChangedFile(number, changes.count, changes.deleted, written, files, places)

    def _written(
        self, unit: AppendUnit, rows: Iterator[pa.RecordBatch]
    ) -> tuple[Written | None, tuple[NewFile, ...]]:
        if isinstance(self.output, RowFiles):
            return None, self.output.write(unit, rows)
        if not self.has_buckets:
            return write_batches(self.output, rows), ()
        bucketed = (
            one.append_column(_BUCKET, pa.array(np.full(len(one), unit.bucket, dtype=np.int32)))
            for one in rows
        )
        return write_batches(self.output, bucketed, bucket_column=_BUCKET), ()

    def _marked(self, changes: _Changes) -> Iterator[pa.RecordBatch]:
        """The changed rows as new ones; their places are kept."""
        schema = None if self.assigned is None else self._schema()
        for rows, deleted in changes.all():
            rows = rows.filter(pa.array(~deleted))
            if schema is None or not rows.num_rows:
                continue
            new = conform(rows, schema)
            if isinstance(self.output, RowFiles):
                new = new.append_column(ROW_ID, rows.column(ROW_ID).cast(pa.int64()))
                new = new.append_column(SEQUENCE, pa.nulls(len(rows), pa.int64()))
            yield new

    def _rewritten(self, unit: AppendUnit, changes: _Changes) -> Iterator[pa.RecordBatch]:
        """The rows of the file with the changes."""
        schema = None if self.assigned is None else self._schema()
        for batch in self.reader.batches(unit.files[0]):
            place = batch.schema.get_field_index(PLACE)
            places = np.asarray(batch.column(place))
            batch = batch.remove_column(place)
            for rows, deleted in changes.until(int(places[-1]) + 1):
                at = np.searchsorted(places, np.asarray(rows.column(PLACE_COLUMN)))
                if schema is not None and not deleted.all():
                    new = conform(rows.filter(pa.array(~deleted)), schema)
                    batch = _replaced(batch, new, at[~deleted])
                if deleted.any():
                    kept = np.ones(len(places), dtype=bool)
                    kept[at[deleted]] = False
                    batch, places = batch.filter(pa.array(kept)), places[kept]
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


class _Rows:
    """The selected rows of a task, of one file after the other, with ascending places."""

    def __init__(self, batches: Iterable[pa.RecordBatch], told: Told) -> None:
        self._batches = iter(batches)
        self._told = told
        self._rest: pa.RecordBatch | None = None

    def _fill(self) -> pa.RecordBatch | None:
        while self._rest is None or not self._rest.num_rows:
            self._rest = next(self._batches, None)
            if self._rest is None:
                return None
            self._told(self._rest.num_rows, 0)
        return self._rest

    def file(self) -> int | None:
        """The file of the next row; None where there is none."""
        rest = self._fill()
        return None if rest is None else int(rest.column(FILE_COLUMN)[0].as_py())

    def take(self, file: int, stop: int | None) -> pa.RecordBatch | None:
        """The next rows of the file below the place `stop`; None where there are none."""
        rest = self._fill()
        if rest is None:
            return None
        fits = np.asarray(rest.column(FILE_COLUMN)) == file
        if stop is not None:
            fits &= np.asarray(rest.column(PLACE_COLUMN)) < stop
        count = len(fits) if fits.all() else int(np.argmin(fits))
        if not count:
            return None
        self._rest = rest.slice(count)
        return rest.slice(0, count)


class _Changes:
    """The selected rows of one file. A row comes once, whatever a subquery finds for it. Each batch
    comes with which of its rows are deleted: all with `deletes`."""

    def __init__(self, rows: _Rows, file: int, *, deletes: bool) -> None:
        self._rows = rows
        self._file = file
        self._deletes = deletes
        self._places: list[npt.NDArray[np.int64]] = []
        self.count = 0
        self.deleted = 0

    def until(self, stop: int | None) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.bool_]]]:
        """The rows below the place `stop` that have not come yet."""
        while (rows := self._rows.take(self._file, stop)) is not None:
            deleted = np.full(rows.num_rows, self._deletes)
            if KIND in rows.schema.names:
                deleted |= np.asarray(rows.column(KIND)) == _DELETED
            self.count += rows.num_rows
            self.deleted += int(deleted.sum())
            yield rows, deleted

    def all(self) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.bool_]]]:
        """All rows; their places are kept."""
        for rows, deleted in self.until(None):
            self._places.append(np.asarray(rows.column(PLACE_COLUMN)).astype(np.int64))
            yield rows, deleted

    def bitmap(self) -> bytes:
        """The kept places."""
        none = np.zeros(0, dtype=np.int64)
        return roaring_bitmap(np.concatenate(self._places) if self._places else none)
