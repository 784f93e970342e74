"""Footers of Parquet files, which are changed, and of ORC files, which have more information than
pyarrow returns.

A footer is in Thrift's compact protocol. All other fields are copied unchanged. Source:
`parquet.thrift` of Apache Parquet's format.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from paimon_magics.columnar.buffers import with_parts

MAGIC = b"PAR1"
LENGTH_AND_MAGIC_BYTES = 8
"""The bytes at the end of a file: the footer's length (32 bits, little-endian) and `MAGIC`."""

_WHAT = "the footer"
_KEY_PREFIX = "_KEY_"  # Paimon's name for the copy of a key column

# Fields of a SchemaElement, and values of ConvertedType, as zigzag numbers.
_SCHEMA = 2  # FileMetaData
_CONVERTED_TYPE, _LOGICAL_TYPE = 6, 10
_CONVERTED_MAP, _CONVERTED_ENTRIES, _CONVERTED_LIST = b"\x02", b"\x04", b"\x06"

# Fields of the structs on the way to a column.
_ROW_GROUPS = 4  # FileMetaData
_COLUMNS = 1  # RowGroup
_META_DATA, _COLUMN_INDEX = 3, (6, 7)  # ColumnChunk
_TYPE, _PATH, _STATISTICS, _ENCODING_STATS, _BLOOM_FILTER = 1, 3, 12, 13, (14, 15)  # ColumnMetaData
_FLOATING = (4, 5)  # Type.FLOAT, Type.DOUBLE

# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_NUMBERS = (4, 5, 6)
_LONG_LIST = 15
_DEPTH_MAX = 32  # deeper than any footer; a damaged one could recurse without end


_LZ4_OFFSET_BYTES, _LZ4_MATCH_MIN = 2, 4
_CODECS = ("none", "zlib", "snappy", "lzo", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class _Field:
    id: int
    type: int
    value: bytes


def without_float_bounds(footer: bytes, columns: Collection[str]) -> bytes:
    """The footer without statistics, column indexes and bloom filters of the FLOAT and DOUBLE
    leaves in `columns` (top-level columns; their `_KEY_` copies count, too).

    The encoding statistics are removed as well, so that readers don't prune by dictionaries: in
    Java's, -0.0 differs from 0.0. Raises ValueError for bytes that are no footer.
    """

    def of_file(field: _Field) -> _Field:
        return _each(field, of_group) if field.id == _ROW_GROUPS else field

    def of_group(group: bytes) -> bytes:
        return _mapped(group, lambda f: _each(f, of_chunk) if f.id == _COLUMNS else f)

    def of_chunk(chunk: bytes) -> bytes:
        fields = _fields(chunk)
        meta = next((field for field in fields if field.id == _META_DATA), None)
        if meta is None or not _is_floating(_fields(meta.value), columns):
            return chunk
        return _struct(
            _Field(f.id, f.type, _without(f.value)) if f is meta else f
            for f in fields
            if f.id not in _COLUMN_INDEX
        )

    return _mapped(footer, of_file)


def with_listed_maps(footer: bytes) -> bytes:
    """The footer with each map declared as a list of its entries. Raises ValueError for bytes that
    are no footer."""

    def of_element(element: bytes) -> bytes:
        fields = _fields(element)
        converted = next((f.value for f in fields if f.id == _CONVERTED_TYPE), None)
        if converted not in (_CONVERTED_MAP, _CONVERTED_ENTRIES):
            return element
        rest = [f for f in fields if f.id not in (_CONVERTED_TYPE, _LOGICAL_TYPE)]
        if converted == _CONVERTED_MAP:
            rest.append(_Field(_CONVERTED_TYPE, _NUMBERS[1], _CONVERTED_LIST))
        return _struct(sorted(rest, key=lambda f: f.id))

    return _mapped(footer, lambda f: _each(f, of_element) if f.id == _SCHEMA else f)


def file_of_footer(footer: bytes) -> bytes:
    """A Parquet file that has this footer, and none of its data."""
    return MAGIC + footer + len(footer).to_bytes(4, "little") + MAGIC


def _without(meta: bytes) -> bytes:
    gone = (_STATISTICS, _ENCODING_STATS, *_BLOOM_FILTER)
    return _struct(field for field in _fields(meta) if field.id not in gone)


def _is_floating(meta: list[_Field], columns: Collection[str]) -> bool:
    values = {field.id: field.value for field in meta}
    if signed(varint(values[_TYPE], 0, _WHAT)[0]) not in _FLOATING:
        return False
    _, (first, *_) = _items(values[_PATH])
    length, start = varint(first, 0, _WHAT)
    name = first[start : start + length].decode()
    return name in columns or name.removeprefix(_KEY_PREFIX) in columns


def _mapped(struct: bytes, change: Callable[[_Field], _Field]) -> bytes:
    return _struct(map(change, _fields(struct)))


def _each(field: _Field, change: Callable[[bytes], bytes]) -> _Field:
    """A field that is a list of structs, with `change` applied to each."""
    head, items = _items(field.value)
    return _Field(field.id, field.type, head + b"".join(map(change, items)))


def _fields(struct: bytes) -> list[_Field]:
    fields, _ = _read_struct(struct, 0, 0)
    return fields


def _read_struct(source: bytes, place: int, depth: int) -> tuple[list[_Field], int]:
    if depth > _DEPTH_MAX:
        raise ValueError(f"{_WHAT} is nested too deeply")
    fields: list[_Field] = []
    number = 0
    while True:
        head, place = _byte(source, place)
        if head == 0:
            return fields, place
        kind = head & 0x0F
        if head >> 4:
            number += head >> 4
        else:
            raw, place = varint(source, place, _WHAT)
            number = signed(raw)
        end = place if kind in (_TRUE, _FALSE) else _end(source, place, kind, depth)
        fields.append(_Field(number, kind, source[place:end]))
        place = end


def _struct(fields: Iterable[_Field]) -> bytes:
    out = bytearray()
    before = 0
    for field in fields:
        step = field.id - before
        if 0 < step <= 0x0F:
            out.append(step << 4 | field.type)
        else:
            out.append(field.type)
            out += _varint(field.id << 1)
        out += field.value
        before = field.id
    out.append(0)
    return bytes(out)


def _items(value: bytes) -> tuple[bytes, list[bytes]]:
    """The header of a list, and its items."""
    size, kind, place = _list_head(value, 0)
    head, items = value[:place], []
    for _ in range(size):
        end = _end(value, place, kind, 0)
        items.append(value[place:end])
        place = end
    return head, items


def _list_head(source: bytes, place: int) -> tuple[int, int, int]:
    head, place = _byte(source, place)
    size = head >> 4
    if size == _LONG_LIST:
        size, place = varint(source, place, _WHAT)
    return size, head & 0x0F, place


def _end(source: bytes, place: int, kind: int, depth: int) -> int:
    """The end of the value that begins at `place`."""
    if kind in _NUMBERS:
        return varint(source, place, _WHAT)[1]
    if kind in (_TRUE, _FALSE, _BYTE):  # in lists, booleans are bytes
        return place + 1
    if kind == _DOUBLE:
        return place + 8
    if kind == _BINARY:
        length, place = varint(source, place, _WHAT)
        return place + length
    if kind == _STRUCT:
        return _read_struct(source, place, depth + 1)[1]
    if kind in (_LIST, _SET):
        size, item, place = _list_head(source, place)
        for _ in range(size):
            place = _end(source, place, item, depth + 1)
        return place
    if kind == _MAP:
        size, place = varint(source, place, _WHAT)
        if size:
            kinds, place = _byte(source, place)
            for _ in range(size):
                place = _end(source, place, kinds >> 4, depth + 1)
                place = _end(source, place, kinds & 0x0F, depth + 1)
        return place
    raise ValueError(f"{_WHAT} has a value of the unknown kind {kind}")


def _byte(source: bytes, place: int) -> tuple[int, int]:
    if place >= len(source):
        raise ValueError(f"{_WHAT} ends too early")
    return source[place], place + 1


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# Numbers of variable length, seven bits a byte, as in Avro, Protocol Buffers and Thrift.


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


# Reads from an ORC file's footers what pyarrow does not offer: the stripes' time zones, and the
# range of the file's timestamps.
#
# ORC files of Java's writers hold wall-clock times as instants of the writer's zone, which a
# stripe's footer names. Only the few protobuf fields that are needed are read. Source:
# `orc_proto.proto` of the ORC specification.


@dataclass(frozen=True)
class _OrcTimes:
    """`zones` are the time zones of the stripes, in order. `least_ms` and `greatest_ms` are the
    range of all timestamps in milliseconds since 1970, None if there are none."""

    zones: tuple[str, ...]
    least_ms: int | None
    greatest_ms: int | None


def orc_times(read: Callable[[int, int], bytes], size_bytes: int) -> _OrcTimes:
    """The times of an ORC file; `read` returns its bytes for an offset and a length. Raises
    ValueError for a damaged footer, or one compressed by an unsupported codec."""
    tail = read(max(size_bytes - 256, 0), min(size_bytes, 256))
    postscript = dict(_message_fields(tail[-1 - tail[-1] : -1]))
    footer_length, codec = _number(postscript[1]), _number(postscript.get(2, 0))
    footer_start = size_bytes - 1 - tail[-1] - footer_length
    footer = list(_message_fields(_inflated(read(footer_start, footer_length), codec)))
    zones = []
    for number, value in footer:
        if number == 3:
            stripe = {key: _number(length) for key, length in _message_fields(_bytes(value))}
            start = stripe.get(1, 0) + stripe.get(2, 0) + stripe.get(3, 0)
            content = dict(_message_fields(_inflated(read(start, stripe[4]), codec)))
            zones.append(_bytes(content.get(3, b"UTC")).decode() or "UTC")
    ends = [
        signed(_number(end))
        for number, value in footer
        if number == 7
        for key, statistics in _message_fields(_bytes(value))
        if key == 9
        for _, end in _message_fields(_bytes(statistics))
        if _ in (1, 2, 3, 4)
    ]
    return _OrcTimes(tuple(zones), min(ends, default=None), max(ends, default=None))


def _message_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message: a field's number, and its value as a number or as bytes."""
    place = 0
    while place < len(message):
        key, place = _varint_at(message, place)
        match key & 7:
            case 0:
                value, place = _varint_at(message, place)
                yield key >> 3, value
            case 1:
                yield key >> 3, message[place : place + 8]
                place += 8
            case 2:
                length, place = _varint_at(message, place)
                yield key >> 3, message[place : place + length]
                place += length
            case 5:
                yield key >> 3, message[place : place + 4]
                place += 4
            case kind:
                raise ValueError(f"its footer has a field of the unknown kind {kind}")


def _varint_at(message: bytes, place: int) -> tuple[int, int]:
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

        length, _ = _varint_at(block, 0)
        content: bytes = pa.Codec("snappy").decompress(block, length, asbytes=True)
        return content
    if codec == "lz4":
        import pyarrow as pa

        content = pa.Codec("lz4_raw").decompress(block, _lz4_bytes(block), asbytes=True)
        return content
    raise ValueError(f"its footer is compressed by {codec}, which is not offered")


def _lz4_bytes(block: bytes) -> int:
    """The size of an LZ4 block's content, which Arrow requires and ORC does not store: the sum of
    its literals and matches."""
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


# Maps of Parquet files that declare map keys as nullable, as Paimon's writers up to 0.8 did. Arrow
# refuses such a file. Its footer is read as a footer with lists of entries (`with_listed_maps`);
# here the lists become maps again.

_ENTRIES = "key_value"  # no list of Paimon's writers has elements of this name


def with_maps(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same columns, with maps in place of lists of entries at any level."""
    fields = [map_field(field) for field in batch.schema]
    columns = [
        _as_maps(column, field.type) for column, field in zip(batch.columns, fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def map_field(field: pa.Field) -> pa.Field:
    """The field as `with_maps` returns it."""
    return field.with_type(_map_type(field.type))


def _map_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([map_field(part) for part in kind])
    if not pa.types.is_list(kind):
        return kind
    entries = map_field(kind.value_field)
    if entries.name == _ENTRIES and entries.type.num_fields == 2:
        key, value = entries.type
        return pa.map_(key.type, pa.field("value", value.type, value.nullable))
    return pa.list_(entries)


def _as_maps(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    return values if values.type == wanted else with_parts(values, wanted, _as_maps)
