"""Rewrites the files of an append unit, in a Spark task or in a thread.

Light to import, because Spark's tasks load it. The rows are read with their deletion vectors and in
the form of the table's current schema, and written by one writer, as rows of a statement are. The
driver names the new files in the commit (`append_messages`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from paimon_magics.faults import reach
from paimon_magics.planning.compaction.sort_orders import SortOrder
from paimon_magics.planning.compaction.steps import balanced
from paimon_magics.planning.reads.splits import row_groups
from paimon_magics.tables.compaction.append_units import AppendUnit
from paimon_magics.tables.compaction.sorting import SortInput, sorted_rows
from paimon_magics.tables.reading.data_files import FileReader
from paimon_magics.tables.reading.evolving_files import side_by_side
from paimon_magics.tables.writing.attempts import writing_attempt
from paimon_magics.tables.writing.key_value_files import KeyValueFiles, KeyValueFileWriter
from paimon_magics.tables.writing.new_files import NewFile
from paimon_magics.tables.writing.write_spec import WriteSpec, Written
from paimon_magics.tables.writing.writer import write_batches

_BUCKET = "__paimon_magics_bucket"
_GROUPS = 3  # for each slot
_SORTED_BYTES_MIN = 64 << 20  # each part of a unit is read whole by the task that sorts a share

Report = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class RewrittenUnit:
    """The result of the writer of the part `share` of the unit `number`: of the native writer and
    similar writers, or of our own writer."""

    number: int
    share: int = 0
    written: Written | None = None
    files: tuple[NewFile, ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows that were written."""
        return sum(file.rows for file in self.files) if self.written is None else self.written.rows


@dataclass(frozen=True)
class AppendRewrite:
    """Rewrites units: small and picklable. `reader` reads whole rows. With `has_buckets` the rows
    of a unit go to its bucket, which is not computed again. With `order` they are sorted. With
    `evolves` files of a unit hold columns of the same rows."""

    reader: FileReader
    output: WriteSpec | RowFiles
    has_buckets: bool
    order: SortOrder | None = None
    evolves: bool = False

    def __call__(self, unit: AppendUnit, report: Report | None = None) -> RewrittenUnit:
        """Rewrite a unit. `report` gets the rows and bytes as they are read. Raises
        TableDamagedError for a file that can't be read, and what `write_batches` raises."""
        rows = self._rows(unit, report or (lambda rows, size_bytes: None))
        if self.order is not None:
            read = partial(self._columns, unit, report or (lambda rows, size_bytes: None))
            rows = sorted_rows(SortInput(read, unit.rows, unit.share, unit.shares), self.order)
        if isinstance(self.output, RowFiles):
            files = self.output.write(unit, rows)
            return RewrittenUnit(unit.number, unit.share, files=files)
        bucket_column = _BUCKET if self.has_buckets else None
        written = write_batches(self.output, rows, bucket_column=bucket_column)
        return RewrittenUnit(unit.number, unit.share, written)

    def _columns(
        self, unit: AppendUnit, report: Report, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a unit, or some columns of them."""
        if columns is None:
            yield from self._rows(unit, lambda *read: report(*map(unit.own_part, read)))
            return
        wanted = tuple(field for field in self.reader.wanted if field.name in columns)
        reader = replace(self.reader, wanted=wanted, with_row_ids=False)
        for file in unit.files:
            yield from reader.batches(file)

    def _rows(self, unit: AppendUnit, report: Report) -> Iterator[pa.RecordBatch]:
        if self.evolves:
            # Deleted rows are written, too: the others have their ids by their places.
            files = [replace(file, deletions=None) for file in unit.files]
            for group in row_groups(files):
                for batch in side_by_side(self.reader, [group]):
                    report(batch.num_rows, 0)
                    yield batch
                report(0, sum(file.size_bytes for file in group))
            return
        for file in unit.files:
            for batch in self.reader.batches(file):
                report(batch.num_rows, 0)
                if not self.has_buckets:
                    yield batch
                    continue
                bucket = np.full(batch.num_rows, unit.bucket, dtype=np.int32)
                yield batch.append_column(_BUCKET, pa.array(bucket))
            report(0, file.size_bytes)


@dataclass(frozen=True)
class AppendUnits:
    """Units divided among the tasks of a job: one after the other in each group."""

    rewrite: AppendRewrite
    groups: tuple[tuple[AppendUnit, ...], ...]

    @classmethod
    def of(cls, rewrite: AppendRewrite, units: Sequence[AppendUnit], slots: int) -> AppendUnits:
        """A few groups of about equal read size for each of `slots`, the largest first: a slot that
        finishes early takes the next group. Large units that are sorted are divided among slots."""
        if rewrite.order is not None:
            part_bytes = sum(unit.size_bytes for unit in units) // max(slots, 1)
            part_bytes = max(part_bytes, _SORTED_BYTES_MIN)
            counts = [max(round(unit.size_bytes / part_bytes), 1) for unit in units]
            units = [
                part
                for unit, count in zip(units, counts, strict=True)
                for part in unit.parts(count)
            ]
        return cls(rewrite, balanced(units, lambda unit: unit.size_bytes, slots * _GROUPS))

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self.groups)

    def run(self, number: int, report: Report) -> list[RewrittenUnit]:
        """Rewrite the units of a group."""
        return [self.rewrite(unit, report) for unit in self.groups[number]]


# Writes the rows of an append unit into files that store the rows' ids and sequence numbers.
#
# The native writer has no such columns. Memory is bounded by a row group. If the process dies,
# files stay that no snapshot names; the transaction's attempt noted their folder, so that they are
# removed when it ends. Light to import, because Spark's tasks load it. Source: `AppendCompactTask`
# with `SpecialFields.rowTypeWithRowTracking` as the type of its writer.


@dataclass(frozen=True)
class RowFiles:
    """How files of rows with ids are written, or of rows with keys `by_level`; small and picklable.

    `partition_keys` are the table's. `stem` begins the names of new files, and `attempts_folder` is
    the stem of the tasks' notes (module `attempts`).
    """

    files: KeyValueFiles
    partition_keys: tuple[str, ...]
    stem: str
    attempts_folder: str | None
    io_options: tuple[tuple[str, str], ...] = ()
    by_level: Mapping[int, KeyValueFiles] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"RowFiles({self.stem})"  # io_options may hold credentials

    def write(self, unit: AppendUnit, batches: Iterable[pa.RecordBatch]) -> tuple[NewFile, ...]:
        """Write the rows of a unit, as one attempt.

        Raises OSError for the store's failures, JobError when the transaction has ended, and what
        `batches` raises; files are deleted then.
        """
        with writing_attempt(self.attempts_folder, self.io_options) as running:
            stem = f"{self.stem}{running.name_part}{unit.number}-{unit.share}"
            files = self.by_level.get(unit.output_level, self.files)
            writer = KeyValueFileWriter(files, unit.folder, stem)
            running.writers.append(writer)
            for count, batch in enumerate(batches):
                if running.id and not count:
                    keys = batch.select(list(self.partition_keys)).slice(0, 1)
                    running.note(keys, [unit.bucket])
                    reach("attempt.noted")
                writer.write(batch)
            return writer.finish()
