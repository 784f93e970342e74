"""Turns a read plan into one lazy Spark DataFrame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from paimon_magics.columnar.merging import KIND, SEQUENCE
from paimon_magics.planning.reads.scans import (
    RawColumn,
    RawScan,
    ReadPlan,
    is_floating,
    judged_by_bounds,
)
from paimon_magics.planning.reads.splits import TaskSplit
from paimon_magics.planning.reads.views import (
    CHANGE_TYPE,
    COMMIT_COLUMNS,
    KIND_NAMES,
    RowView,
    ViewKind,
    shown_columns,
)
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.spark.failures import translate
from paimon_magics.spark.files import load_files
from paimon_magics.spark.row_tasks import rows_of_parts
from paimon_magics.spark.session_settings import statement_settings
from paimon_magics.spark.task_reports import Reporter
from paimon_magics.spark.types import spark_schema, spark_type, with_char_columns
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import ArrayType, AtomicType
from paimon_magics.tables.reading.spark_batches import IS_PAIR, names_apart, pairs_apart
from paimon_magics.tables.reading.split_reader import SplitReader
from paimon_magics.tables.stores.corruption import check_stored

if TYPE_CHECKING:
    import pyarrow as pa

_KIND_TYPE = AtomicType("TINYINT")
_CHANGE_TYPES = ("insert", "update_preimage", "update_postimage", "delete")
_SYSTEM = (
    Column(0, SEQUENCE, AtomicType("BIGINT")),
    Column(0, KIND, _KIND_TYPE),
)
# Regardless of the session's settings, no file is skipped, and old dates are read as Paimon stores
# them.
_AS_STORED = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
_FILTER = "parquet.filter.{}.enabled"
_ANY_NUMBER_OF_PATHS = {"spark.sql.sources.parallelPartitionDiscovery.threshold": str(2**31 - 1)}


def read_frame(
    spark: SparkSession,
    plan: ReadPlan,
    columns: Sequence[Column],
    reader: SplitReader,
    *,
    lists_null: bool = False,
) -> DataFrame:
    """The frame of the rows that `plan` reads, with `columns` as the reader's view shows them.
    Nothing runs yet. With `lists_null` a condition may compare a column with a list that contains
    NULL, which Spark's scan of ORC files can't handle."""
    shown = shown_columns(columns, reader.view)
    kinds = reader.rule is not None and reader.view.keeps_retracts
    frames = [
        _shown(
            _raw(spark, scan, _SYSTEM if kinds else (), lists_null and scan.format == "orc"),
            reader.view,
            kinds=kinds,
        )
        for scan in plan.raw_scans
    ]
    if plan.tasks:
        frames.append(_of_tasks(spark, _ReadTasks(reader, plan.tasks), shown))
    if not frames:
        return spark.createDataFrame([], schema=spark_schema(shown))
    return with_char_columns(reduce(DataFrame.unionAll, frames), shown)


def _shown(frame: DataFrame, view: RowView, *, kinds: bool) -> DataFrame:
    """The frame as the view shows it. `kinds` tells that it has SEQUENCE and KIND; without them all
    rows are inserts, as in append tables."""
    if not view.keeps_retracts:
        return frame
    names = [name for name in frame.columns if name not in (SEQUENCE, KIND)]
    columns = [frame[quoted(name)] for name in names]
    if view.kind is ViewKind.BINLOG:
        columns = [F.array(c).alias(n) for c, n in zip(columns, names, strict=True)]
    kind = _kind_named(frame[KIND]) if kinds else F.lit("+I")
    numbers = [frame[SEQUENCE]] if view.sequence_numbers else []
    return frame.select(kind.alias("rowkind"), *numbers, *columns)


def change_rows(frame: DataFrame) -> DataFrame:
    """The changes that a frame of an audit log shows, as Spark's CHANGES names them: the table's
    columns, then the kind of change, and its commit. A frame without kinds only counts rows."""
    if "rowkind" not in frame.columns:
        return frame
    own = [name for name in frame.columns if name not in ("rowkind", SEQUENCE, *COMMIT_COLUMNS)]
    kinds = F.create_map(*map(F.lit, chain(*zip(KIND_NAMES, _CHANGE_TYPES, strict=True))))
    return frame.select(
        *(frame[quoted(name)] for name in own),
        kinds[frame["rowkind"]].alias(CHANGE_TYPE),
        *(frame[name] for name in COMMIT_COLUMNS),
    )


def _of_tasks(spark: SparkSession, work: _ReadTasks, shown: Sequence[Column]) -> DataFrame:
    """The frame of the rows that the tasks read, with the columns `shown`.

    Row kinds come from Python as numbers and get their names in the JVM: reading texts takes
    longer, and a query that does not use the kinds then skips the names.
    """
    view = work.reader.view
    if not view.keeps_retracts:
        return _split_rows(spark, work, shown)
    kind, *others = shown
    first = replace(kind, type=_KIND_TYPE)
    if view.kind is ViewKind.BINLOG:
        return _of_pairs(spark, work, first, others)
    frame = _split_rows(spark, work, [first, *others])
    named = _kind_named(frame[kind.name]).alias(kind.name)
    return frame.select(named, *(frame[quoted(other.name)] for other in others))


def _split_rows(spark: SparkSession, work: _ReadTasks, columns: Sequence[Column]) -> DataFrame:
    return rows_of_parts(spark, len(work.tasks), work, columns, work.reader.files.batch_rows)


def _of_pairs(
    spark: SparkSession, work: _ReadTasks, kind: Column, others: Sequence[Column]
) -> DataFrame:
    """The same for a binlog. Its arrays come as two columns of values each, of which the JVM makes
    them: reading arrays out of Arrow takes it longer."""
    singles = others[: int(work.reader.view.sequence_numbers)]
    arrays = others[len(singles) :]
    apart = [
        Column(0, name, array.type.element)
        for number, array in enumerate(arrays)
        if isinstance(array.type, ArrayType)
        for name in names_apart(number)
    ]
    is_pair = Column(0, IS_PAIR, AtomicType("BOOLEAN"))
    frame = _split_rows(spark, work, [kind, *singles, is_pair, *apart])
    shown = [frame[quoted(single.name)] for single in singles]
    for number, array in enumerate(arrays):
        before, after = (frame[quoted(name)] for name in names_apart(number))
        pair = F.when(frame[IS_PAIR], F.array(before, after)).otherwise(F.array(before))
        shown.append(pair.alias(array.name))
    return frame.select(_kind_named(frame[kind.name]).alias(kind.name), *shown)


def _kind_named(number: SparkColumn) -> SparkColumn:
    """Paimon's name of a row kind, such as `+I`, for its number."""
    return F.element_at(F.array(*map(F.lit, KIND_NAMES)), number.cast("int") + 1)


def _raw(spark: SparkSession, scan: RawScan, system: Sequence[Column], shields: bool) -> DataFrame:
    """The raw scan's rows, with the columns `system` after the table's. With `shields` no condition
    reaches the scan."""
    stored = [
        Column(id=0, name=raw.stored_name, type=raw.stored_type)
        for raw in scan.columns
        if raw.stored_name is not None
    ] + list(system)
    check_stored(scan.paths, scan.sizes_bytes)
    reader = spark.read.schema(spark_schema(stored)).options(**_AS_STORED, **_filters(scan))
    # Above the threshold Spark would start a job only to look at the files.
    with statement_settings(spark, tuple(_ANY_NUMBER_OF_PATHS), lambda _: _ANY_NUMBER_OF_PATHS):
        try:
            frame = load_files(reader.format(scan.format), scan.paths)
        except AnalysisException as error:  # a file is gone
            raise translate(error) from error
    if not shields and all(
        raw.stored_name == raw.column.name
        and raw.stored_type == raw.column.type
        and (scan.true_bounds or not judged_by_bounds(raw.stored_type))
        for raw in scan.columns
    ):
        return frame
    return frame.select(
        *(_stored_column(frame, scan, raw, shields).alias(raw.column.name) for raw in scan.columns),
        *(frame[column.name] for column in system),
    )


def _filters(scan: RawScan) -> dict[str, str]:
    """Options that turn off filters by which the scan would skip parts of Parquet files.

    With true bounds, conditions on floating-point columns reach the scan, and only dictionaries are
    off: in them -0.0 differs from 0.0. Otherwise bounds may leave NaN out. `_stored_column` keeps
    the conditions on FLOAT and DOUBLE columns from the scan; it can't do that for fields in
    structs, so with these every filter is off.
    """
    types = [raw.stored_type for raw in scan.columns if judged_by_bounds(raw.stored_type)]
    if scan.format != "parquet" or not types:
        return {}
    if scan.true_bounds:
        return {_FILTER.format("dictionary"): "false"}
    if all(map(is_floating, types)):
        return {}
    kinds = ("stats", "columnindex", "dictionary", "bloom")
    return {_FILTER.format(kind): "false" for kind in kinds}


def _stored_column(frame: DataFrame, scan: RawScan, raw: RawColumn, shields: bool) -> SparkColumn:
    """A column of the files. Where the files' bounds must not be used for it, or it `shields` the
    scan, it is an expression with the same values that Spark does not push conditions through."""
    if raw.stored_name is None:
        return F.lit(None).cast(spark_type(raw.column.type))
    column = frame[quoted(raw.stored_name)]
    if not scan.true_bounds and is_floating(raw.stored_type):
        column = F.nanvl(column, column)
    elif shields or (
        not scan.true_bounds and scan.format == "orc" and judged_by_bounds(raw.stored_type)
    ):
        column = F.coalesce(column, column)
    same = raw.stored_type == raw.column.type
    return column if same else column.cast(spark_type(raw.column.type))


@dataclass(frozen=True)
class _ReadTasks:
    """Runs in the task: reads a group of splits."""

    reader: SplitReader
    tasks: tuple[tuple[TaskSplit, ...], ...]

    def __call__(self, task: int, reporter: Reporter) -> Iterator[pa.RecordBatch]:
        """The rows of a task's splits; they are reported as they are read; rows that are left out
        are reported at the end of each split."""
        is_binlog = self.reader.view.kind is ViewKind.BINLOG
        for split in self.tasks[task]:
            shown = 0
            for rows in self.reader.rows(split):
                shown += rows.num_rows
                reporter.add(rows.num_rows, 0)
                yield pairs_apart(rows) if is_binlog else rows
            if self.reader.files.leaves_out:
                reporter.add(sum(file.rows for file in split.files) - shown, 0)
            reporter.add(0, sum(file.size_bytes for file in split.files))
