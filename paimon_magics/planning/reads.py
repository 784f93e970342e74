"""Which road each part of a read takes.

Raw road: files that need no merge become one native scan of Spark's per (schema, format), where
Catalyst prunes columns and pushes predicates. Arrow road: everything else goes split by split
through the native reader in Python tasks: overlapping runs, deletion vectors, stored deletes,
formats or types that Spark would read differently, changes of schema that need Paimon's casts.

Source of the raw rule: Paimon's `MergeTreeSplitGenerator` and `RawFileSplitRead`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paimon_magics.planning.definitions import Column
from paimon_magics.statements.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    RowType,
    as_nullable,
)

__all__ = [
    "DataFile",
    "RawColumn",
    "RawScan",
    "ReadPlan",
    "Split",
    "pack_splits",
    "plan_read",
]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of a split. `format` is its extension in lower case; `deleted_rows` counts the
    retracting rows stored in it, None where the writer did not say."""

    path: str
    format: str
    schema_id: int
    rows: int
    size_bytes: int
    deleted_rows: int | None


@dataclass(frozen=True, slots=True)
class Split:
    """Files of one (partition, bucket) that are read together; `body` is Java's serialised form."""

    files: tuple[DataFile, ...]
    raw_convertible: bool
    has_deletion_vectors: bool
    body: bytes

    @property
    def size_bytes(self) -> int:
        """The stored size of the split's files."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class RawColumn:
    """How a column of the table is found in files of one schema: under `stored_name` with
    `stored_type`, or not at all (`stored_name` is None: it is NULL)."""

    column: Column
    stored_name: str | None
    stored_type: DataType


@dataclass(frozen=True, slots=True)
class RawScan:
    """Files that one native scan of Spark's reads."""

    format: str
    columns: tuple[RawColumn, ...]
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What to read at one snapshot (`snapshot_id` None: the table has none). `merges` are packed:
    each tuple is one task's splits."""

    snapshot_id: int | None
    raw_scans: tuple[RawScan, ...]
    merges: tuple[tuple[Split, ...], ...]

    @property
    def raw_file_count(self) -> int:
        """How many files the raw road reads."""
        return sum(len(scan.paths) for scan in self.raw_scans)

    @property
    def merge_file_count(self) -> int:
        """How many files the Arrow road reads."""
        return sum(len(split.files) for task in self.merges for split in task)


def plan_read(
    columns: Sequence[Column],
    schemas: Mapping[int, Sequence[Column]],
    splits: Sequence[Split],
    *,
    snapshot_id: int | None,
    slots: int,
    spark_opens_store: bool,
) -> ReadPlan:
    """The roads for reading `columns` out of `splits`.

    `schemas` gives the columns of every schema id that the splits' files have. `slots` is the
    number of tasks that can run at once. `spark_opens_store` is false where the JVM has no file
    system for the table's store, so that everything goes the Arrow road.
    """
    raw: dict[tuple[int, str], list[str]] = {}
    mapped: dict[tuple[int, str], tuple[RawColumn, ...] | None] = {}
    merges: list[Split] = []
    for split in splits:
        keys = {(file.schema_id, file.format) for file in split.files}
        for key in keys - mapped.keys():
            mapped[key] = _map_columns(columns, schemas[key[0]], key[1])
        if (
            spark_opens_store
            and _needs_no_merge(split)
            and all(mapped[key] is not None for key in keys)
        ):
            for file in split.files:
                raw.setdefault((file.schema_id, file.format), []).append(file.path)
        else:
            merges.append(split)
    scans = []
    for key, paths in raw.items():
        found = mapped[key]
        assert found is not None
        scans.append(RawScan(format=key[1], columns=found, paths=tuple(paths)))
    return ReadPlan(
        snapshot_id=snapshot_id, raw_scans=tuple(scans), merges=pack_splits(merges, slots)
    )


def pack_splits(splits: Sequence[Split], tasks: int) -> tuple[tuple[Split, ...], ...]:
    """At most `tasks` groups of splits, even by stored bytes: the largest split goes first, each
    to the group that has least. A Python task costs tenths of a second before its first row."""
    groups: list[list[Split]] = [[] for _ in range(min(max(tasks, 1), len(splits)))]
    sizes = [0] * len(groups)
    for split in sorted(splits, key=lambda s: s.size_bytes, reverse=True):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(split)
        sizes[smallest] += split.size_bytes + 1
    return tuple(tuple(group) for group in groups)


def _needs_no_merge(split: Split) -> bool:
    return (
        split.raw_convertible
        and not split.has_deletion_vectors
        and all(file.deleted_rows == 0 or file.deleted_rows is None for file in split.files)
    )


def _map_columns(
    columns: Sequence[Column], stored: Sequence[Column], file_format: str
) -> tuple[RawColumn, ...] | None:
    """Each column's place in files of another schema, by field id; None if Spark can't read it."""
    by_id = {column.id: column for column in stored}
    result = []
    for column in columns:
        found = by_id.get(column.id)
        if found is None:
            result.append(RawColumn(column, None, column.type))
            continue
        if not _readable(found.type, file_format) or not _same_or_wider(found.type, column.type):
            return None
        result.append(RawColumn(column, found.name, found.type))
    return tuple(result)


_RAW_ATOMIC = {
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "CHAR",
    "VARCHAR", "STRING", "BINARY", "VARBINARY", "BYTES", "DATE",
}  # fmt: skip
_MICROSECOND_DIGITS = 6


def _readable(data_type: DataType, file_format: str) -> bool:
    """Whether Spark's own scan of `file_format` reads the type exactly as Paimon stores it."""
    if file_format not in ("parquet", "orc"):
        return False
    match data_type:
        case AtomicType(name=name, parameters=parameters):
            if name in _RAW_ATOMIC:
                return True
            # Spark reads ORC timestamps shifted outside UTC, and no Parquet ones beyond micros.
            return (
                file_format == "parquet"
                and name in ("TIMESTAMP", "TIMESTAMP_LTZ")
                and parameters[0] <= _MICROSECOND_DIGITS
            )
        case ArrayType(element=element):
            return _readable(element, file_format)
        case MapType(key=key, value=value):
            return _readable(key, file_format) and _readable(value, file_format)
        case RowType(fields=fields):
            return all(_readable(field.type, file_format) for field in fields)


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
