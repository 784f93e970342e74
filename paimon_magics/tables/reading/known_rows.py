"""The facts about a read that manifests alone provide: the number of rows, and bounds of columns.

Nothing is guessed. If a row can be hidden, deleted, or excluded by a condition that manifests don't
decide, the answer is None, and the files must be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paimon_magics.columnar.value_bounds import can_have
from paimon_magics.planning.reads.splits import (
    ColumnsSplit,
    DifferenceSplit,
    MergeSplit,
    PlainSplit,
    StoredFile,
    TaskSplit,
)
from paimon_magics.planning.reads.views import ViewKind
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.statements.statement import ColumnFilter
from paimon_magics.tables.manifests.column_statistics import Bounds, exact_bounds
from paimon_magics.tables.reading.data_read import DataRead
from paimon_magics.tables.reading.evolving_files import anchor_of
from paimon_magics.tables.schema.types import arrow_type


def are_decided(read: DataRead, filters: Sequence[ColumnFilter]) -> bool:
    """Whether the planned files have exactly the rows that meet `filters`: these compare partition
    keys with values that the keys can have."""
    keys = read.schema.partition_keys
    types = {
        column.name: arrow_type(column.type)
        for column in read.schema.columns
        if column.name in keys
    }
    return len(read.predicates) == len(filters) and all(
        predicate.column in types and can_have(predicate, types[predicate.column])
        for predicate in read.predicates
    )


def row_count(read: DataRead) -> int | None:
    """The number of rows that the planned files show; None if manifests don't tell."""
    if read.view.kind is ViewKind.BINLOG:  # shows the two rows of an update as one
        return None
    total = sum(sum(files.row_counts) for files in read.planned.raw)
    for split in read.planned.splits:
        count = _rows_of(split, keyed=read.schema.is_primary_key_table)
        if count is None:
            return None
        total += count
    return total


def known_bounds(
    read: DataRead, columns_of: Callable[[int], Sequence[Column]], column: Column
) -> Bounds | None:
    """The least and greatest value of a column in a read that was planned with entries; None if
    manifests don't tell."""
    entries = read.planned.entries
    if read.planned.splits or read.view.kind is not ViewKind.TABLE:
        return None
    if not read.planned.raw:
        return Bounds(nulls=0, is_exact=True)
    return None if entries is None else exact_bounds(entries, columns_of, column)


def _rows_of(split: TaskSplit, *, keyed: bool) -> int | None:
    match split:
        case PlainSplit(files=files):
            counts = [_left_in(file, keyed=keyed) for file in files]
        case ColumnsSplit(groups=groups):
            counts = [_in_group(group) for group in groups]
        case MergeSplit() | DifferenceSplit():
            return None
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _left_in(file: StoredFile, *, keyed: bool) -> int | None:
    """The number of stored rows that a file shows."""
    if keyed and file.deleted_rows != 0:
        return None
    if file.deletions is None:
        return file.rows
    return None if file.deletions.rows is None else file.rows - file.deletions.rows


def _in_group(files: Sequence[StoredFile]) -> int | None:
    """The rows of files that hold different columns of the same rows."""
    whole = [file for file in files if not file.is_dedicated]
    if len({(file.first_row_id, file.rows) for file in whole}) != 1:
        return None
    return _left_in(anchor_of(files), keyed=False)
