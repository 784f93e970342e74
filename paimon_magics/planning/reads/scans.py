"""Divides the files of a read between raw scans and a merge read.

Raw scan: Spark's own file source reads files that need no merge, one scan for each schema and
format; Catalyst prunes columns and pushes predicates down. Merge read: Python tasks read everything
else, split by split: overlapping runs, deletion vectors, stored deletes, formats or types that
Spark would read differently, and schema changes that need Paimon's casts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

from paimon_magics.planning.reads.float_bounds import has_true_bounds, judged_by_bounds
from paimon_magics.planning.reads.local_reads import LocalLimits, plain_splits
from paimon_magics.planning.reads.splits import RawFiles, TaskSplit
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.statements.data_types import (
    AtomicType,
    DataType,
    as_nullable,
    parts_of,
)

__all__ = [
    "RawColumn",
    "RawScan",
    "ReadPlan",
    "pack_splits",
    "plan_local",
    "plan_read",
]


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
    splits that the planning process reads itself; then there is nothing else. With `known_rows`
    only the number of rows is wanted, which is that one: no file is read."""

    raw_scans: tuple[RawScan, ...]
    tasks: tuple[tuple[TaskSplit, ...], ...]
    unscanned: tuple[tuple[str, int], ...] = ()
    """Reasons why raw scans don't read files that need no merge, each with its number of files."""
    local: tuple[TaskSplit, ...] = ()
    known_rows: int | None = None

    @property
    def raw_file_count(self) -> int:
        """The number of files that raw scans read."""
        return sum(len(scan.paths) for scan in self.raw_scans)

    @property
    def merge_file_count(self) -> int:
        """The number of files that the merge read reads."""
        return sum(len(split.files) for task in self.tasks for split in task)

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
    known = [has_true_bounds(path) for path in files.paths]
    if not any(judged_by_bounds(column.stored_type) for column in columns):
        known = [True] * len(known)
    for told in sorted(set(known), reverse=True):
        yield RawScan(
            files.format,
            columns,
            tuple(compress(files.paths, (one is told for one in known))),
            tuple(compress(files.sizes_bytes, (one is told for one in known))),
            told,
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
_SMALL = "opening so many small ones takes Spark longer"
_SMALL_BYTES = 128 * 1024
_SMALL_FILES_MIN = 64


def _are_small(files: RawFiles) -> bool:
    """Whether a merge read of the files takes less time than Spark takes to list and open them.

    A raw scan of five thousand files of a thousand bytes took 6.5 s, a merge read 2.2 s. With
    larger files the way of rows through Python costs more, and with few files the tenths of a
    second that Python tasks take to begin.
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
        found = by_id.get(column.id)
        if found is None:
            continue
        if (files.schema_id, column.id) in changed:
            return f"`{column.name}` had other fields when they were written"
        if not _readable(found.type, files.format):
            return f"Spark reads the type of `{column.name}` differently from {files.format}"
        if not _same_or_wider(found.type, column.type):
            return f"`{column.name}` had another type when they were written"
    return None


def _map_columns(columns: Sequence[Column], stored: Sequence[Column]) -> tuple[RawColumn, ...]:
    """Each column's place in files of another schema, by field id."""
    by_id = {column.id: column for column in stored}
    result = []
    for column in columns:
        found = by_id.get(column.id)
        if found is None:
            result.append(RawColumn(column, None, column.type))
        else:
            result.append(RawColumn(column, found.name, found.type))
    return tuple(result)


_RAW_ATOMIC = {
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "CHAR",
    "VARCHAR", "STRING", "BINARY", "VARBINARY", "BYTES",
}  # fmt: skip
_MICROSECOND_DIGITS = 6


def _readable(data_type: DataType, file_format: str) -> bool:
    """Whether a raw scan of `file_format` reads the type exactly as Paimon stores it."""
    if file_format not in ("parquet", "orc"):
        return False
    atomic = (part for part in parts_of(data_type) if isinstance(part, AtomicType))
    return all(_reads(part, file_format) for part in atomic)


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


_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def _same_or_wider(stored: DataType, wanted: DataType) -> bool:
    """Whether every stored value is the same value in the wanted type, in Spark as in Paimon."""
    stored, wanted = as_nullable(stored, True), as_nullable(wanted, True)
    if stored == wanted:
        return True
    match stored, wanted:
        case AtomicType(name=a), AtomicType(name=b) if a in _INTEGERS and b in _INTEGERS:
            return _INTEGERS.index(a) <= _INTEGERS.index(b)
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
