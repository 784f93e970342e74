"""Avro files of Paimon's metadata as Arrow columns.

polars decodes Avro into columns, but only files whose blocks it can decompress, and whose schema is
a record. The others are rewritten without decoding a record:

- Compressed blocks are decompressed: Paimon compresses by zstd, up to 0.8 by snappy. polars does
  not support zstd, and crashes on a snappy block without records.
- Paimon 0.8 and before, and its Rust library, write a union of null and a record. In Avro's
  encoding a record has nothing beside its fields, so a record with one field, the union, has the
  same bytes. Only the schema is replaced.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from paimon_magics.columnar.file_footers import signed, varint

_PART_BYTES = 16_000_000
_SYNC_BYTES = 16
_CHECKSUM_BYTES = 4
_SCHEMA, _CODEC = b"avro.schema", b"avro.codec"
_WRAPPED = "_RECORD"


def avro_columns(body: bytes) -> pa.Table:
    """The records of an Avro file as columns. Raises ValueError for any other content."""
    return pa.concat_tables(avro_parts(body))


def avro_parts(body: bytes) -> Iterator[pa.Table]:
    """The records of an Avro file as columns, some of its blocks at a time. Raises ValueError for
    any other content."""
    import polars

    # It panics at some damage, which is no PolarsError, and no Exception either.
    failures = polars.exceptions.PolarsError, polars.exceptions.PanicException
    try:
        for part in _readable(body):
            # By the stream that both know, which takes half as long as `to_arrow`.
            yield _unwrapped(pa.table(polars.read_avro(io.BytesIO(part))))
    except (*failures, IndexError) as error:
        raise ValueError(f"it is not a complete Avro file: {error}") from error


def _unwrapped(table: pa.Table) -> pa.Table:
    """The records' columns, if they are members of a wrapping record."""
    if table.column_names != [_WRAPPED]:
        return table
    column = table.column(0)
    if column.null_count:
        raise ValueError("one of its records is NULL")
    return pa.Table.from_struct_array(column)


def _readable(body: bytes) -> Iterator[bytes]:
    """The Avro file `body` as files that polars reads: it, or files of about `_PART_BYTES` each,
    because decoding takes several times the size of a file."""
    if body[:4] != b"Obj\x01":
        raise ValueError("it is not an Avro file")
    source = memoryview(body)
    metadata, position = _header(source)
    schema = _record_schema(metadata[_SCHEMA])
    codec = metadata.get(_CODEC, b"null").decode()
    if codec != "null":
        yield from _inflated(source, position, schema, codec)
    elif schema is metadata[_SCHEMA]:
        yield body
    else:
        yield _file_header(metadata | {_SCHEMA: schema}) + bytes(source[position:])


def _record_schema(schema: bytes) -> bytes:
    """A schema that is a record, for the same bytes; the schema itself if it is one."""
    if not schema.lstrip().startswith(b"["):
        return schema
    field = {"name": _WRAPPED, "type": json.loads(schema)}
    return json.dumps({"type": "record", "name": "wrapped", "fields": [field]}).encode()


def _header(source: memoryview) -> tuple[dict[bytes, bytes], int]:
    """A file's metadata, and where its synchronization marker begins."""
    metadata: dict[bytes, bytes] = {}
    position = 4
    while True:
        count, position = _long(source, position)
        if count == 0:
            return metadata, position
        if count < 0:
            _, position = _long(source, position)
        for _ in range(abs(count)):
            key, position = _bytes(source, position)
            metadata[key], position = _bytes(source, position)


def _file_header(metadata: Mapping[bytes, bytes]) -> bytes:
    """The bytes of a file before its synchronization marker."""
    out = [b"Obj\x01", _as_long(len(metadata))]
    for key, value in metadata.items():
        out += [_as_long(len(key)), key, _as_long(len(value)), value]
    return b"".join([*out, _as_long(0)])


def _inflated(source: memoryview, position: int, schema: bytes, codec: str) -> Iterator[bytes]:
    """The blocks from the synchronization marker at `position` on, without compression, as files
    of this schema."""
    decompress = _decompressor(codec)
    sync = bytes(source[position : position + _SYNC_BYTES])
    position += _SYNC_BYTES
    head = [_file_header({_SCHEMA: schema, _CODEC: b"null"}), sync]
    out, part_bytes = list(head), 0
    while position < len(source):
        count, position = _long(source, position)
        size, position = _long(source, position)
        block = decompress(source[position : position + size])
        position += size
        if source[position : position + _SYNC_BYTES] != sync:
            raise ValueError("it ends in the middle of a block")
        position += _SYNC_BYTES
        if part_bytes and part_bytes + len(block) > _PART_BYTES:
            yield b"".join(out)
            out, part_bytes = list(head), 0
        out += [_as_long(count), _as_long(len(block)), block, sync]
        part_bytes += len(block)
    yield b"".join(out)


def _decompressor(codec: str) -> Callable[[memoryview], bytes]:
    """The function that decompresses a block. It raises ValueError for a damaged block."""
    import zstandard

    known: Callable[[memoryview], bytes]
    if codec == "zstandard":
        known = partial(_of_zstd, zstandard.ZstdDecompressor())
    elif codec == "snappy":
        known = _of_snappy
    elif codec == "deflate":
        known = partial(zlib.decompress, wbits=-zlib.MAX_WBITS)
    else:
        raise ValueError(f"its blocks are compressed by {codec}, which is not offered")

    def decompress(block: memoryview) -> bytes:
        try:
            return known(block)
        except (zstandard.ZstdError, zlib.error, OSError) as error:
            raise ValueError(f"one of its blocks is damaged: {error}") from error

    return decompress


def _of_zstd(decompressor: Any, block: memoryview) -> bytes:
    content: bytes = decompressor.decompressobj().decompress(block)
    return content


def _of_snappy(block: memoryview) -> bytes:
    compressed = block[:-_CHECKSUM_BYTES]
    if not compressed:  # a block without a record
        return b""
    size, _ = varint(compressed, 0)
    content: bytes = pa.Codec("snappy").decompress(compressed, size, asbytes=True)
    if zlib.crc32(content) != int.from_bytes(block[-_CHECKSUM_BYTES:], "big"):
        raise ValueError("one of its blocks is damaged: its checksum differs")
    return content


def _long(source: memoryview, position: int) -> tuple[int, int]:
    value, position = varint(source, position)
    return signed(value), position


def _bytes(source: memoryview, position: int) -> tuple[bytes, int]:
    length, position = _long(source, position)
    return bytes(source[position : position + length]), position + length


def _as_long(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
