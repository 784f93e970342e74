"""The buckets that commit messages are about."""

from __future__ import annotations

from collections.abc import Iterable

from pypaimon.table.row.generic_row import GenericRow, GenericRowSerializer
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.tables.table import Table

__all__ = ["BucketKey", "written_buckets"]

BucketKey = tuple[bytes, int]
"""A serialised partition, and a bucket of it."""


def written_buckets(table: Table, messages: Iterable[CommitMessage]) -> frozenset[BucketKey]:
    """The partition and the bucket of each message."""
    fields = table.paimon.partition_keys_fields
    return frozenset(
        (GenericRowSerializer.to_bytes(GenericRow(list(one.partition), fields)), one.bucket)
        for one in messages
    )
