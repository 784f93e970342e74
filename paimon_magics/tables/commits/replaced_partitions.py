"""Sizes of the partitions that a statement would replace or remove, from the manifests."""

from __future__ import annotations

import datetime
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from paimon_magics.planning.commits.partition_expiry import PartitionExpiry, StoredPartition
from paimon_magics.tables.commits.changes import typed_partition
from paimon_magics.tables.manifests.columns import creation_instants
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.manifests.partitions import partition_value_text, partition_values
from paimon_magics.tables.snapshots.latest import latest_snapshot, state_of
from paimon_magics.tables.table import Table

Spec = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """The files, bytes and stored rows of one partition, which is () for a table without any.

    `is_merged`: a bucket of a primary-key table has several sorted runs, so that `rows`, counted
    before the merge, may be more than a query returns.
    """

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
    manifests: ManifestCache | None = None,
) -> list[PartitionSize]:
    """The sizes of the partitions in the latest snapshot that match any of `specs` (all if it is
    empty) or, if it is None, have the values of `partitions`. Reads all manifests that `manifests`,
    a cache of the table's, has not."""
    snapshot = latest_snapshot(table.paimon)
    if snapshot is None:
        return []
    files = live_files(manifests or ManifestCache(table.paimon), snapshot)
    values, of_files = partition_values(table.paimon, files)
    chosen = _chosen(table, values, specs, set(partitions))
    buckets = np.asarray(files.column("bucket"))
    levels = np.asarray(files.column("level"))
    # A file of level 0 is a sorted run of its own.
    runs = np.where(levels > 0, levels, -np.arange(len(levels)) - 1)
    merged = (
        _with_several_runs(of_files, buckets, runs) if table.schema.is_primary_key_table else ()
    )
    counts = np.bincount(of_files, minlength=len(values))
    sizes = _sums(of_files, files.column("file_size"), len(values))
    rows = _sums(of_files, files.column("row_count"), len(values))
    return [
        PartitionSize(values[at], int(counts[at]), int(sizes[at]), int(rows[at]), at in merged)
        for at in chosen
    ]


@dataclass(frozen=True, slots=True)
class ExpiredPartitions:
    """Partitions of a snapshot that expire, those whose values are no time, so that they never do,
    and the `state_of` that snapshot."""

    gone: list[StoredPartition]
    without_time: list[StoredPartition]
    base: tuple[int, str]


def expired_partitions(
    table: Table, rules: PartitionExpiry, now: datetime.datetime
) -> ExpiredPartitions:
    """The partitions of the latest snapshot that expire by the rules. `now` has the zone whose
    clocks count. Reads all manifests."""
    snapshot = latest_snapshot(table.paimon)
    if snapshot is None:
        return ExpiredPartitions([], [], state_of(None))
    files = live_files(ManifestCache(table.paimon), snapshot, ("creation_time", "file_name"))
    values, of_files = partition_values(table.paimon, files)
    updated = np.zeros(len(values), np.int64)
    created = pc.fill_null(creation_instants(files), 0)
    np.maximum.at(updated, of_files, np.asarray(created).astype(np.int64))
    partitions = [
        StoredPartition(tuple(partition_texts(table, each).values()), int(at_ms))
        for each, at_ms in zip(values, updated, strict=True)
    ]
    return ExpiredPartitions(
        rules.expired(partitions, now), rules.without_time(partitions), state_of(snapshot)
    )


def partition_texts(table: Table, values: Sequence[object]) -> dict[str, str | None]:
    """A partition's values as text, in the form of an overwrite's specs."""
    texts: dict[str, str | None] = {}
    for key, value in zip(table.schema.partition_keys, values, strict=True):
        data_type = table.schema.column(key).type
        zone = "Z" if getattr(data_type, "name", "") == "TIMESTAMP_LTZ" else ""
        texts[key] = None if value is None else partition_value_text(value, data_type) + zone
    return texts


def spec_of(table: Table, partition: StoredPartition) -> Spec:
    """The spec of an overwrite that removes a partition."""
    return tuple(zip(table.schema.partition_keys, partition.values, strict=True))


def _chosen(
    table: Table,
    values: Sequence[tuple[Any, ...]],
    specs: Sequence[Spec] | None,
    wanted: Set[tuple[Any, ...]],
) -> list[int]:
    """The positions in `values` of the partitions that were asked for."""
    if specs is None:
        return [at for at, partition in enumerate(values) if partition in wanted]
    keys = table.schema.partition_keys
    typed = [typed_partition(table, spec) for spec in specs]
    named = (dict(zip(keys, partition, strict=True)) for partition in values)
    return [
        at
        for at, partition in enumerate(named)
        if not typed or any(spec.items() <= partition.items() for spec in typed)
    ]


def _with_several_runs(
    of_files: npt.NDArray[np.int64], buckets: npt.NDArray[Any], runs: npt.NDArray[Any]
) -> frozenset[int]:
    """The partitions that have a bucket with several sorted runs."""
    distinct = np.unique(np.stack([of_files, buckets, runs], axis=1), axis=0)
    in_bucket, counts = np.unique(distinct[:, :2], axis=0, return_counts=True)
    return frozenset(in_bucket[counts > 1, 0].tolist())


def _sums(of_files: npt.NDArray[np.int64], column: Any, partitions: int) -> npt.NDArray[np.int64]:
    sums = np.zeros(partitions, dtype=np.int64)
    np.add.at(sums, of_files, np.asarray(column))
    return sums
