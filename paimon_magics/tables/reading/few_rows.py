"""Reads the few rows of a table that meet a read's conditions, in this process.

Keys are read first, and values of those rows only that are left. Memory is bounded by the rows that
are asked for and by the batches of the reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from paimon_magics.planning.reads.splits import MergeSplit, PlainSplit, StoredFile, TaskSplit
from paimon_magics.tables.reading.data_read import DataRead, shown_schema

__all__ = ["few_rows", "found_rows", "read_bytes"]


def read_bytes(read: DataRead) -> int:
    """The size of the files that a read may open."""
    raw = sum(sum(files.sizes_bytes) for files in read.planned.raw)
    return raw + sum(file.size_bytes for split in read.planned.splits for file in split.files)


def few_rows(read: DataRead, rows_max: int) -> pa.Table | None:
    """The rows of a table with keys that meet the read's conditions on key columns; None if they
    are more than `rows_max`. Rows may be among them that do not meet its other conditions."""
    found: list[pa.RecordBatch] = []
    rows = 0
    for batch in found_rows(read):
        rows += batch.num_rows
        if rows > rows_max:
            return None
        found.append(batch)
    return pa.Table.from_batches(found, shown_schema(read)).combine_chunks()


def found_rows(read: DataRead) -> Iterator[pa.RecordBatch]:
    """The rows of `few_rows`, however many they are, a batch at a time."""
    files = replace(read.reader.files, leaves_out=True)
    reader = replace(read.reader, files=files)
    for split in _splits(read):
        yield from reader.rows(split)


def _splits(read: DataRead) -> Iterator[TaskSplit]:
    """The splits of a read. Where a row wins as a whole, files that need no merge are merged alone,
    which reads the values last."""
    rule = read.reader.rule
    wins = rule is not None and rule.engine in ("deduplicate", "first-row")
    plain = [
        StoredFile(path, raw.format, raw.schema_id, rows, size)
        for raw in read.planned.raw
        for path, rows, size in zip(raw.paths, raw.row_counts, raw.sizes_bytes, strict=True)
    ]
    splits: list[TaskSplit] = [PlainSplit((file,)) for file in plain]
    for split in (*splits, *read.planned.splits):
        if wins and isinstance(split, PlainSplit):
            yield MergeSplit(tuple(((file,),) for file in split.files))
        else:
            yield split
