"""Reads splits in a Spark task of a merge read: the rows of a table or of its changes.

The rows of a split are merged by key, read unmerged, put together from several files, or compared
with an earlier state. Then they become rows of the table or of a system table such as `$audit_log`.
Memory is bounded by `batch_rows` and the number of overlapping sorted runs. Light to import,
because Spark's tasks load it.

Rules: `MergeFileSplitRead`, `RawFileSplitRead`, `IncrementalDiffSplitRead`, `AuditLogTable`,
`BinlogTable` of Paimon.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.binlog import pack_updates, single_rows
from paimon_magics.columnar.differences import same_rows
from paimon_magics.columnar.folding import MergeRule, merge_rows
from paimon_magics.columnar.merging import (
    FILE_BITS,
    KIND,
    LEVEL,
    PLACE,
    SEQUENCE,
    Groups,
    is_retract,
    merge_runs,
)
from paimon_magics.columnar.time_zones import UTC
from paimon_magics.planning.reads.splits import (
    ColumnsSplit,
    DifferenceSplit,
    MergeSplit,
    PlainSplit,
    Section,
    StoredFile,
    TaskSplit,
    file_splits,
)
from paimon_magics.planning.reads.views import (
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    DELETE,
    KIND_NAMES,
    ROW_ID,
    RowView,
    ViewKind,
)
from paimon_magics.statements.queries.rewriting import BUCKET, FILE_PATH, ROW_INDEX
from paimon_magics.tables.reading.data_files import FileReader
from paimon_magics.tables.reading.evolving_files import side_by_side
from paimon_magics.tables.stores.file_formats import batch_of, parquet_file
from paimon_magics.tables.stores.paths import java_path

_BEFORE = "_BEFORE"


@dataclass(frozen=True)
class SplitReader:
    """Reads splits of one table.

    `files` reads the columns that `rule` needs and those that are shown. `rule` is None for tables
    without keys. `columns` are the names of the table's columns to show, in order. With
    `added_only` a view without row kinds leaves out changes of the kinds -U and -D.
    """

    files: FileReader
    rule: MergeRule | None
    view: RowView
    columns: tuple[str, ...]
    added_only: bool = False

    def rows(self, split: TaskSplit) -> Iterator[pa.RecordBatch]:
        """The rows of a split as the view shows them. Row kinds are Paimon's numbers."""
        if not self.view.metadata:
            yield from self._rows(split)
            return
        for part in file_splits(split) or (split,):
            if part.files:
                for batch in self._rows(part):
                    yield self._with_metadata(batch, part.files[0])

    def _rows(self, split: TaskSplit) -> Iterator[pa.RecordBatch]:
        match split:
            case MergeSplit(sections=sections):
                yield from self._shown(self._merged(sections), packed=False)
            case PlainSplit(files=files):
                yield from self._shown(self._plain(files), packed=True)
            case DifferenceSplit():
                yield from self._shown(self._difference(split), packed=False)
            case ColumnsSplit(groups=groups):
                # A file has only some columns of its rows, so that no condition may drop rows.
                reader = replace(self.files, conditions=())
                yield from self._shown(side_by_side(reader, groups), packed=True)

    def _with_metadata(self, batch: pa.RecordBatch, file: StoredFile) -> pa.RecordBatch:
        """The batch with the view's metadata columns in place of what they are made of. All its
        rows are of the bucket of `file`, and in that file if their places are shown."""
        count, keys = batch.num_rows, self.view.partition_keys
        arrays = {name: batch.column(name) for name in batch.schema.names}
        for column in self.view.metadata:
            match column.name:
                case name if name == FILE_PATH:
                    array = pa.repeat(pa.scalar(java_path(file.path)), count)
                case name if name == ROW_INDEX:
                    array = arrays.pop(PLACE)
                case name if name == BUCKET:
                    array = pa.array(np.full(count, file.bucket, dtype=np.int32))
                case name if name == COMMIT_VERSION:
                    assert file.commit is not None
                    array = pa.array(np.full(count, file.commit[0], dtype=np.int64))
                case name if name == COMMIT_TIMESTAMP:
                    assert file.commit is not None
                    micros = np.full(count, file.commit[1] * 1000, dtype=np.int64)
                    array = pa.array(micros, pa.timestamp("us", UTC))
                case _ if keys:
                    array = pa.StructArray.from_arrays([arrays[key] for key in keys], names=keys)
                case _:
                    array = pa.array([{}] * count, pa.struct([]))
            arrays[column.name] = array
        for key in keys:
            if key not in self.columns:
                del arrays[key]
        return batch_of(list(arrays.values()), list(arrays), count)

    def _plain(self, files: Sequence[StoredFile]) -> Iterator[pa.RecordBatch]:
        reader = self.files
        if self.rule is not None:  # columns that only a merge needs are not read
            if self.view.keeps_retracts:
                reader = self._of_keys(reader)
            reader = replace(
                reader,
                wanted=tuple(field for field in reader.wanted if field.name in self._names),
                system=self._system_columns(),
            )
        for file in files:
            for batch in reader.batches(file):
                yield self._added(batch) if self.added_only else batch

    def _of_keys(self, reader: FileReader) -> FileReader:
        """The reader with the conditions on keys only. These hold for all rows of a key or for
        none, so they never drop a row that hides another row, or one of the rows of an update. Rows
        that are neither merged nor shown with their kinds don't need this."""
        assert self.rule is not None
        keys = self.rule.order.keys
        conditions = tuple(
            condition for condition in reader.conditions if condition[0].name in keys
        )
        return replace(reader, conditions=conditions)

    def _system_columns(self) -> tuple[str, ...]:
        """The system columns that the view needs."""
        if not self.view.keeps_retracts:
            return (KIND,) if self.added_only else ()
        return (SEQUENCE, KIND) if self.view.sequence_numbers else (KIND,)

    def _merged(self, sections: Sequence[Section]) -> Iterator[pa.RecordBatch]:
        rule = self.rule
        assert rule is not None
        for section in sections:
            if takes_late(self.files, rule, section):
                numbers = self.view.sequence_numbers
                files = self._of_keys(self.files)
                yield from merged_late(files, rule, section, self._added, sequence_numbers=numbers)
                continue
            for batch in self._merged_by([section], lambda groups: merge_rows(groups, rule)):
                visible = self._added(batch)
                if visible.num_rows:
                    yield visible

    def _added(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that the view shows: without retracts, unless it keeps them."""
        if not self.view.keeps_retracts:
            retracts = is_retract(_kinds(batch))
            if retracts.any():
                return batch.filter(pa.array(~retracts))
        return batch

    def _merged_by(
        self, sections: Sequence[Section], merge: Callable[[Groups], Iterator[pa.RecordBatch]]
    ) -> Iterator[pa.RecordBatch]:
        assert self.rule is not None
        for section in sections:
            # A run has every key once: in a section of one run no row hides another one.
            files = self.files if len(section) == 1 else self._of_keys(self.files)
            files = replace(files, batch_rows=block_rows(files, section))
            levels = self.rule.looks_up
            runs = [_chained(files, run, levels=levels) for run in section]
            yield from merge_runs(runs, self.rule.order, merge)

    def _difference(self, split: DifferenceSplit) -> Iterator[pa.RecordBatch]:
        rule = self.rule
        assert rule is not None
        in_order = replace(rule, in_key_order=True)
        keyed = replace(self, files=self._of_keys(self.files))

        def side(sections: Sequence[Section], number: int) -> Iterator[pa.RecordBatch]:
            for batch in keyed._merged_by(sections, lambda groups: merge_rows(groups, in_order)):
                place = batch.schema.get_field_index(SEQUENCE)
                level = pa.array(np.full(batch.num_rows, number, dtype=np.int64))
                yield batch.append_column(_BEFORE, batch.column(place)).set_column(
                    place, SEQUENCE, level
                )

        order = replace(rule.order, sequence_fields=())
        runs = [side(split.before, 0), side(split.after, 1)]
        for batch in merge_runs(runs, order, self._differences):
            place = batch.schema.get_field_index(SEQUENCE)
            yield batch.set_column(place, SEQUENCE, batch.column(_BEFORE))

    def _differences(self, groups: Groups) -> Iterator[pa.RecordBatch]:
        """For each key the row that only one side has, or the later row if the sides differ."""
        kinds = groups.kinds()
        sides = np.asarray(groups.column(SEQUENCE))
        first, last = groups.order[groups.starts], groups.order[groups.ends - 1]
        retracts = is_retract(kinds)
        paired = first != last
        changed = np.ones(len(first), dtype=bool)
        places = np.flatnonzero(paired)
        if len(places):
            names = [field.name for field in self.files.wanted]
            same = same_rows([groups.column(n) for n in names], first[places], last[places])
            same &= retracts[first[places]] == retracts[last[places]]
            changed[places] = ~same
        gone = ~paired & (sides[last] == 0)
        if self.view.keeps_retracts:
            changed &= ~(gone & retracts[last])
        else:
            changed &= ~gone & ~retracts[last]
        for batch in groups.filtered(last[changed]):
            before = np.asarray(batch.column(SEQUENCE)) == 0
            if before.any():
                corrected = _kinds(batch).copy()
                corrected[before] = DELETE
                place = batch.schema.get_field_index(KIND)
                batch = batch.set_column(place, KIND, pa.array(corrected))
            yield batch

    def _shown(
        self, batches: Iterator[pa.RecordBatch], *, packed: bool
    ) -> Iterator[pa.RecordBatch]:
        names = [*self._system_names(), *self._names]
        if self.view.kind is not ViewKind.BINLOG:
            tracked = [ROW_ID, SEQUENCE] if self.view.kind is ViewKind.ROW_TRACKING else []
            tracked += [PLACE] if ROW_INDEX in self._metadata_names else []
            for batch in batches:
                shown = [pa.array(_kinds(batch))] if self.view.keeps_retracts else []
                arrays = [*shown, *self._values(batch), *map(batch.column, tracked)]
                yield batch_of(arrays, [*names, *tracked], batch.num_rows)
            return
        sequences = int(self.view.sequence_numbers)
        parts = ((_kinds(batch), self._values(batch)) for batch in batches)
        if packed:
            rows = pack_updates(parts, sequences)
        else:
            rows = (
                (kinds, [*columns[:sequences], *single_rows(columns[sequences:], len(kinds))])
                for kinds, columns in parts
            )
        for kinds, columns in rows:
            yield batch_of([pa.array(kinds), *columns], names, len(kinds))

    @property
    def _metadata_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.view.metadata)

    @property
    def _names(self) -> tuple[str, ...]:
        """The table's columns to show, and those that metadata columns show."""
        more = (key for key in self.view.partition_keys if key not in self.columns)
        return (*self.columns, *more)

    def _system_names(self) -> list[str]:
        if not self.view.keeps_retracts:
            return []
        return ["rowkind", SEQUENCE] if self.view.sequence_numbers else ["rowkind"]

    def _values(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The sequence numbers, if the view shows them, and the columns."""
        return [batch.column(name) for name in (*self._system_names()[1:], *self._names)]


def with_kind_names(reader: SplitReader, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of the reader's rows with row kinds by name (`+I`), as Spark shows them."""
    if not reader.view.keeps_retracts:
        return batch
    kinds = pa.array(KIND_NAMES).take(batch.column(0))
    return batch.set_column(0, batch.schema.names[0], kinds)


def _chained(
    files: FileReader, run: Sequence[StoredFile], *, levels: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of a run, with LEVEL if `levels`."""
    for file in run:
        for batch in files.batches(file):
            if levels:
                level = np.full(batch.num_rows, file.level, dtype=np.int8)
                batch = batch.append_column(LEVEL, pa.array(level))
            yield batch


def _kinds(batch: pa.RecordBatch) -> npt.NDArray[np.int8]:
    place = batch.schema.get_field_index(KIND)
    if place < 0:
        return np.zeros(batch.num_rows, dtype=np.int8)  # rows of append tables are inserts
    return np.asarray(batch.column(place)).astype(np.int8, copy=False)


# Late materialization: merges keys first, then reads the other columns of the winning rows.
#
# Row groups without a winning row are never read. It is used only where whole rows win
# (deduplicate, first-row) and files are Parquet. Light to import, because Spark's tasks load it.


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
