"""The ids of a log's writes whose content is unique: a repeat has the same one. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

__all__ = ["append_id", "content_id"]


def append_id(groups: Iterable[tuple[str, int, int]]) -> str:
    """The id of an append: of each group the table, the first lsn and the last chain."""
    return content_id("append", *groups)


def content_id(*content: object) -> str:
    """The id of a write with this content."""
    return hashlib.blake2b(repr(content).encode(), digest_size=16).hexdigest()
