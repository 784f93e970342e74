"""The objects of a log in a store: entries and checkpoints. Pure.

Every change of the log is an entry, an object of its own; entries are numbered 1, 2, 3, …

    entry       magic "PME1" | number u64 | check of the entry before u32 | check u32 | length u32
                | the change as JSON | its parts, each as length u32 and bytes
    checkpoint  magic "PMC1" | number u64 | check of that entry u32 | check u32 | image (zlib)

All numbers are big-endian. The check of an entry is the crc32 of everything in it except the check
itself. It covers the check of the entry before, so that a changed, lost or misplaced entry is
noticed. A checkpoint replaces all entries up to its number.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_ENTRY = b"PME1"
_CHECKPOINT = b"PMC1"
_HEAD = struct.Struct(">4sQI")
_U32 = struct.Struct(">I")
_BODY = _HEAD.size + _U32.size


class DamagedObjectError(Exception):
    """An object differs from what was written under its number."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One change: a JSON `document`, and its binary `parts`. `before` is the check of the entry
    before, `check` its own."""

    number: int
    before: int
    check: int
    document: Mapping[str, Any]
    parts: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state after all entries up to `number`; `check` is the check of the last one."""

    number: int
    check: int
    image: bytes


def seal_entry(
    number: int, before: int, document: Mapping[str, Any], parts: Sequence[bytes] = ()
) -> tuple[bytes, int]:
    """The object of an entry, and its check. Raises UnicodeError for text that is not Unicode."""
    text = json.dumps(document, ensure_ascii=False).encode()
    body = b"".join(
        (_U32.pack(len(text)), text, *(x for part in parts for x in (_U32.pack(len(part)), part)))
    )
    return _sealed(_HEAD.pack(_ENTRY, number, before), body)


def open_entry(content: bytes, number: int) -> Entry:
    """The entry in an object. Raises DamagedObjectError."""
    before, check, body = _opened(content, _ENTRY, number)
    fields = []
    at = 0
    try:
        while at < len(body):
            (length,) = _U32.unpack_from(body, at)
            at += _U32.size
            if at + length > len(body):
                raise DamagedObjectError("it ends too early")
            fields.append(body[at : at + length])
            at += length
        document = json.loads(fields[0])
    except (struct.error, ValueError, IndexError) as error:
        raise DamagedObjectError(f"it can't be read: {error}") from error
    return Entry(number, before, check, document, tuple(fields[1:]))


def seal_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The object of a checkpoint."""
    head = _HEAD.pack(_CHECKPOINT, checkpoint.number, checkpoint.check)
    return _sealed(head, zlib.compress(checkpoint.image, 1))[0]


def open_checkpoint(content: bytes, number: int) -> Checkpoint:
    """The checkpoint in an object. Raises DamagedObjectError."""
    last, _, body = _opened(content, _CHECKPOINT, number)
    try:
        return Checkpoint(number, last, zlib.decompress(body))
    except zlib.error as error:
        raise DamagedObjectError(f"it can't be read: {error}") from error


def _sealed(head: bytes, body: bytes) -> tuple[bytes, int]:
    check = zlib.crc32(body, zlib.crc32(head))
    return b"".join((head, _U32.pack(check), body)), check


def _opened(content: bytes, magic: bytes, number: int) -> tuple[int, int, bytes]:
    if len(content) < _BODY:
        raise DamagedObjectError("it has no whole header")
    found_magic, number_there, before = _HEAD.unpack_from(content)
    (check,) = _U32.unpack_from(content, _HEAD.size)
    body = content[_BODY:]
    if found_magic != magic or check != zlib.crc32(body, zlib.crc32(content[: _HEAD.size])):
        raise DamagedObjectError("its checksum is wrong")
    if number_there != number:
        raise DamagedObjectError(f"it is number {number_there}")
    return before, check, body
