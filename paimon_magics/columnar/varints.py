"""Numbers of variable length, seven bits a byte, as Avro and Protocol Buffers write them."""

from __future__ import annotations

__all__ = ["signed", "varint"]


def varint(source: bytes | memoryview, place: int, what: str = "it") -> tuple[int, int]:
    """The number at a place, and the place after it. Raises ValueError, which says of `what` that
    it ends too early."""
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
    """The number with a sign that a varint stands for: ZigZag."""
    return (value >> 1) ^ -(value & 1)
