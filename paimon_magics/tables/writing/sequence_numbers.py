"""The sequence numbers of the rows of append tables, in the metadata of new files.

The native writer leaves them all at 0. Where rows have buckets, readers and compactions order the
files of a bucket by them, so that they must count on from those that the bucket has
(`AppendOnlyWriter`, with the number that `FileSystemWriteRestore` finds). Without buckets each
writer counts from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.manifests.partition_values import partition_values
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.table import Table

__all__ = ["number_files", "number_rows"]

_Bucket = tuple[object, ...]  # the partition's values, then the bucket


def number_rows(table: Table, messages: Sequence[CommitMessage], base_snapshot_id: int) -> bool:
    """Number the rows of new files of an append table, on from those of the base snapshot where
    rows have buckets. `base_snapshot_id` is 0 for rows that replace all others. Return whether a
    message changed."""
    schema = table.schema
    if schema.is_primary_key_table or schema.row_tracking_enabled or not messages:
        return False
    next_numbers: dict[_Bucket, int] = {}
    if schema.bucket_mode == "HASH_FIXED":
        next_numbers = dict(_next_numbers(table, messages, base_snapshot_id))
    for message in messages:
        bucket = (*message.partition, message.bucket)
        number = number_files(message.new_files, next_numbers.get(bucket, 0))
        if schema.bucket_mode == "HASH_FIXED":
            next_numbers[bucket] = number
    return True


def number_files(files: Sequence[Any], number: int) -> int:
    """Number the rows of files (pypaimon's metadata) from `number` on; return the next number."""
    for file in files:
        file.min_sequence_number = number
        number += file.row_count
        file.max_sequence_number = number - 1
    return number


def _next_numbers(
    table: Table, messages: Sequence[CommitMessage], snapshot_id: int
) -> Mapping[_Bucket, int]:
    """The next sequence number of each bucket that has files, for the buckets in messages."""
    snapshot = read_snapshot(table.paimon, snapshot_id) if snapshot_id else None
    if snapshot is None:
        return {}
    files = live_files(ManifestCache(table.paimon), snapshot)
    files = files.select(["partition", "bucket", "max_sequence_number"])
    latest = files.group_by(["partition", "bucket"]).aggregate([("max_sequence_number", "max")])
    buckets = pa.array({message.bucket for message in messages}, latest["bucket"].type)
    latest = latest.filter(pc.is_in(latest["bucket"], value_set=buckets))
    partitions, of_files = partition_values(table.paimon, latest)
    columns = (latest["bucket"].to_pylist(), latest["max_sequence_number_max"].to_pylist())
    return {
        (*partitions[at], bucket): number + 1
        for at, bucket, number in zip(of_files, *columns, strict=True)
    }
