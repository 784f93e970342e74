"""Whether and how a writer compacts the buckets that it has written.

Source: `AbstractFileStoreWrite`, `KeyValueFileStoreWrite.createCompactManager`,
`AppendFixedBucketFileStoreWrite`, `AppendFileStoreWrite`,
`DataWrite.preCommit` of Paimon's Spark connector.
"""

from __future__ import annotations

from paimon_magics.planning.options.values import integer_value
from paimon_magics.planning.schemas.table_schema import TableSchema

__all__ = ["INLINE_BYTES_MAX", "compacts_inline", "is_full", "not_compacted"]

INLINE_BYTES_MAX = 2 << 30
"""What a statement rewrites after its rows, at most; a larger compaction is left to others."""


def compacts_inline(schema: TableSchema) -> bool:
    """Whether writers compact: not with `write-only`, nor rows of postponed buckets, nor of append
    tables without buckets."""
    if schema.write_only or schema.bucket_mode in ("POSTPONE_MODE", "BUCKET_UNAWARE"):
        return False
    return not_compacted(schema) is None


def is_full(schema: TableSchema) -> bool:
    """Whether writers compact all files of the buckets that they have written."""
    text = schema.stored_option("full-compaction.delta-commits")
    return text is not None and integer_value("full-compaction.delta-commits", text) > 0


def not_compacted(schema: TableSchema) -> str | None:
    """The feature of a table for which it is not compacted here, as text; None for a table that
    is."""
    if not schema.is_primary_key_table:
        return None
    if schema.flag("chain-table.enabled"):
        return "'chain-table.enabled' = 'true'"
    if schema.flag("pk-clustering-override"):
        return "'pk-clustering-override' = 'true'"
    return None
