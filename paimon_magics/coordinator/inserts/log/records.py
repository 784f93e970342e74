"""The form of the log: records, and the segments that hold them. Pure.

A record is one acknowledged request. Its number, the lsn, counts within its table: 1, 2, 3, …
Records that became durable together are one segment, in any store:

    segment  magic "PMG1" | first lsn u64 | records u32 | chain before u32 | crc32 of these u32
    record   length u32 | chain u32 | body
    body     format u8 | schema id u32 | rows u32 | at ms u64 | offset i64 | key u16+text
             | digest u8+bytes | [user u16+text] | payload

The user is present if the highest bit of the format is set. All numbers are big-endian. `chain` is
the crc32 of the record's length and body, continued from the chain of the record before, across
segments. A changed, lost or moved record breaks it, for everything that follows. Reading returns
the records that were written, or raises DamagedError.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

_MAGIC = b"PMG1"
_HEADER = struct.Struct(">4sQII")
_CRC = struct.Struct(">I")
_FRAME = struct.Struct(">II")
_BODY = struct.Struct(">BIIQqHB")
_LENGTH = struct.Struct(">H")
_HAS_USER = 0x80  # in the format's byte
_HEADER_BYTES = _HEADER.size + _CRC.size


class Format(IntEnum):
    """The form of a record's payload: a JSON request of rows as it was sent, an Arrow IPC stream,
    or a JSON request that also has changes of rows (`protocol.documents`). A coordinator that is
    too old to know changes finds such a record unreadable, so it does not take it for rows.
    """

    JSON = 1
    ARROW = 2
    CHANGES = 3

    @property
    def is_json(self) -> bool:
        """Whether the payload is a JSON request."""
        return self is not Format.ARROW


class DamagedError(Exception):
    """The stored log differs from what was written, from record `lsn` on."""

    def __init__(self, lsn: int, why: str) -> None:
        super().__init__(f"record {lsn}: {why}")
        self.lsn = lsn


class Record(NamedTuple):
    """One acknowledged request. Its rows were checked against the table's schema `schema_id`. `key`
    is its label or channel ("" for none), `offset` its place in the channel (-1 for none), `digest`
    the digest that a repeat must have, `user` its sender ("" if unknown). A coordinator that is too
    old to know users finds a record with a user unreadable.
    """

    lsn: int
    format: Format
    schema_id: int
    rows: int
    at_ms: int
    payload: bytes
    key: str = ""
    offset: int = -1
    digest: bytes = b""
    user: str = ""


@dataclass(frozen=True, slots=True)
class Segment:
    """Records `first` to `last`, durable together. `chain` is the chain of the last one."""

    first: int
    last: int
    chain: int
    body: bytes


def seal(records: Sequence[Record], chain: int) -> Segment:
    """The segment of records that follow the record with the given chain (0 before the first)."""
    first = records[0].lsn
    header = _HEADER.pack(_MAGIC, first, len(records), chain)
    parts = [header, _CRC.pack(zlib.crc32(header))]
    for expected, record in enumerate(records, first):
        if record.lsn != expected:
            raise ValueError(f"record {record.lsn} where {expected} comes next")
        body = _body(record)
        length = len(body).to_bytes(4, "big")
        chain = zlib.crc32(body, zlib.crc32(length, chain))
        parts += (length, _CRC.pack(chain), body)
    return Segment(first, records[-1].lsn, chain, b"".join(parts))


def read_segment(content: bytes, first: int, chain: int | None) -> tuple[list[Record], list[int]]:
    """The records of a segment that begins with `first`, and the chain of each.

    `chain` is the chain of the previous record, None if it is unknown. Raises DamagedError.
    """
    found_first, count, before = _header(content, first)
    if found_first != first:
        raise DamagedError(first, f"the segment begins with record {found_first}")
    if chain is not None and before != chain:
        raise DamagedError(first, "it does not follow the previous record")
    chain = before
    records, chains = [], []
    at = _HEADER_BYTES
    for lsn in range(first, first + count):
        if at + _FRAME.size > len(content):
            raise DamagedError(lsn, "the segment ends before it")
        length, stored = _FRAME.unpack_from(content, at)
        body = content[at + _FRAME.size : at + _FRAME.size + length]
        chain = zlib.crc32(body, zlib.crc32(content[at : at + 4], chain))
        if len(body) != length:
            raise DamagedError(lsn, "the segment ends within it")
        if chain != stored:
            raise DamagedError(lsn, "its checksum is wrong")
        records.append(_record(lsn, body))
        chains.append(chain)
        at += _FRAME.size + length
    if at != len(content):
        raise DamagedError(first + count, "the segment goes on after its last record")
    return records, chains


def read_segments(
    segments: Iterable[tuple[int, bytes]],
    after: int,
    chain: int | None = None,
    upto: int | None = None,
) -> tuple[list[Record], int | None]:
    """The records of segments with lsns above `after`, up to `upto` if given; and the chain of the
    last record.

    The segments come in order, by their first lsns; the first may begin at or before `after`.
    `chain` is the chain of record `after`, if it is known. Raises DamagedError for damaged or
    missing records.
    """
    records: list[Record] = []
    expected = None
    for first, content in segments:
        if expected is None:
            if first > after + 1:
                raise DamagedError(after + 1, f"it is missing: the log goes on with {first}")
            expected = first
            known = chain if first == after + 1 else None
        elif first != expected:
            raise DamagedError(expected, f"it is missing: the log goes on with {first}")
        else:
            known = chain
        segment_records, chains = read_segment(content, first, known)
        expected = first + len(segment_records)
        count = (
            len(segment_records) if upto is None else min(len(segment_records), upto - first + 1)
        )
        records += [record for record in segment_records[:count] if record.lsn > after]
        chain = chains[count - 1]
    return records, chain


def _header(content: bytes, first: int) -> tuple[int, int, int]:
    if len(content) < _HEADER_BYTES:
        raise DamagedError(first, "the segment has no whole header")
    magic, found_first, count, before = _HEADER.unpack_from(content)
    (crc,) = _CRC.unpack_from(content, _HEADER.size)
    if magic != _MAGIC or crc != zlib.crc32(content[: _HEADER.size]):
        raise DamagedError(first, "the segment's header is damaged")
    return found_first, count, before


def _body(record: Record) -> bytes:
    key = record.key.encode()
    user = record.user.encode()
    fixed = _BODY.pack(
        record.format | (_HAS_USER if user else 0),
        record.schema_id,
        record.rows,
        record.at_ms,
        record.offset,
        len(key),
        len(record.digest),
    )
    named = (_LENGTH.pack(len(user)), user) if user else ()
    return b"".join((fixed, key, record.digest, *named, record.payload))


def _record(lsn: int, body: bytes) -> Record:
    try:
        number, schema_id, rows, at_ms, offset, key_bytes, digest_bytes = _BODY.unpack_from(body)
        key_end = _BODY.size + key_bytes
        digest_end = payload_at = key_end + digest_bytes
        user = ""
        if number & _HAS_USER:
            (user_bytes,) = _LENGTH.unpack_from(body, digest_end)
            payload_at = digest_end + _LENGTH.size + user_bytes
            user = body[digest_end + _LENGTH.size : payload_at].decode()
        return Record(
            lsn,
            Format(number & ~_HAS_USER),
            schema_id,
            rows,
            at_ms,
            body[payload_at:],
            body[_BODY.size : key_end].decode(),
            offset,
            body[key_end:digest_end],
            user,
        )
    except (struct.error, ValueError) as error:
        raise DamagedError(lsn, f"it can't be read: {error}") from error
