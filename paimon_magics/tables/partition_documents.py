"""The partitions of a table as the documents of Paimon's REST catalog, with what lies in each.

Values are written as Paimon's Java side writes them into specs: NULL as `partition.default-name`,
dates as days since 1970 unless `partition.legacy-name` is false.
"""

from __future__ import annotations

import datetime
from typing import Any

from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager

from paimon_magics.statements.data_types import AtomicType, DataType
from paimon_magics.statements.type_text import from_paimon
from paimon_magics.tables.partitions import partition_value_text
from paimon_magics.tables.stored_tables import StoredTable

__all__ = ["partition_documents"]

_EPOCH = datetime.date(1970, 1, 1)


def partition_documents(table: StoredTable) -> list[dict[str, Any]]:
    """Every partition that has files, sorted by its spec; empty for an unpartitioned table."""
    keys = table.schema.get("partitionKeys") or []
    snapshot = table.paimon.snapshot_manager().get_latest_snapshot()
    if not keys or snapshot is None:
        return []
    types = {
        field["name"]: from_paimon(field["type"])
        for field in table.schema["fields"]
        if field["name"] in keys
    }
    options = table.schema.get("options") or {}
    null = options.get("partition.default-name", "__DEFAULT_PARTITION__")
    legacy = options.get("partition.legacy-name", "true").lower() == "true"
    manifests = ManifestListManager(table.paimon).read_all(snapshot)
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for entry in ManifestFileManager(table.paimon).read_entries_parallel(manifests):
        spec = {
            key: _text(value, types[key], null, legacy)
            for key, value in zip(keys, entry.partition.values, strict=True)
        }
        document = found.setdefault(
            tuple(spec.values()),
            {
                "spec": spec,
                "recordCount": 0,
                "fileSizeInBytes": 0,
                "fileCount": 0,
                "lastFileCreationTime": 0,
                "totalBuckets": 0,
                "done": False,
            },
        )
        document["recordCount"] += entry.file.row_count
        document["fileSizeInBytes"] += entry.file.file_size
        document["fileCount"] += 1
        document["totalBuckets"] = max(document["totalBuckets"], entry.total_buckets)
        if entry.file.creation_time is not None:
            created_ms = int(entry.file.creation_time.get_millisecond())
            document["lastFileCreationTime"] = max(document["lastFileCreationTime"], created_ms)
    return [found[values] for values in sorted(found)]


def _text(value: Any, data_type: DataType, null: str, legacy: bool) -> str:
    if value is None:
        return null
    if legacy and isinstance(data_type, AtomicType) and data_type.name == "DATE":
        return str((value - _EPOCH).days if isinstance(value, datetime.date) else value)
    return partition_value_text(value, data_type)
