"""Reads the few rows of a read in this process, with bounds on rows and memory.

Where the conditions fix keys, these are read first, and values of those rows only that are left.
Memory is bounded by the rows that are asked for and by the batches of the reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from paimon_magics.planning.reads.local_reads import LocalLimits, plain_splits
from paimon_magics.planning.reads.splits import MergeSplit, PlainSplit, TaskSplit
from paimon_magics.tables.reading.data_read import DataRead, shown_schema
from paimon_magics.tables.snapshots.targets import TableState

__all__ = ["few_rows", "found_rows", "splits_of"]

_BATCH_ROWS = 4096
"""Rows of a batch: a read that ends early has decoded no more than these in vain."""


def splits_of(read: DataRead) -> tuple[TaskSplit, ...]:
    """The splits of a read, also those of files that need no merge."""
    plain = (split for files in read.planned.raw for split in plain_splits(files))
    return (*plain, *read.planned.splits)


def found_rows(read: DataRead) -> Iterator[pa.RecordBatch]:
    """The rows of a table with keys that meet the read's conditions on key columns, a batch at a
    time, however many they are. Rows may be among them that do not meet its other conditions."""
    files = replace(read.reader.files, leaves_out=True, in_threads=True)
    reader = replace(read.reader, files=files)
    for split in splits_of(read):
        yield from reader.rows(_keys_first(read, split))


def few_rows(
    read: DataRead, splits: Iterable[TaskSplit], limits: LocalLimits
) -> pa.RecordBatch | None:
    """The rows of `splits` as the read's view shows them; None if they are more than the limits
    allow. Rows that do not meet the read's conditions may be among them, and with `first_rows`
    there may be some more than wanted.

    Raises TableDamagedError for files that can't be read.
    """
    rows_max, bytes_max = limits.rows_max, limits.bytes_max
    batch_rows = min(read.reader.files.batch_rows, _BATCH_ROWS)
    if limits.first_rows is not None:
        batch_rows = min(batch_rows, max(limits.first_rows, 1))
    files = replace(read.reader.files, leaves_out=True, batch_rows=batch_rows, in_threads=True)
    small = replace(read, reader=replace(read.reader, files=files))
    found: list[pa.RecordBatch] = []
    rows = size = 0
    for split in splits:
        for batch in small.named(_keys_first(read, split) if limits.by_key else split):
            rows += batch.num_rows
            size += batch.nbytes
            if rows > rows_max or size > bytes_max:
                return None
            found.append(batch)
            if limits.first_rows is not None and rows >= limits.first_rows:
                return _joined(found)
    return _joined(found) if found else _without_rows(shown_schema(read))


def _keys_first(read: DataRead, split: TaskSplit) -> TaskSplit:
    """The split, as one that is read keys first: where a row wins as a whole, files of a state that
    need no merge are merged alone. Files of changes have several rows of a key, which all count."""
    rule = read.reader.rule
    wins = rule is not None and rule.engine in ("deduplicate", "first-row")
    wins = wins and isinstance(read.target, TableState) and not read.view.keeps_retracts
    if wins and isinstance(split, PlainSplit):
        return MergeSplit(tuple(((file,),) for file in split.files))
    return split


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches() or batches[:1]
    return batch


def _without_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], one.type) for one in schema], schema=schema)
