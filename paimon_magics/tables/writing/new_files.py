"""Data and changelog files that a task has written, as small values that travel to the driver."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredBounds:
    """Bounds of some columns: serialised `BinaryRow`s of the least and the greatest values, and the
    number of NULLs of each column."""

    least: bytes
    greatest: bytes
    null_counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that was written. Members are those of Paimon's `DataFileMeta`.

    `least_key` and `greatest_key` are serialised `BinaryRow`s. `value_bounds` are those of
    `bounded_columns`, which is None where all columns have bounds. `is_compacted` tells rows that
    were merged before from rows that were written for the first time (`FileSource`).
    """

    name: str
    size_bytes: int
    rows: int
    least_key: bytes
    greatest_key: bytes
    key_bounds: StoredBounds
    value_bounds: StoredBounds
    bounded_columns: tuple[str, ...] | None
    min_sequence_number: int
    max_sequence_number: int
    schema_id: int
    level: int
    deleted_rows: int
    created_ms: int
    is_compacted: bool
    extra_files: tuple[str, ...] = ()
    embedded_index: bytes | None = None
