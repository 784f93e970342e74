"""What lies in the partitions that a statement would replace or remove, from the manifests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager

from paimon_magics.tables.commits.changes import typed_partition
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.table import Table

__all__ = ["PartitionSize", "sizes_of_replaced"]

Spec = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """What is stored in one partition, () for a table without any. `rows` are stored rows: those
    of a primary-key table are counted before they are merged, which `is_merged` tells: there is a
    bucket with several sorted runs."""

    partition: tuple[Any, ...]
    files: int
    size_bytes: int
    rows: int
    is_merged: bool = False


def sizes_of_replaced(
    table: Table,
    *,
    specs: Sequence[Spec] | None = None,
    partitions: Sequence[tuple[Any, ...]] = (),
) -> list[PartitionSize]:
    """The partitions of the latest snapshot that one of `specs` describes (() is all), or those
    with the values of `partitions`. Reads all manifests."""
    paimon = table.paimon
    snapshot = latest_snapshot(paimon)
    if snapshot is None:
        return []
    keys = table.schema.partition_keys
    typed = None if specs is None else [typed_partition(table, spec) for spec in specs]
    wanted = set(partitions)
    sizes: dict[tuple[Any, ...], PartitionSize] = {}
    runs: dict[tuple[Any, ...], set[object]] = {}
    manifests = ManifestListManager(paimon).read_all(snapshot)
    for entry in ManifestFileManager(paimon).read_entries_parallel(manifests, drop_stats=True):
        values = tuple(entry.partition.values)
        if typed is None:
            if values not in wanted:
                continue
        elif typed and not any(_fits(dict(zip(keys, values, strict=True)), spec) for spec in typed):
            continue
        size = sizes.get(values, PartitionSize(values, 0, 0, 0))
        bucket = runs.setdefault((*values, entry.bucket), set())
        bucket.add(entry.file.level or entry.file.file_name)  # a file of level 0 is a run
        has_runs = table.schema.is_primary_key_table and len(bucket) > 1
        sizes[values] = replace(
            size,
            files=size.files + 1,
            size_bytes=size.size_bytes + entry.file.file_size,
            rows=size.rows + entry.file.row_count,
            is_merged=size.is_merged or has_runs,
        )
    return list(sizes.values())


def _fits(values: dict[str, Any], spec: dict[str, Any]) -> bool:
    return all(values[key] == value for key, value in spec.items())
