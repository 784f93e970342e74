"""Changes footers of Parquet files: removes what readers prune floating-point columns by, and
declares maps as lists.

A footer is in Thrift's compact protocol. All other fields are copied unchanged. Source:
`parquet.thrift` of Apache Parquet's format.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from paimon_magics.columnar.varints import signed, varint

__all__ = [
    "LENGTH_AND_MAGIC_BYTES",
    "MAGIC",
    "file_of_footer",
    "with_listed_maps",
    "without_float_bounds",
]

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
        kept = [f for f in fields if f.id not in (_CONVERTED_TYPE, _LOGICAL_TYPE)]
        if converted == _CONVERTED_MAP:
            kept.append(_Field(_CONVERTED_TYPE, _NUMBERS[1], _CONVERTED_LIST))
        return _struct(sorted(kept, key=lambda f: f.id))

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
    found, _ = _read_struct(struct, 0, 0)
    return found


def _read_struct(source: bytes, place: int, depth: int) -> tuple[list[_Field], int]:
    if depth > _DEPTH_MAX:
        raise ValueError(f"{_WHAT} is nested too deeply")
    found: list[_Field] = []
    number = 0
    while True:
        head, place = _byte(source, place)
        if head == 0:
            return found, place
        kind = head & 0x0F
        if head >> 4:
            number += head >> 4
        else:
            raw, place = varint(source, place, _WHAT)
            number = signed(raw)
        end = place if kind in (_TRUE, _FALSE) else _end(source, place, kind, depth)
        found.append(_Field(number, kind, source[place:end]))
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
