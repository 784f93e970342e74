"""The container of a file's indexes: their columns, kinds and bytes (`FileIndexFormat`)."""

from __future__ import annotations

import struct
from collections.abc import Iterable

__all__ = ["file_index_container"]

_MAGIC = 1493475289347502
_VERSION = 1
_HEAD_BYTES = 8 + 4 + 4  # magic number, version, length of the head
_NAME_BYTES_MAX = 0xFFFF


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
