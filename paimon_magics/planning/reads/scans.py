"""Which files of a read a raw scan has, and which a merge read.

Raw scan: Spark's own file source reads files that need no merge, a scan for each schema and format;
Catalyst prunes columns and pushes predicates. Merge read: Python tasks read everything else, split
by split: overlapping runs, deletion vectors, stored deletes, formats or types that Spark would read
differently, changes of schema that need Paimon's casts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

from paimon_magics.planning.reads.float_bounds import has_true_bounds, judged_by_bounds
from paimon_magics.planning.reads.splits import PlainSplit, RawFiles, StoredFile, TaskSplit
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
    "plan_read",
]


@dataclass(frozen=True, slots=True)
class RawColumn:
    """How a column of the table is found in files of one schema: under `stored_name` with
    `stored_type`, or not at all (`stored_name` is None: it is NULL)."""

    column: Column
    stored_name: str | None
    stored_type: DataType


@dataclass(frozen=True, slots=True)
class RawScan:
    """Files that one raw scan reads. With `true_bounds` they have bounds by which
    conditions on floating-point columns can be judged."""

    format: str
    columns: tuple[RawColumn, ...]
    paths: tuple[str, ...]
    sizes_bytes: tuple[int, ...]
    true_bounds: bool = False


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What to read. `tasks` are packed: each tuple is one task's splits."""

    raw_scans: tuple[RawScan, ...]
    tasks: tuple[tuple[TaskSplit, ...], ...]
    unscanned: tuple[tuple[str, int], ...] = ()
    """Why a raw scan does not read files that need no merge, and how many."""

    @property
    def raw_file_count(self) -> int:
        """How many files raw scans read."""
        return sum(len(scan.paths) for scan in self.raw_scans)

    @property
    def merge_file_count(self) -> int:
        """How many files the merge read has."""
        return sum(len(split.files) for task in self.tasks for split in task)


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
    """The raw scans and the merge read that give `columns` of raw files and splits.

    `schemas` gives the columns of every schema id that raw files have; `changed` are the (schema
    id, column id) whose nested fields are others than today's. `slots` is the number of tasks that
    can run at once. `spark_opens_store` is false where the JVM has no file system for the table's
    store, so that a merge read has every file.
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
        in_tasks += (
            PlainSplit((StoredFile(path, files.format, files.schema_id, rows, size),))
            for path, rows, size in zip(
                files.paths, files.row_counts, files.sizes_bytes, strict=True
            )
        )
    return ReadPlan(tuple(scans), pack_splits(in_tasks, slots), tuple(unscanned.items()))


def _scans(files: RawFiles, columns: tuple[RawColumn, ...]) -> Iterator[RawScan]:
    """The files, apart by their bounds where conditions on floating-point columns can come."""
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
    """At most `tasks` groups of splits, even by stored bytes: the largest split goes first, each
    to the group that has least. A Python task costs tenths of a second before its first row."""
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
    """Whether reading the files takes less time than Spark takes to list and open them.

    Five thousand files of a thousand bytes took a raw scan 6.5 s and a merge read 2.2 s.
    Rows that come by way of Python cost more the larger the files are; and Python tasks take
    tenths of a second to begin.
    """
    count = len(files.paths)
    return count >= _SMALL_FILES_MIN and sum(files.sizes_bytes) < count * _SMALL_BYTES


def _unreadable(
    columns: Sequence[Column],
    stored: Sequence[Column],
    files: RawFiles,
    changed: Collection[tuple[int, int]],
) -> str | None:
    """Why a raw scan would not read files of another schema as Paimon does."""
    by_id = {column.id: column for column in stored}
    for column in columns:
        found = by_id.get(column.id)
        if found is None:
            continue
        if (files.schema_id, column.id) in changed:
            return f"the parts of `{column.name}` were others when they were written"
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
    # Spark reads ORC timestamps shifted outside UTC, and ORC dates before 1582 by days, because
    # Java's writer says of days since 1970 that they are of the Julian calendar. It reads no
    # Parquet timestamps beyond micros.
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
