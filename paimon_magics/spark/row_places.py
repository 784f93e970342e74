"""Frames of an append table's rows with their places, and the job that changes rows by place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from paimon_magics.columnar.merging import PLACE
from paimon_magics.errors import sent_to_driver
from paimon_magics.planning.compaction.steps import balanced
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.planning.writes.losses import LOSSES
from paimon_magics.spark.arrow_stages import map_in_arrow
from paimon_magics.spark.python_workers import keep_modules
from paimon_magics.spark.row_tasks import rows_of_parts
from paimon_magics.spark.task_reports import Reporter, reports_folder
from paimon_magics.spark.task_units import RESULT_SCHEMA, UnitResults, result_batch, unit_results
from paimon_magics.spark.transfer import all_written, collected
from paimon_magics.spark.types import spark_schema, with_char_columns
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.tables.compaction.append_units import AppendUnit
from paimon_magics.tables.row_changes.looked_up_keys import LookedUpKeys
from paimon_magics.tables.row_changes.rewriting import ChangedFile, ColumnChanges, FileChanges
from paimon_magics.tables.row_changes.selected_rows import (
    FILE_COLUMN,
    PLACE_COLUMN,
    PlacedFiles,
    RowsOutOfOrderError,
    in_order,
)
from paimon_magics.tables.writing.row_counters import ChangedRows, ChangedTwiceError, LossyRows
from paimon_magics.tables.writing.write_spec import WriteSpec, Written

_TASKS_PER_SLOT = 3
_SYSTEM = (Column(0, FILE_COLUMN, AtomicType("INT")), Column(0, PLACE_COLUMN, AtomicType("BIGINT")))


@dataclass(frozen=True)
class AddedRows:
    """How new rows are written: their columns `names`, and the number of `writers`."""

    write: WriteSpec
    names: tuple[str, ...]
    writers: int


def placed_rows(
    spark: SparkSession,
    files: PlacedFiles | None,
    columns: Sequence[Column],
    more: Sequence[Column],
    slots: int,
    keys: LookedUpKeys | None = None,
) -> DataFrame:
    """The rows of the files, None for none: `columns` and, of what the reader adds, the columns
    `more`; then FILE_COLUMN, the number of a row's unit, and PLACE_COLUMN. A task has whole files,
    by ascending numbers and places. Rows without the values of `keys`, which may be determined
    until a job runs, are left out. Nothing runs yet."""
    shown = [*columns, *more, *_SYSTEM]
    if files is None or not files.units:
        return spark.createDataFrame([], schema=spark_schema(shown))
    groups = tuple(
        tuple(sorted(group, key=lambda unit: unit.number))
        for group in balanced(files.units, lambda unit: unit.size_bytes, slots * _TASKS_PER_SLOT)
    )
    chosen = files.only([column.name for column in columns])
    names = tuple(column.name for column in shown[:-2])
    work = _PlacedRows(replace(chosen, units=()), groups, names, keys)
    rows = rows_of_parts(spark, len(groups), work, shown, files.reader.batch_rows)
    return with_char_columns(rows, shown)


def change_files(
    spark: SparkSession,
    selected: DataFrame,
    changes: FileChanges | ColumnChanges,
    slots: int,
    *,
    changed_once: bool = False,
    in_place: bool = False,
) -> UnitResults[ChangedFile]:
    """Run the job that changes the files of the selected rows: `selected` has FILE_COLUMN,
    PLACE_COLUMN and the new values. One task owns each file. With `in_place` the rows are expected
    to be in the tasks and in the order of `placed_rows`, so that they need no shuffle; if they are
    not, the job runs again with a shuffle. Raises what Spark raises, and with `changed_once`
    ChangedTwiceError for rows, which then have KIND, of one place; the caller must then remove
    every file of the job."""
    if in_place:
        results = _changed(
            spark, selected, selected, _ChangeTasks(changes, "order", reports_folder())
        )
        numbers = [None if result is None else result.number for result in results.results]
        if None not in numbers and len(set(numbers)) == len(numbers):
            return results
        again = change_files(spark, selected, changes, slots, changed_once=changed_once)
        return replace(again, repeated_attempts=True)
    tasks = max(1, min(len(changes.units), slots * _TASKS_PER_SLOT))
    owner = F.expr(f"CAST(pmod({quoted(FILE_COLUMN)}, {tasks}) AS INT)")
    placed = selected.repartitionById(tasks, owner).sortWithinPartitions(FILE_COLUMN, PLACE_COLUMN)
    work = _ChangeTasks(changes, "once" if changed_once else None, reports_folder())
    results = _changed(spark, selected, placed, work)
    if None in results.results:
        raise ChangedTwiceError
    return results


def _changed(
    spark: SparkSession, selected: DataFrame, placed: DataFrame, work: _ChangeTasks
) -> UnitResults[Any]:
    rows, ran_twice = collected(
        spark, selected.schema, lambda: map_in_arrow(placed, work, RESULT_SCHEMA)
    )
    return unit_results(spark, rows, repeated=ran_twice)


def change_and_add_files(
    spark: SparkSession,
    rows: DataFrame,
    changes: FileChanges | ColumnChanges,
    added: AddedRows,
    slots: int,
) -> tuple[UnitResults[ChangedFile], Written]:
    """Run one job that changes files by the rows that have a place, as `change_files` with
    `changed_once`, and writes the others, which have none, into new files. Raises as that."""
    tasks = max(1, min(len(changes.units), slots * _TASKS_PER_SLOT))
    place = quoted(FILE_COLUMN)
    # By a row's values: a task that runs again because its output is lost must send each row to the
    # same task. A number in the order of rows would differ then.
    hashed = ", ".join(
        quoted(field.name)
        for field in rows.schema
        if field.name in added.names and _has_hash(field.dataType)
    )
    number = f"pmod(xxhash64({hashed}), {added.writers})" if hashed and added.writers > 1 else "0"
    owner = f"CASE WHEN {place} IS NULL THEN {tasks} + {number} ELSE pmod({place}, {tasks}) END"
    placed = rows.repartitionById(tasks + added.writers, F.expr(f"CAST({owner} AS INT)"))
    placed = placed.sortWithinPartitions(FILE_COLUMN, PLACE_COLUMN)
    work = _MergeTasks(_ChangeTasks(changes, "once", reports_folder()), added)
    returned, ran_twice = collected(
        spark, rows.schema, lambda: map_in_arrow(placed, work, RESULT_SCHEMA)
    )
    results = unit_results(spark, returned, repeated=ran_twice)
    if None in results.results:
        raise ChangedTwiceError
    written = [result for result in results.results if isinstance(result, Written)]
    changed = tuple(result for result in results.results if not isinstance(result, Written))
    return replace(results, results=changed), all_written(written)


def _has_hash(type: T.DataType) -> bool:
    """Whether Spark makes a hash of such values."""
    return isinstance(type, T.AtomicType) and not isinstance(type, T.VariantType)


@dataclass(frozen=True)
class _PlacedRows:
    """Runs in the task: reads a group of files."""

    files: PlacedFiles
    groups: tuple[tuple[AppendUnit, ...], ...]
    names: tuple[str, ...]
    keys: LookedUpKeys | None

    def __call__(self, group: int, reporter: Reporter) -> Iterator[pa.RecordBatch]:
        names = [*self.names, FILE_COLUMN, PLACE_COLUMN]
        for unit in self.groups[group]:
            read = self._reported(unit, reporter)
            for rows in read if self.keys is None else self.keys.matching(read):
                number = pa.array(np.full(rows.num_rows, unit.number, dtype=np.int32))
                arrays = [*(rows.column(name) for name in self.names), number, rows.column(PLACE)]
                yield pa.RecordBatch.from_arrays(arrays, names=names)
            reporter.add(0, unit.size_bytes)

    def _reported(self, unit: AppendUnit, reporter: Reporter) -> Iterator[pa.RecordBatch]:
        for rows in self.files.rows(unit):
            reporter.add(rows.num_rows, 0)
            yield rows


@dataclass(frozen=True)
class _ChangeTasks:
    """Runs in the task: changes the files whose selected rows it is given. Its last result is None,
    and not all was written, where two of these have one place though each comes `once`, or where
    they are not in `order`."""

    changes: FileChanges | ColumnChanges
    checked: Literal["once", "order"] | None
    reports: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reporter = Reporter(self.reports, writes=True)
        try:
            with sent_to_driver():
                lossy = LossyRows()
                noted = map(lossy.noted, self._noted(batches))
                for result in self.changes(noted, reporter.add):
                    yield result_batch(result)
                if lossy.counts:
                    yield result_batch(lossy)
        except (ChangedTwiceError, RowsOutOfOrderError):
            yield result_batch(None)
        reporter.end()
        keep_modules()

    def _noted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.checked == "order":
            yield from in_order(batches)
            return
        changed = ChangedRows((FILE_COLUMN, PLACE_COLUMN)) if self.checked == "once" else None
        for batch in batches:
            if changed is not None:
                changed.note(batch)
            yield batch


@dataclass(frozen=True)
class _MergeTasks:
    """Runs in the task, whose rows either all have a place or are all new."""

    changes: _ChangeTasks
    added: AddedRows

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from paimon_magics.tables.writing.writer import write_batches

        rest = iter(batches)
        first = next(filter(len, rest), None)
        if first is None:
            return
        rows = chain([first], rest)
        if first.column(FILE_COLUMN).null_count == 0:
            yield from self.changes(rows)
            return
        reporter = Reporter(self.changes.reports, writes=True)
        with sent_to_driver():
            written = write_batches(self.added.write, self._new(rows, reporter))
            yield result_batch(written)
        reporter.end()
        keep_modules()

    def _new(
        self, batches: Iterable[pa.RecordBatch], reporter: Reporter
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            reporter.add(batch.num_rows, batch.nbytes)
            names = [name for name in batch.schema.names if name == LOSSES]
            yield batch.select([*self.added.names, *names])
