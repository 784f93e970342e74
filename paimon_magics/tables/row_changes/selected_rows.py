"""The rows that a statement selects, as a Spark task gets them: file by file, by ascending places.

Light to import, because Spark's tasks load it. Memory is bounded by a batch, and the places that
are kept of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.merging import KIND, PLACE
from paimon_magics.columnar.roaring import roaring_bitmap
from paimon_magics.planning.reads.views import DELETE, ROW_ID
from paimon_magics.tables.compaction.append_units import AppendUnit
from paimon_magics.tables.reading.data_files import FileReader
from paimon_magics.tables.reading.evolving_files import side_by_side

FILE_COLUMN = "__paimon_magics_file"
"""The number of the file that a selected row is in (INT)."""
PLACE_COLUMN = "__paimon_magics_place"
"""The number of a selected row in its file (BIGINT)."""


Report = Callable[[int, int], None]


class RowsOutOfOrderError(Exception):
    """The rows of a task do not come file by file, by ascending places."""


def in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches, of files with ascending numbers. Raises RowsOutOfOrderError for a row that
    is out of order or repeated."""
    last_file = last_place = -1
    for batch in batches:
        if not batch.num_rows:
            continue
        files = np.asarray(batch.column(FILE_COLUMN)).astype(np.int64)
        places = np.asarray(batch.column(PLACE_COLUMN)).astype(np.int64)
        files_on = np.diff(files, prepend=last_file)
        places_on = np.diff(places, prepend=last_place)
        if ((files_on < 0) | ((files_on == 0) & (places_on <= 0))).any():
            raise RowsOutOfOrderError
        last_file, last_place = int(files[-1]), int(places[-1])
        yield batch


class SelectedRows:
    """The selected rows of a task, of one file after the other, with ascending places."""

    def __init__(self, batches: Iterable[pa.RecordBatch], report: Report) -> None:
        self._batches = iter(batches)
        self._report = report
        self._rest: pa.RecordBatch | None = None

    def _fill(self) -> pa.RecordBatch | None:
        while self._rest is None or not self._rest.num_rows:
            self._rest = next(self._batches, None)
            if self._rest is None:
                return None
            self._report(self._rest.num_rows, 0)
        return self._rest

    def file(self) -> int | None:
        """The file of the next row; None if there is none."""
        rest = self._fill()
        return None if rest is None else int(rest.column(FILE_COLUMN)[0].as_py())

    def take(self, file: int, stop: int | None) -> pa.RecordBatch | None:
        """The next rows of the file below the place `stop`; None if there are none."""
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


class FileRows:
    """The selected rows of one file, each once, even if a subquery repeats it. Each batch comes
    with a mask of its deleted rows: all with `deletes`."""

    def __init__(self, rows: SelectedRows, file: int, *, deletes: bool) -> None:
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
                deleted |= np.asarray(rows.column(KIND)) == DELETE
            self.count += rows.num_rows
            self.deleted += int(deleted.sum())
            yield rows, deleted

    def all(
        self, *, deleted_only: bool = False
    ) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.bool_]]]:
        """All rows; their places are kept, or those of deleted ones."""
        for rows, deleted in self.until(None):
            places = np.asarray(rows.column(PLACE_COLUMN)).astype(np.int64)
            self._places.append(places[deleted] if deleted_only else places)
            yield rows, deleted

    def bitmap(self) -> bytes:
        """The kept places."""
        none = np.zeros(0, dtype=np.int64)
        return roaring_bitmap(np.concatenate(self._places) if self._places else none)


# Reads the rows of files with their places, in a Spark task. Light to import.


@dataclass(frozen=True)
class PlacedFiles:
    """Units whose rows are read with their places; small and picklable. A unit has one file, and
    places are those in it. With `evolves` it has the files that hold columns of the same rows
    (data evolution), and places count from the first of these rows."""

    reader: FileReader
    units: tuple[AppendUnit, ...]
    evolves: bool = False

    def only(self, columns: Sequence[str]) -> PlacedFiles:
        """The same with these columns alone, in this order."""
        by_name = {field.name: field for field in self.reader.wanted}
        wanted = tuple(by_name[name] for name in columns)
        return replace(self, reader=replace(self.reader, wanted=wanted))

    def rows(self, unit: AppendUnit) -> Iterator[pa.RecordBatch]:
        """The rows of a unit without deleted ones, and their places as the column PLACE. Raises
        TableDamagedError for a file that can't be read."""
        if not self.evolves:
            (file,) = unit.files
            yield from replace(self.reader, first_place=0).batches(file)
            return
        first = pa.scalar(min(file.first_row_id or 0 for file in unit.files), pa.int64())
        for rows in side_by_side(replace(self.reader, with_row_ids=True), [unit.files]):
            yield rows.append_column(PLACE, pc.subtract(rows.column(ROW_ID), first))
