"""Reads and writes commit messages as bytes (Java's `CommitMessageSerializer`, version 14)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pypaimon.write.commit_message import CommitMessage
from pypaimon.write.commit_message_serializer import (
    deserialize_commit_message,
    serialize_commit_message,
)

__all__ = ["read_messages", "write_message"]

_VERSION = 14


def read_messages(paimon: Any, bodies: Iterable[bytes]) -> Iterator[CommitMessage]:
    """Decode commit messages for `paimon`, pypaimon's table. Raises what pypaimon raises for bytes
    that are no message."""
    keys = paimon.partition_keys_fields, paimon.trimmed_primary_keys_fields
    for body in bodies:
        yield deserialize_commit_message(body, *keys, version=_VERSION)


def write_message(paimon: Any, message: CommitMessage) -> bytes:
    """Encode a commit message."""
    body: bytes = serialize_commit_message(message, paimon.partition_keys_fields)
    return body
