"""The buckets that commit messages are about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pypaimon.table.row.generic_row import GenericRow, GenericRowSerializer
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.tables.table import Table

__all__ = ["BucketKey", "bucket_key", "written_buckets"]

BucketKey = tuple[bytes, int]
"""A serialised partition, and a bucket of it."""


def written_buckets(table: Table, messages: Iterable[CommitMessage]) -> frozenset[BucketKey]:
    """The partition and the bucket of each message."""
    return frozenset(bucket_key(table, tuple(one.partition), one.bucket) for one in messages)


def bucket_key(table: Table, partition: tuple[Any, ...], bucket: int) -> BucketKey:
    """The key of a bucket of the partition with these values."""
    fields = table.paimon.partition_keys_fields
    return GenericRowSerializer.to_bytes(GenericRow(list(partition), fields)), bucket
