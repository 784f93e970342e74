"""The sequence numbers that the rows of a bucket have, and those of append tables in new files.

The native writer leaves those of append tables at 0. In buckets, readers and compactions order rows
of a key, and files, by them. So they count on from those of the bucket (`MergeTreeWriter`,
`AppendOnlyWriter`, with the number that `FileSystemWriteRestore` finds). Without buckets each
writer counts from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pypaimon.table.row.generic_row import GenericRow
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.stored_rows import packed_row

Bucket = tuple[bytes, int]
"""The partition as a serialized `BinaryRow`, and the bucket."""


def number_rows(table: Table, messages: Sequence[CommitMessage], base_snapshot_id: int) -> bool:
    """Number the rows of new files of an append table, on from those of the base snapshot where
    rows have buckets. `base_snapshot_id` is 0 for rows that replace all others. Return whether a
    message changed."""
    schema = table.schema
    if schema.is_primary_key_table or schema.row_tracking_enabled or not messages:
        return False
    if schema.bucket_mode != "HASH_FIXED":
        for message in messages:
            number_files(message.new_files, 0)
        return True
    paimon = table.paimon
    snapshot = read_snapshot(paimon, base_snapshot_id) if base_snapshot_id else None
    numbers = next_numbers(paimon, snapshot)
    for message in messages:
        bucket = (partition_row(paimon, message.partition), message.bucket)
        numbers[bucket] = number_files(message.new_files, numbers.get(bucket, 0))
    return True


def number_files(files: Sequence[Any], number: int) -> int:
    """Number the rows of files (pypaimon's metadata) from `number` on; return the next number."""
    for file in files:
        file.min_sequence_number = number
        number += file.row_count
        file.max_sequence_number = number - 1
    return number


def next_numbers(
    paimon: Any, snapshot: Any, manifests: ManifestCache | None = None
) -> dict[Bucket, int]:
    """The next sequence number of each bucket that has files in a snapshot (None for none), by
    partition, a serialized `BinaryRow`, and bucket. `paimon` is pypaimon's table, `manifests` a
    cache of its manifests. Reads all manifests of the snapshot."""
    if snapshot is None:
        return {}
    files = live_files(manifests or ManifestCache(paimon), snapshot)
    files = files.select(["partition", "bucket", "max_sequence_number"])
    grouped = files.group_by(["partition", "bucket"], use_threads=False)
    latest = grouped.aggregate([("max_sequence_number", "max")])
    names = ["partition", "bucket", "max_sequence_number_max"]
    return {
        (partition, bucket): number + 1
        for partition, bucket, number in zip(*(latest[n].to_pylist() for n in names), strict=True)
    }


def partition_row(paimon: Any, partition: Sequence[Any]) -> bytes:
    """The serialized `BinaryRow` of a partition's values."""
    fields = paimon.partition_keys_fields
    return packed_row(GenericRow(list(partition), fields) if fields else None)
