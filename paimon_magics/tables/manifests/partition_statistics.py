"""The partitions of a table as the documents of Paimon's REST catalog, with what lies in each.

Values are written as Paimon's Java side writes them into specs: NULL as `partition.default-name`,
dates as days since 1970 unless `partition.legacy-name` is false.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.snapshot.snapshot_commit import PartitionStatistics

from paimon_magics.statements.data_types import AtomicType, DataType
from paimon_magics.statements.types.type_text import from_paimon
from paimon_magics.tables.manifests.partitions import partition_value_text
from paimon_magics.tables.schema.files import schema_text
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.table import StoredTable

__all__ = ["partition_documents", "partition_statistics"]

_ADD = 0  # Paimon's FileKind
_EPOCH = datetime.date(1970, 1, 1)


def partition_documents(table: StoredTable) -> list[dict[str, Any]]:
    """Every partition that has files, sorted by its spec; empty for an unpartitioned table."""
    snapshot = latest_snapshot(table.paimon)
    if not table.schema.get("partitionKeys") or snapshot is None:
        return []
    manifests = ManifestListManager(table.paimon).read_all(snapshot)
    entries = ManifestFileManager(table.paimon).read_entries_parallel(manifests)
    collected = _collect(table.schema, entries)
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
    """How much a commit with these entries changes each partition; without partition keys the one
    nameless partition. For the `statistics` of a REST catalog's commit."""
    return _collect(json.loads(schema_text(paimon.table_schema)), entries)


def _collect(schema: Mapping[str, Any], entries: Iterable[Any]) -> list[PartitionStatistics]:
    """What is in each partition, or is added to it: entries that delete count against it."""
    keys = schema.get("partitionKeys") or []
    types = {
        field["name"]: from_paimon(field["type"])
        for field in schema["fields"]
        if field["name"] in keys
    }
    options = schema.get("options") or {}
    null = options.get("partition.default-name", "__DEFAULT_PARTITION__")
    legacy = options.get("partition.legacy-name", "true").lower() == "true"
    found: dict[tuple[str, ...], PartitionStatistics] = {}
    for entry in entries:
        spec = {
            key: _text(value, types[key], null, legacy)
            for key, value in zip(keys, entry.partition.values, strict=True)
        }
        partition = found.setdefault(
            tuple(spec.values()), PartitionStatistics(spec=spec, last_file_creation_time=0)
        )
        sign = 1 if entry.kind == _ADD else -1
        partition.record_count += sign * entry.file.row_count
        partition.file_size_in_bytes += sign * entry.file.file_size
        partition.file_count += sign
        partition.total_buckets = max(partition.total_buckets, entry.total_buckets)
        if entry.file.creation_time is not None:
            created_ms = int(entry.file.creation_time.get_millisecond())
            partition.last_file_creation_time = max(partition.last_file_creation_time, created_ms)
    return [found[values] for values in sorted(found)]


def _text(value: Any, data_type: DataType, null: str, legacy: bool) -> str:
    if value is None:
        return null
    if legacy and isinstance(data_type, AtomicType) and data_type.name == "DATE":
        return str((value - _EPOCH).days if isinstance(value, datetime.date) else value)
    return partition_value_text(value, data_type)
