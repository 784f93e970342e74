"""Reads from an ORC file's footers what pyarrow does not offer: the stripes' time zones, and the
range of the file's timestamps.

ORC files of Java's writers hold wall-clock times as instants of the writer's zone, which a stripe's
footer names. Only the few protobuf fields that are needed are read. Source: `orc_proto.proto` of
the ORC specification.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from paimon_magics.columnar.varints import signed, varint

__all__ = ["OrcTimes", "orc_times"]

_LZ4_OFFSET_BYTES, _LZ4_MATCH_MIN = 2, 4
_CODECS = ("none", "zlib", "snappy", "lzo", "lz4", "zstd")


@dataclass(frozen=True)
class OrcTimes:
    """`zones` are the time zones of the stripes, in order. `least_ms` and `greatest_ms` are the
    range of all timestamps in milliseconds since 1970, None where there are none."""

    zones: tuple[str, ...]
    least_ms: int | None
    greatest_ms: int | None


def orc_times(read: Callable[[int, int], bytes], size_bytes: int) -> OrcTimes:
    """The times of an ORC file; `read` returns its bytes for an offset and a length. Raises
    ValueError for a damaged footer, or one compressed by an unsupported codec."""
    tail = read(max(size_bytes - 256, 0), min(size_bytes, 256))
    postscript = dict(_fields(tail[-1 - tail[-1] : -1]))
    footer_length, codec = _number(postscript[1]), _number(postscript.get(2, 0))
    footer_start = size_bytes - 1 - tail[-1] - footer_length
    footer = list(_fields(_inflated(read(footer_start, footer_length), codec)))
    zones = []
    for number, value in footer:
        if number == 3:
            stripe = {key: _number(one) for key, one in _fields(_bytes(value))}
            start = stripe.get(1, 0) + stripe.get(2, 0) + stripe.get(3, 0)
            content = dict(_fields(_inflated(read(start, stripe[4]), codec)))
            zones.append(_bytes(content.get(3, b"UTC")).decode() or "UTC")
    ends = [
        signed(_number(end))
        for number, value in footer
        if number == 7
        for key, statistics in _fields(_bytes(value))
        if key == 9
        for _, end in _fields(_bytes(statistics))
        if _ in (1, 2, 3, 4)
    ]
    return OrcTimes(tuple(zones), min(ends, default=None), max(ends, default=None))


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message: a field's number, and its value as a number or as bytes."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        match key & 7:
            case 0:
                value, place = _varint(message, place)
                yield key >> 3, value
            case 1:
                yield key >> 3, message[place : place + 8]
                place += 8
            case 2:
                length, place = _varint(message, place)
                yield key >> 3, message[place : place + length]
                place += length
            case 5:
                yield key >> 3, message[place : place + 4]
                place += 4
            case kind:
                raise ValueError(f"its footer has a field of the unknown kind {kind}")


def _varint(message: bytes, place: int) -> tuple[int, int]:
    return varint(message, place, "its footer")


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("its footer has bytes in place of a number")
    return value


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("its footer has a number in place of bytes")
    return value


def _inflated(body: bytes, codec: int) -> bytes:
    """The content of compressed blocks. Three bytes before each have its length and whether it is
    stored uncompressed."""
    name = _CODECS[codec] if codec < len(_CODECS) else str(codec)
    if name == "none":
        return body
    parts, place = [], 0
    while place + 3 <= len(body):
        header = int.from_bytes(body[place : place + 3], "little")
        block = body[place + 3 : place + 3 + (header >> 1)]
        place += 3 + len(block)
        parts.append(block if header & 1 else _decompressed(block, name))
    return b"".join(parts)


def _decompressed(block: bytes, codec: str) -> bytes:
    if codec == "zlib":
        return zlib.decompress(block, wbits=-15)
    if codec == "zstd":
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj().decompress(block)
    if codec == "snappy":
        import pyarrow as pa

        length, _ = _varint(block, 0)
        found: bytes = pa.Codec("snappy").decompress(block, length, asbytes=True)
        return found
    if codec == "lz4":
        import pyarrow as pa

        found = pa.Codec("lz4_raw").decompress(block, _lz4_bytes(block), asbytes=True)
        return found
    raise ValueError(f"its footer is compressed by {codec}, which is not offered")


def _lz4_bytes(block: bytes) -> int:
    """The size of an LZ4 block's content, which Arrow must be told, and ORC does not store: the sum
    of its literals and matches."""
    total = place = 0
    while place < len(block):
        token = block[place]
        literals, place = _lz4_length(block, place + 1, token >> 4)
        place += literals
        total += literals
        if place >= len(block):  # the last sequence has no match
            break
        match, place = _lz4_length(block, place + _LZ4_OFFSET_BYTES, token & 0x0F)
        total += match + _LZ4_MATCH_MIN
    return total


def _lz4_length(block: bytes, place: int, length: int) -> tuple[int, int]:
    """A length that begins with four bits, and goes on in bytes while they are all ones."""
    if length == 0x0F:
        more = 0xFF
        while more == 0xFF:
            if place >= len(block):
                raise ValueError("its footer ends too early")
            more = block[place]
            length += more
            place += 1
    return length, place
