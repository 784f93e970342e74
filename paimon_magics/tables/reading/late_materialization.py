"""Late materialization: merges keys first, then reads the other columns of the winning rows.

Row groups without a winning row are never read. It is used only where whole rows win (deduplicate,
first-row) and files are Parquet. Light to import, because Spark's tasks load it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.folding import MergeRule, merge_rows
from paimon_magics.columnar.merging import FILE_BITS, KIND, PLACE, SEQUENCE, merge_runs
from paimon_magics.planning.reads.splits import Section, StoredFile
from paimon_magics.tables.reading.data_files import FileReader
from paimon_magics.tables.stores.file_formats import parquet_file

_Ints = npt.NDArray[np.int64]
# Below this size, opening files twice costs more than late materialization saves.
_LATE_BYTES_MIN = 4 * 1024 * 1024
_BLOCK_ROWS_MIN = 1024
# How many keys are decoded at once where few are left: those of a batch are gone before the next.
_LEFT_OUT_ROWS = 16_384


def takes_late(files: FileReader, rule: MergeRule, section: Section) -> bool:
    """Whether to merge a section by `merged_late`."""
    stored = [file for run in section for file in run]
    # Where few rows are left by their keys, the values of all others would be read in vain.
    worthwhile = files.leaves_out or (
        len(section) > 1 and sum(file.size_bytes for file in stored) >= _LATE_BYTES_MIN
    )
    return (
        worthwhile
        and rule.engine.keeps_whole_rows
        and all(file.format == "parquet" for file in stored)
        and any(field.name not in _deciding(rule) for field in files.wanted)
    )


def block_rows(files: FileReader, section: Section) -> int:
    """How many rows to read at once from each run. A merge holds a block of every run in memory, so
    that the runs share `batch_rows`."""
    if len(section) == 1:
        return files.batch_rows
    return max(files.batch_rows // len(section), _BLOCK_ROWS_MIN)


def merged_late(
    files: FileReader,
    rule: MergeRule,
    section: Section,
    shown: Callable[[pa.RecordBatch], pa.RecordBatch],
    *,
    sequence_numbers: bool,
) -> Iterator[pa.RecordBatch]:
    """The merged rows of a section, with SEQUENCE if `sequence_numbers`.

    `shown` filters the winning rows by their keys and kinds, before their values are read.
    """
    deciding = _deciding(rule)
    rows = block_rows(files, section)
    section, in_sequence = _by_sequence(section)
    order = replace(rule.order, runs_in_sequence=in_sequence)
    keys = replace(
        files,
        wanted=tuple(field for field in files.wanted if field.name in deciding),
        system=(KIND,) if in_sequence and not sequence_numbers else (SEQUENCE, KIND),
        batch_rows=max(rows, _LEFT_OUT_ROWS) if files.leaves_out else rows,
    )
    values = replace(
        files,
        wanted=tuple(field for field in files.wanted if field.name not in deciding),
        system=(),
        batch_rows=rows,
    )
    with contextlib.ExitStack() as resources:
        chosen: list[ChosenRows] = []
        runs = []
        for run in section:
            runs.append(_numbered(keys, run, len(chosen)))
            chosen += [
                resources.enter_context(contextlib.closing(ChosenRows(values, f))) for f in run
            ]
        for batch in merge_runs(runs, order, lambda groups: merge_rows(groups, rule)):
            visible = shown(batch)
            if not visible.num_rows:
                continue
            # All rows of a batch come from one file: they are the winners of one run's block.
            places = np.asarray(visible.column(PLACE))
            visible = visible.drop_columns([PLACE])
            start = 0
            number = int(places[0]) >> FILE_BITS
            for part in chosen[number].rows(places & ((1 << FILE_BITS) - 1)):
                yield _beside(visible.slice(start, part.num_rows), part)
                start += part.num_rows


def _by_sequence(section: Section) -> tuple[Section, bool]:
    """The runs in the order of their sequence numbers, and whether the numbers of no two runs
    overlap: then a merge need not read the number of each row."""
    ranges = {
        run: (
            min(file.min_sequence_number for file in run),
            max(file.max_sequence_number for file in run),
        )
        for run in section
    }
    runs = sorted(section, key=lambda run: ranges[run])
    apart = all(ranges[run][1] < ranges[following][0] for run, following in pairwise(runs))
    return tuple(runs), apart


def _deciding(rule: MergeRule) -> set[str]:
    return {*rule.order.keys, *rule.order.sequence_fields}


def _numbered(
    keys: FileReader, run: tuple[StoredFile, ...], first: int
) -> Iterator[pa.RecordBatch]:
    for number, file in enumerate(run, first):
        yield from replace(keys, first_place=number << FILE_BITS).batches(file)


def _beside(batch: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [*batch.columns, *other.columns], names=[*batch.schema.names, *other.schema.names]
    )


class ChosenRows:
    """Reads chosen rows of one file, in file order. Opens the file with the first row; close it."""

    def __init__(self, files: FileReader, file: StoredFile) -> None:
        self._reader = files
        self._file = file
        self._columns = files.mapping(file)
        self._resources = contextlib.ExitStack()
        self._parquet: Any = None
        self._group = -1  # the row group that is read
        self._group_end = 0
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._batch: pa.RecordBatch | None = None
        self._start = 0  # the number of the batch's first row

    def rows(self, places: _Ints) -> Iterator[pa.RecordBatch]:
        """The rows with these numbers, in one or more batches. The numbers are ascending, also from
        call to call.

        Raises TableDamagedError for a file that is missing, damaged or too short.
        """
        while len(places):
            batch = self._batch_with(int(places[0]))
            count = int(np.searchsorted(places, self._start + batch.num_rows))
            inside, places = places[:count] - self._start, places[count:]
            if inside[-1] - inside[0] + 1 == count:
                yield batch.slice(int(inside[0]), count)
            else:
                yield batch.take(pa.array(inside))

    def close(self) -> None:
        """Close the file."""
        self._resources.close()

    def _batch_with(self, place: int) -> pa.RecordBatch:
        with self._reader.telling(self._file):
            stored = None
            while self._batch is None or place >= self._start + self._batch.num_rows:
                if self._batch is not None:
                    self._start += self._batch.num_rows
                if place >= self._group_end:
                    self._seek(place)
                stored = self._batch = next(self._batches, None)
                if stored is None:
                    raise ValueError(f"row {place} is missing")
            if stored is not None:  # not that of the last call, which is evolved
                self._batch = self._reader.evolved(stored, self._columns)
            return self._batch

    def _seek(self, place: int) -> None:
        """Begin to read the row group that holds a row."""
        if self._parquet is None:
            source = self._resources.enter_context(
                contextlib.closing(self._reader.access.open(self._file.path))
            )
            self._parquet = self._resources.enter_context(parquet_file(source))
        metadata = self._parquet.metadata
        while place >= self._group_end:
            self._group += 1
            if self._group == metadata.num_row_groups:
                raise ValueError(f"it has {self._group_end} rows, and row {place} is wanted")
            self._start = self._group_end
            self._group_end += metadata.row_group(self._group).num_rows
        self._batches = self._parquet.iter_batches(
            batch_size=self._reader.batch_rows,
            row_groups=[self._group],
            columns=list(self._columns.names),
            use_threads=self._reader.in_threads,
        )
