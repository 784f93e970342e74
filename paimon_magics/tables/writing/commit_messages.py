"""Commit messages as bytes (Java's `CommitMessageSerializer`, version 14) and as values."""

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
    """The messages of one of pypaimon's tables; raises what it raises for bytes that are none."""
    keys = paimon.partition_keys_fields, paimon.trimmed_primary_keys_fields
    for body in bodies:
        yield deserialize_commit_message(body, *keys, version=_VERSION)


def write_message(paimon: Any, message: CommitMessage) -> bytes:
    """The message as bytes."""
    body: bytes = serialize_commit_message(message, paimon.partition_keys_fields)
    return body
