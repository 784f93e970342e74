"""The buckets that commit messages are about."""

from __future__ import annotations

from collections.abc import Sequence

from pypaimon.table.row.generic_row import GenericRow, GenericRowSerializer

from paimon_magics.tables.compaction.planning import BucketKey
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import read_messages

__all__ = ["written_buckets"]


def written_buckets(table: Table, messages: Sequence[bytes]) -> frozenset[BucketKey]:
    """The partition, serialised, and the bucket of each message."""
    fields = table.paimon.partition_keys_fields
    return frozenset(
        (GenericRowSerializer.to_bytes(GenericRow(list(one.partition), fields)), one.bucket)
        for one in read_messages(table.paimon, messages)
    )
