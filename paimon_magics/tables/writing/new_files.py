"""New data and changelog files: their paths, and the metadata of written files that goes to the
driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class StoredBounds:
    """Bounds of some columns: serialized `BinaryRow`s of the least and the greatest values, and the
    number of NULLs of each column."""

    least: bytes
    greatest: bytes
    null_counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that was written. Members are those of Paimon's `DataFileMeta`.

    `least_key` and `greatest_key` are serialized `BinaryRow`s. `value_bounds` are those of
    `bounded_columns`, which is None if all columns have bounds. `is_compacted` distinguishes rows
    that were merged before from rows that were written for the first time (`FileSource`).
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


def partition_values_row(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.RecordBatch:
    """One row of partition columns; it has none for a table without partitions."""
    if not names:
        return pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])))
    return pa.RecordBatch.from_arrays(list(columns), names=list(names))


def file_path(paimon: Any, partition: tuple[Any, ...], bucket: int, name: str) -> str:
    """The path of a file of a bucket. `paimon` is pypaimon's table."""
    from pypaimon.utils.file_store_path_factory import canonical_data_file_path

    return str(canonical_data_file_path(paimon, partition, bucket, name))


def bucket_folder(paimon: Any, partition: tuple[Any, ...], bucket: int) -> str:
    """The folder of a bucket."""
    return file_path(paimon, partition, bucket, "file").rpartition("/")[0]
