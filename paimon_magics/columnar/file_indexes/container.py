"""The container of a file's indexes: their columns, kinds and bytes (`FileIndexFormat`)."""

from __future__ import annotations

import struct
from collections.abc import Iterable

__all__ = ["HEAD_START_BYTES", "file_index_container", "head_bytes", "indexes_in", "stored_name"]

_MAGIC = 1493475289347502
_VERSION = 1
_HEAD_BYTES = 8 + 4 + 4  # magic number, version, length of the head
_NAME_BYTES_MAX = 0xFFFF

HEAD_START_BYTES = _HEAD_BYTES
"""How many bytes tell how long the head is."""


def file_index_container(indexes: Iterable[tuple[str, str, bytes]]) -> bytes:
    """The bytes of a file index. Each of `indexes` has the column, or the MAP column with a key as
    `column[key]`, the index's type, and its bytes."""
    columns: dict[str, dict[str, bytes]] = {}
    for column, kind, body in indexes:
        columns.setdefault(column, {})[kind] = body
    names = {name: _java_text(name) for name in columns}
    kinds = {kind: _java_text(kind) for held in columns.values() for kind in held}
    length = _HEAD_BYTES + 4 + 4
    for name, held in columns.items():
        length += len(names[name]) + 4 + sum(len(kinds[kind]) + 8 for kind in held)
    parts = [struct.pack(">qiii", _MAGIC, _VERSION, length, len(columns))]
    bodies: list[bytes] = []
    place = length
    for name, held in columns.items():
        parts += [names[name], struct.pack(">i", len(held))]
        for kind, body in held.items():
            parts += [kinds[kind], struct.pack(">ii", place, len(body))]
            bodies.append(body)
            place += len(body)
    return b"".join([*parts, struct.pack(">i", 0), *bodies])


def head_bytes(start: bytes) -> int | None:
    """How long the head of a file index is, from its first HEAD_START_BYTES; None for what is no
    file index of a known version."""
    if len(start) < _HEAD_BYTES:
        return None
    magic, version, length = struct.unpack_from(">qii", start)
    return length if (magic, version) == (_MAGIC, _VERSION) and length > _HEAD_BYTES else None


def indexes_in(head: bytes) -> dict[tuple[bytes, str], tuple[int, int]]:
    """Where in the file index with that head each index lies: its place and its length, by the
    column's name as `stored_name` spells it, and the kind. Raises ValueError for a damaged head."""
    found = {}
    place = _HEAD_BYTES
    try:
        (columns,) = struct.unpack_from(">i", head, place)
        place += 4
        for _ in range(columns):
            name, place = _text_at(head, place)
            (kinds,) = struct.unpack_from(">i", head, place)
            place += 4
            for _ in range(kinds):
                kind, place = _text_at(head, place)
                start, length = struct.unpack_from(">ii", head, place)
                found[name, kind.decode("ascii", "replace")] = start, length
                place += 8
    except struct.error as error:
        raise ValueError("the head of a file index is damaged") from error
    return found


def stored_name(column: str) -> bytes:
    """How a file index spells the name of a column."""
    return _java_text(column)[2:]


def _text_at(head: bytes, place: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">H", head, place)
    end = place + 2 + length
    return head[place + 2 : end], end


def _java_text(text: str) -> bytes:
    """A text as `DataOutput.writeUTF` writes it: NUL in two bytes, surrogates one by one."""
    units = text.encode("utf-16-be", "surrogatepass")
    stored = b"".join(
        b"\xc0\x80"
        if unit == b"\0\0"
        else unit.decode("utf-16-be", "surrogatepass").encode("utf-8", "surrogatepass")
        for unit in (units[place : place + 2] for place in range(0, len(units), 2))
    )
    if len(stored) > _NAME_BYTES_MAX:
        raise ValueError(f"`{text[:40]}…` is too long for the name of an indexed column")
    return struct.pack(">H", len(stored)) + stored
