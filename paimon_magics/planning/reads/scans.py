"""Divides the files of a read between raw scans and a merge read.

Raw scan: Spark's own file source reads files that need no merge, one scan for each schema and
format; Catalyst prunes columns and pushes predicates down. Merge read: Python tasks read everything
else, split by split: overlapping runs, deletion vectors, stored deletes, formats or types that
Spark would read differently, and schema changes that need Paimon's casts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

from paimon_magics.planning.options.formats import FILE_FORMATS
from paimon_magics.planning.reads.predicates import ColumnPredicate, few_values
from paimon_magics.planning.reads.splits import PlainSplit, RawFiles, StoredFile, TaskSplit
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.data_types import (
    FLOATS,
    INTEGERS,
    AtomicType,
    DataType,
    RowType,
    as_nullable,
    contains_type,
    family_of,
    parts_of,
    types_of,
)

MENDED_PREFIXES = {"data-file.prefix": "mdata-", "changelog-file.prefix": "mchangelog-"}
"""What follows the transaction's prefix in the names of such files of the native writer, by the
option that sets the prefix of file names. It has no hyphen inside, because the attempt's id
follows."""

OWN_PREFIXES = {"data-file.prefix": "wdata-", "changelog-file.prefix": "wchangelog-"}
"""The same for files of the writers of our own, which stamp them otherwise
(`planning.reports.view_queries`)."""

_MENDED = re.compile(r"pm-[0-9a-f]{32}-[mw](?:data|changelog)-[^/]*\.parquet", re.IGNORECASE)


_KEYED_BYTES_MAX = 64 << 20
"""The size of the files that can hold the wanted keys. Of those only the keys are read, and the
values of the rows that are left; beyond that several cores and Spark's use of page indexes win."""


_TASKS_PER_SLOT_MAX = 4
"""Each task that writes begins a Python worker. With more of them a shuffle is no larger part."""

_TASK_BUCKETS_MAX = 64
"""A writer keeps something open for each bucket until its task ends."""


@dataclass(frozen=True, slots=True)
class RawColumn:
    """Where files of one schema store a column of the table: under `stored_name`, with
    `stored_type`. `stored_name` is None for files without the column, where it is NULL."""

    column: Column
    stored_name: str | None
    stored_type: DataType


@dataclass(frozen=True, slots=True)
class RawScan:
    """Files that one raw scan reads. With `true_bounds`, their bounds of floating-point columns are
    right, so that conditions on such columns can be judged by them."""

    format: str
    columns: tuple[RawColumn, ...]
    paths: tuple[str, ...]
    sizes_bytes: tuple[int, ...]
    true_bounds: bool = False


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What to read. Each tuple of `tasks` has the splits of one task of the merge read. `local` are
    splits that the planning process reads itself; then there is nothing else. No file is read if
    only the number of rows is wanted, `known_rows`, or only aggregates that manifests tell:
    `known_row` is a relation of SQL with their results, named as they are."""

    raw_scans: tuple[RawScan, ...]
    tasks: tuple[tuple[TaskSplit, ...], ...]
    unscanned: tuple[tuple[str, int], ...] = ()
    """Reasons why raw scans don't read files that need no merge, each with its number of files."""
    local: tuple[TaskSplit, ...] = ()
    known_rows: int | None = None
    known_row: str | None = None

    @property
    def opens_no_file(self) -> bool:
        """Whether manifests tell what is wanted."""
        return self.known_rows is not None or self.known_row is not None

    @property
    def raw_file_count(self) -> int:
        """The number of files that raw scans read."""
        return sum(len(scan.paths) for scan in self.raw_scans)

    @property
    def merge_file_count(self) -> int:
        """The number of files that the merge read reads."""
        return sum(len(split.files) for task in self.tasks for split in task)

    @property
    def merged_bytes(self) -> int:
        """The stored bytes of the files that the merge read reads."""
        return sum(file.size_bytes for task in self.tasks for split in task for file in split.files)

    @property
    def local_file_count(self) -> int:
        """The number of files that the planning process reads."""
        return sum(len(split.files) for split in self.local)


def plan_read(
    columns: Sequence[Column],
    schemas: Mapping[int, Sequence[Column]],
    raw: Sequence[RawFiles],
    splits: Sequence[TaskSplit],
    *,
    changed: Collection[tuple[int, int]] = (),
    slots: int,
    spark_opens_store: bool,
) -> ReadPlan:
    """Return the raw scans and the merge read that give `columns` of raw files and splits.

    `schemas` maps each schema id of the raw files to its columns. `changed` has (schema id, column
    id) of columns whose nested fields have changed since. `slots` is the number of tasks that can
    run at once. `spark_opens_store` is false where the JVM has no file system for the table's
    store, so that the merge read reads every file.
    """
    scans: list[RawScan] = []
    in_tasks: list[TaskSplit] = list(splits)
    unscanned: dict[str, int] = {}
    for files in raw:
        if not spark_opens_store:
            reason: str | None = _STORE
        elif _are_small(files):
            reason = _SMALL
        else:
            reason = _unreadable(columns, schemas[files.schema_id], files, changed)
        if reason is None:
            mapped = _map_columns(columns, schemas[files.schema_id])
            scans += _scans(files, mapped)
            continue
        unscanned[reason] = unscanned.get(reason, 0) + len(files.paths)
        in_tasks += plain_splits(files)
    return ReadPlan(tuple(scans), pack_splits(in_tasks, slots), tuple(unscanned.items()))


def plan_local(
    limits: LocalLimits, raw: Sequence[RawFiles], splits: Sequence[TaskSplit]
) -> ReadPlan | None:
    """Return the plan by which the planning process reads everything itself; None if that is more
    than the limits allow."""
    if not limits.take(raw, splits):
        return None
    plain = (split for files in raw for split in plain_splits(files))
    return ReadPlan((), (), local=(*plain, *splits))


def _scans(files: RawFiles, columns: tuple[RawColumn, ...]) -> Iterator[RawScan]:
    """One scan of the files; two, by `true_bounds`, if floating-point columns are read."""
    are_true = [has_true_bounds(path) for path in files.paths]
    if not any(judged_by_bounds(column.stored_type) for column in columns):
        are_true = [True] * len(are_true)
    for true_bounds in sorted(set(are_true), reverse=True):
        selected = [is_true is true_bounds for is_true in are_true]
        yield RawScan(
            files.format,
            columns,
            tuple(compress(files.paths, selected)),
            tuple(compress(files.sizes_bytes, selected)),
            true_bounds,
        )


def pack_splits(splits: Sequence[TaskSplit], tasks: int) -> tuple[tuple[TaskSplit, ...], ...]:
    """Divide splits into at most `tasks` groups of about equal stored bytes.

    The largest splits go first, each to the group with the fewest bytes. Groups are few because a
    Python task takes tenths of a second before its first row.
    """
    groups: list[list[TaskSplit]] = [[] for _ in range(min(max(tasks, 1), len(splits)))]
    loads = [0] * len(groups)
    sized = [(sum(file.size_bytes for file in split.files), split) for split in splits]
    for size, split in sorted(sized, key=lambda pair: pair[0], reverse=True):
        smallest = loads.index(min(loads))
        groups[smallest].append(split)
        loads[smallest] += size + 1
    return tuple(tuple(group) for group in groups)


_STORE = "Spark does not open their store"
_SMALL = "opening so many small files takes Spark longer"
_SMALL_BYTES = 128 * 1024
_SMALL_FILES_MIN = 64


def _are_small(files: RawFiles) -> bool:
    """Whether a merge read of the files takes less time than Spark takes to list and open them.

    A raw scan of five thousand files of a thousand bytes took 6.5 s, a merge read 2.2 s. With
    larger files the way of rows through Python costs more, and with few files the tenths of a
    second that Python tasks take to start.
    """
    count = len(files.paths)
    return count >= _SMALL_FILES_MIN and sum(files.sizes_bytes) < count * _SMALL_BYTES


def _unreadable(
    columns: Sequence[Column],
    stored: Sequence[Column],
    files: RawFiles,
    changed: Collection[tuple[int, int]],
) -> str | None:
    """Why a raw scan would not read the files as Paimon does; None if it would."""
    by_id = {column.id: column for column in stored}
    for column in columns:
        known = by_id.get(column.id)
        if known is None:
            continue
        if (files.schema_id, column.id) in changed:
            return f"`{column.name}` had other fields when they were written"
        if not _readable(known.type, files.format):
            return f"Spark reads the type of `{column.name}` differently from {files.format}"
        if not _same_or_wider(known.type, column.type):
            return f"`{column.name}` had another type when they were written"
    return None


def _map_columns(columns: Sequence[Column], stored: Sequence[Column]) -> tuple[RawColumn, ...]:
    """Each column's place in files of another schema, by field id."""
    by_id = {column.id: column for column in stored}
    places = ((column, by_id.get(column.id)) for column in columns)
    return tuple(
        RawColumn(column, None, column.type)
        if known is None
        else RawColumn(column, known.name, known.type)
        for column, known in places
    )


_RAW_ATOMIC = types_of("boolean", "integer", "float", "decimal", "text", "binary")
_MICROSECOND_DIGITS = 6


def _readable(data_type: DataType, file_format: str) -> bool:
    """Whether a raw scan of `file_format` reads the type exactly as Paimon stores it."""
    traits = FILE_FORMATS.get(file_format)
    atomic = (part for part in parts_of(data_type) if isinstance(part, AtomicType))
    is_exact = traits is not None and traits.is_spark_exact
    return is_exact and all(_reads(part, file_format) for part in atomic)


def _reads(data_type: AtomicType, file_format: str) -> bool:
    name = data_type.name
    if name in _RAW_ATOMIC:
        return True
    if name == "VARIANT":
        return file_format == "parquet"
    # Spark shifts ORC timestamps in sessions outside UTC, and ORC dates before 1582 by days,
    # because Java's writer marks days since 1970 as being of the Julian calendar. It reads no
    # Parquet timestamps finer than microseconds.
    if file_format != "parquet":
        return False
    digits = data_type.parameters[0] if name in ("TIMESTAMP", "TIMESTAMP_LTZ") else None
    return name == "DATE" or (digits is not None and digits <= _MICROSECOND_DIGITS)


def _same_or_wider(stored: DataType, wanted: DataType) -> bool:
    """Whether every stored value is the same value in the wanted type, in Spark as in Paimon."""
    stored, wanted = as_nullable(stored, True), as_nullable(wanted, True)
    if stored == wanted:
        return True
    match stored, wanted:
        case AtomicType(name=a), AtomicType(name=b) if a in INTEGERS and b in INTEGERS:
            return INTEGERS.index(a) <= INTEGERS.index(b)
        case AtomicType(name="FLOAT"), AtomicType(name="DOUBLE"):
            return True
        case AtomicType(name="DECIMAL", parameters=a), AtomicType(name="DECIMAL", parameters=b):
            return a[1] == b[1] and a[0] <= b[0]
        case AtomicType(name="VARCHAR"), AtomicType(name="STRING"):
            return True
        case AtomicType(name="VARCHAR", parameters=a), AtomicType(name="VARCHAR", parameters=b):
            return a[0] <= b[0]
        case _:
            return False


# Finds files whose bounds of floating-point columns are reliable for pruning.
#
# File names show this. Files written here have their footers corrected where needed
# (`tables.writing.float_bounds`). Files of other writers, and files written here before that, may
# leave NaN out of the bounds, so that pruning by conditions on such columns would be wrong.


def has_true_bounds(path: str) -> bool:
    """Whether a file's name says that its bounds are right even if values are NaN or -0.0."""
    return _MENDED.fullmatch(path.rpartition("/")[2]) is not None


def is_floating(data_type: DataType) -> bool:
    """Whether the type is FLOAT or DOUBLE."""
    return family_of(data_type) == "float"


def floating_columns(columns: Sequence[Column]) -> tuple[str, ...]:
    """The names of the columns with FLOAT or DOUBLE at any level."""
    return tuple(
        column.name
        for column in columns
        if any(contains_type(column.type, name) for name in FLOATS)
    )


def judged_by_bounds(data_type: DataType) -> bool:
    """Whether a column of this type has bounds of floating-point values: its own, or those of a
    nested field. Elements of arrays and maps have no bounds."""
    match data_type:
        case RowType(fields=fields):
            return any(judged_by_bounds(field.type) for field in fields)
        case _:
            return is_floating(data_type)


# Decides whether the process that plans a read also reads the rows itself.
#
# Few rows of small files take some milliseconds there, where Spark's tasks take tenths of a second
# before their first row. Spark then gets them as a local relation, for which it starts no task, and
# evaluates the user's text over it as over any other rows.


@dataclass(frozen=True, slots=True)
class LocalLimits:
    """Upper bounds on the reads of the planning process: `rows_max` rows, which take `bytes_max`
    bytes in memory, from files of `bytes_max` bytes, and `files_max` files.

    With `by_key` the conditions leave few keys, so files may be larger than the returned rows.
    `first_rows` is an upper bound on the rows needed (LIMIT without ORDER BY).
    """

    rows_max: int
    bytes_max: int
    files_max: int
    by_key: bool = False
    first_rows: int | None = None

    def take(self, raw: Sequence[RawFiles], splits: Sequence[TaskSplit]) -> bool:
        """Whether these files are few and small enough."""
        if not self.rows_max:
            return False
        counts = [len(files.paths) for files in raw] + [len(split.files) for split in splits]
        formats = {files.format for files in raw}
        formats |= {file.format for split in splits for file in split.files}
        is_small = sum(counts) <= self.files_max and stored_bytes(raw, splits) <= self.bytes_max
        streams = "orc" not in formats  # its reader takes a whole stripe into memory
        if self.first_rows is not None and self.first_rows <= self.rows_max:
            return is_small or streams
        if self.by_key and sum(counts) <= self.files_max and (is_small or streams):
            return stored_bytes(raw, splits) <= _KEYED_BYTES_MAX
        rows = sum(sum(files.row_counts) for files in raw)
        rows += sum(file.rows for split in splits for file in split.files)
        return is_small and rows <= self.rows_max


def fixes_keys(schema: TableSchema, predicates: Sequence[ColumnPredicate], keys_max: int) -> bool:
    """Whether the conditions leave a table with keys at most `keys_max` of them."""
    keys = schema.primary_keys
    return bool(keys) and few_values(predicates, keys, keys_max) is not None


def stored_bytes(raw: Sequence[RawFiles], splits: Sequence[TaskSplit]) -> int:
    """The size of the files of a read."""
    size = sum(sum(files.sizes_bytes) for files in raw)
    return size + sum(file.size_bytes for split in splits for file in split.files)


def plain_splits(files: RawFiles) -> Iterator[PlainSplit]:
    """Files that need no merge, each as a split of its own."""
    for path, rows, size in zip(files.paths, files.row_counts, files.sizes_bytes, strict=True):
        yield PlainSplit((StoredFile(path, files.format, files.schema_id, rows, size),))


# Whether each task of a read has its own buckets, so that it can also write them.
#
# The tasks of a merge read are known. Spark divides the files of a raw scan itself: a file stays in
# one task if it is no larger than Spark's limit for a task (`FilePartition.maxSplitBytes`), and
# tasks get whole files. Callers verify the result of the tasks: files of one bucket can be in two
# folders (`data-file.external-paths`), and Spark's behavior may change.


@dataclass(frozen=True, slots=True)
class ScanSizes:
    """Spark's settings for the tasks of a scan: the upper bound on bytes of a task, the bytes that
    opening a file counts as, and the number of tasks that run at once."""

    task_bytes_max: int = 128 << 20
    open_bytes: int = 4 << 20
    slots: int = 1

    def task_bytes(self, scan: RawScan) -> int:
        """The bytes of a scan for each task. A larger file is split."""
        share = self.weight(scan) // max(self.slots, 1)
        return min(self.task_bytes_max, max(self.open_bytes, share))

    def weight(self, scan: RawScan) -> int:
        """The bytes of a scan, including the bytes that opening its files counts as."""
        return sum(scan.sizes_bytes) + self.open_bytes * len(scan.sizes_bytes)


def have_own_buckets(plan: ReadPlan, sizes: ScanSizes) -> bool:
    """Whether no two tasks read rows of one bucket, and there are few enough of both that each task
    may write its buckets."""
    if plan.local or plan.opens_no_file:
        return False
    tasks = len(plan.tasks) + sum(
        math.ceil(sizes.weight(scan) / sizes.task_bytes(scan)) for scan in plan.raw_scans
    )
    if tasks > sizes.slots * _TASKS_PER_SLOT_MAX:
        return False
    if any(max(scan.sizes_bytes) > sizes.task_bytes(scan) for scan in plan.raw_scans):
        return False
    seen: set[str] = set()
    for folders in _folders(plan):
        if len(folders) > _TASK_BUCKETS_MAX or not seen.isdisjoint(folders):
            return False
        seen |= folders
    return True


def _folders(plan: ReadPlan) -> Iterator[set[str]]:
    """The folders of files that are certainly in one task: a file of a scan, or the splits of a
    task. Each bucket has its own folder."""
    for scan in plan.raw_scans:
        for path in scan.paths:
            yield {_folder(path)}
    for task in plan.tasks:
        yield {_folder(file.path) for split in task for file in split.files}


def _folder(path: str) -> str:
    """The folder of a file, without the scheme, which Spark may spell otherwise."""
    return (path.partition(":")[2] or path).rpartition("/")[0].lstrip("/")
