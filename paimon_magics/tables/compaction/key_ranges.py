"""Ranges of keys by which one bucket is divided among several tasks.

A range begins with its first key and ends before the first key of the next one. Keys compare as
Paimon's do. Light to import, because Spark's tasks load it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from paimon_magics.columnar.merging import comparable_keys
from paimon_magics.planning.reads.splits import Section, StoredFile
from paimon_magics.tables.reading.data_files import FileReader

__all__ = ["ALL_KEYS", "Key", "KeyBounds", "first_key", "rows_within", "section_cuts"]

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """Keys from `first` on, before `end`; None is no bound."""

    first: Key | None = None
    end: Key | None = None


ALL_KEYS = KeyBounds()
"""No bounds."""


def first_key(rows: pa.RecordBatch, keys: Sequence[str]) -> Key:
    """The key of the first row."""
    return tuple(column[0].as_py() for column in comparable_keys(rows.slice(0, 1), keys))


def rows_within(rows: pa.RecordBatch, keys: Sequence[str], bounds: KeyBounds) -> pa.RecordBatch:
    """The rows, sorted by `keys`, that lie within the bounds."""
    if bounds.first is None and bounds.end is None:
        return rows
    columns = comparable_keys(rows, keys)
    low = 0 if bounds.first is None else _place(columns, rows.num_rows, bounds.first)
    high = rows.num_rows if bounds.end is None else _place(columns, rows.num_rows, bounds.end)
    return rows.slice(low, max(high - low, 0))


def section_cuts(files: FileReader, keys: Sequence[str], section: Section, count: int) -> list[Key]:
    """Keys that divide the section's rows into about `count` ranges of one size: fewer where rows
    share a key. They come from the largest run, of which the key columns are read."""
    if count < 2:
        return []
    run = max(section, key=lambda files: sum(file.rows for file in files))
    total = sum(file.rows for file in run)
    wanted = [total * i // count for i in range(1, count)]
    cuts: list[Key] = []
    start = 0
    for file in run:
        places = [place - start for place in wanted if start <= place < start + file.rows]
        if places:
            cuts += list(_keys_at(files, keys, file, places))
        start += file.rows
    return sorted(set(cuts))


def _keys_at(
    files: FileReader, keys: Sequence[str], file: StoredFile, places: Sequence[int]
) -> Iterator[Key]:
    start = 0
    left = list(places)
    for rows in files.batches(file):
        columns = comparable_keys(rows, keys)
        while left and left[0] < start + rows.num_rows:
            place = left.pop(0) - start
            yield tuple(column[place].as_py() for column in columns)
        if not left:
            return
        start += rows.num_rows


def _place(columns: Sequence[pa.Array], rows: int, key: Key) -> int:
    """How many of the rows come before `key`."""
    low, high = 0, rows
    while low < high:
        middle = (low + high) // 2
        if tuple(column[middle].as_py() for column in columns) < key:
            low = middle + 1
        else:
            high = middle
    return low
