"""The ids of a log's writes whose content is unique: a repeat has the same one; the ids by which
snapshots name records. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

__all__ = ["append_id", "content_id", "queue_id"]


def append_id(groups: Iterable[tuple[str, int, int]]) -> str:
    """The id of an append: of each group the table, the first lsn and the last chain."""
    return content_id("append", *groups)


def queue_id(log_id: str, table_id: str) -> str:
    """The id of a table's records in a log, as snapshots name it."""
    return f"{log_id}-{hashlib.sha256(table_id.encode()).hexdigest()[:8]}"


def content_id(*content: object) -> str:
    """The id of a write with this content."""
    return hashlib.blake2b(repr(content).encode(), digest_size=16).hexdigest()
