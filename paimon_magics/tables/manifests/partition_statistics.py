"""The partitions of a table as documents of Paimon's REST catalog, with their rows and files.

Values are written as Paimon's Java library writes them into partition specs: NULL as
`partition.default-name`, dates as days since 1970 unless `partition.legacy-name` is false.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pypaimon.snapshot.snapshot_commit import PartitionStatistics

from paimon_magics.planning.schemas.table_schema import DEFAULT_PARTITION_NAME
from paimon_magics.statements.data_types import AtomicType, DataType
from paimon_magics.statements.types.type_text import from_paimon
from paimon_magics.tables.manifests.file_kinds import ADD
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.manifests.partition_values import partition_values
from paimon_magics.tables.manifests.partitions import partition_value_text
from paimon_magics.tables.schema.files import schema_text
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.table import StoredTable

__all__ = ["partition_documents", "partition_statistics"]

_EPOCH = datetime.date(1970, 1, 1)


def partition_documents(table: StoredTable) -> list[dict[str, Any]]:
    """A document for each partition that has files, sorted by spec; [] for an unpartitioned
    table."""
    snapshot = latest_snapshot(table.paimon)
    if not table.schema.get("partitionKeys") or snapshot is None:
        return []
    collected = _collect(table.schema, _stored_files(table.paimon, snapshot))
    return [
        {
            "spec": found.spec,
            "recordCount": found.record_count,
            "fileSizeInBytes": found.file_size_in_bytes,
            "fileCount": found.file_count,
            "lastFileCreationTime": found.last_file_creation_time,
            "totalBuckets": found.total_buckets,
            "done": False,
        }
        for found in collected
    ]


def partition_statistics(paimon: Any, entries: Iterable[Any]) -> list[PartitionStatistics]:
    """The changes of a commit with these manifest entries, for each partition. An unpartitioned
    table is one partition with an empty spec. For the `statistics` of a REST catalog's commit."""
    return _collect(json.loads(schema_text(paimon.table_schema)), map(_changed_file, entries))


@dataclass(frozen=True, slots=True)
class _File:
    """A file in a partition; `sign` is 1 for an added file, -1 for a deleted one."""

    partition: tuple[Any, ...]
    sign: int
    rows: int
    size_bytes: int
    total_buckets: int
    created_ms: int | None


def _changed_file(entry: Any) -> _File:
    file = entry.file
    return _File(
        tuple(entry.partition.values),
        1 if entry.kind == ADD else -1,
        file.row_count,
        file.file_size,
        entry.total_buckets,
        None if file.creation_time is None else int(file.creation_time.get_millisecond()),
    )


def _stored_files(paimon: Any, snapshot: Any) -> Iterator[_File]:
    names = ("row_count", "file_size", "total_buckets", "creation_time")
    files = live_files(ManifestCache(paimon), snapshot, names)
    partitions, of_files = partition_values(paimon, files)
    columns = (
        files.column("row_count").to_pylist(),
        files.column("file_size").to_pylist(),
        files.column("total_buckets").to_pylist(),
        files.column("creation_time").cast(pa.int64()).to_pylist(),
    )
    for at, *values in zip(of_files, *columns, strict=True):
        yield _File(partitions[at], 1, *values)


def _collect(schema: Mapping[str, Any], files: Iterable[_File]) -> list[PartitionStatistics]:
    """The sums of `files` for each partition; deleted files are subtracted. Partitions of blank
    and missing values are apart, with equal specs."""
    keys = schema.get("partitionKeys") or []
    types = {
        field["name"]: from_paimon(field["type"])
        for field in schema["fields"]
        if field["name"] in keys
    }
    options = schema.get("options") or {}
    null = options.get("partition.default-name", DEFAULT_PARTITION_NAME)
    legacy = options.get("partition.legacy-name", "true").lower() == "true"
    found: dict[tuple[Any, ...], PartitionStatistics] = {}
    for file in files:
        spec = {
            key: _text(value, types[key], null, legacy)
            for key, value in zip(keys, file.partition, strict=True)
        }
        partition = found.setdefault(
            file.partition, PartitionStatistics(spec=spec, last_file_creation_time=0)
        )
        partition.record_count += file.sign * file.rows
        partition.file_size_in_bytes += file.sign * file.size_bytes
        partition.file_count += file.sign
        partition.total_buckets = max(partition.total_buckets, file.total_buckets)
        created_ms = max(partition.last_file_creation_time, file.created_ms or 0)
        partition.last_file_creation_time = created_ms
    return sorted(found.values(), key=lambda partition: tuple(partition.spec.values()))


def _text(value: Any, data_type: DataType, null: str, legacy: bool) -> str:
    """`InternalRowPartitionComputer.generatePartValues`: a blank text has the name of NULL."""
    if value is None:
        return null
    if legacy and isinstance(data_type, AtomicType) and data_type.name == "DATE":
        return str((value - _EPOCH).days if isinstance(value, datetime.date) else value)
    text = partition_value_text(value, data_type)
    return text if text.strip() else null
