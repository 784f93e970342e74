"""Reads the rows of files with their places, in a Spark task. Light to import."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.merging import PLACE
from paimon_magics.planning.reads.views import ROW_ID
from paimon_magics.tables.compaction.append_units import AppendUnit
from paimon_magics.tables.reading.data_files import FileReader
from paimon_magics.tables.reading.evolving_files import side_by_side

__all__ = ["PlacedFiles"]


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
        by_name = {one.name: one for one in self.reader.wanted}
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
