"""Numbers of variable length, seven bits a byte, as in Avro, Protocol Buffers and Thrift."""

from __future__ import annotations

__all__ = ["signed", "varint"]


def varint(source: bytes | memoryview, place: int, what: str = "it") -> tuple[int, int]:
    """The number at `place`, and the place after it. Raises ValueError where the source ends too
    early; `what` names the source in the message."""
    value = shift = 0
    while True:
        if place >= len(source):
            raise ValueError(f"{what} ends in the middle of a number")
        byte = source[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7


def signed(value: int) -> int:
    """The signed number that a varint encodes (ZigZag)."""
    return (value >> 1) ^ -(value & 1)
