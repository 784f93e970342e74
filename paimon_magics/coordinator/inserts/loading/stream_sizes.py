"""How large an Arrow stream becomes when it is unpacked, read from its headers.

A few kilobytes of a stream can stand for gigabytes: buffers are compressed, values of the null type
and lists of a fixed size need no buffer, and a dictionary or a view names one long value many
times. So sizes are checked before anything is unpacked, and before values are copied.

A message's header is a FlatBuffer (Message.fbs and Schema.fbs of Arrow's format). Arrow has checked
it when a message is read, so that its offsets are inside it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.bucket_hash import is_bytes
from paimon_magics.coordinator.protocol.errors import OversizedError
from paimon_magics.planning.formatting import count_text

__all__ = ["check_spread", "check_unpacked", "leaves"]

# The fields of FlatBuffers' tables by number: of a message, a dictionary and a batch of records.
_HEADER_TYPE, _HEADER = 1, 2
_DICTIONARY = 1
_NODES, _BUFFERS, _COMPRESSION = 1, 2, 3
_IS_DICTIONARY, _IS_BATCH = 2, 3
_PAIR = struct.Struct("<qq")  # a node's length and NULLs; a buffer's offset and length
_SIZE = struct.Struct("<q")
_VIEW_WORDS = 4  # of 32 bits in a view, of which the first is the length


def check_unpacked(body: bytes, bytes_max: int) -> None:
    """Raise OversizedError for a stream whose buffers have more bytes than that when they are
    unpacked, or whose arrays have more values, nested ones included.

    Raises Arrow's errors for what is no stream.
    """
    size_bytes = values = 0
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(body)):
        header = message.metadata.to_pybytes()
        content = message.body
        for number, is_values in _sizes(header, memoryview(content or b"")):
            if is_values:
                values += number
            else:
                size_bytes += number
            if size_bytes > bytes_max:
                raise OversizedError(f"more than {bytes_max:,} bytes when it is unpacked")
            if values > bytes_max:
                raise OversizedError(f"more than {count_text(bytes_max, 'value')}")


def check_spread(table: pa.Table, bytes_max: int) -> None:
    """Raise OversizedError for a table whose texts and bytes have more bytes than that where each
    stands by itself: those of dictionaries and views stand for many rows."""
    size_bytes = 0
    for column in table.columns:
        for array in column.chunks:
            size_bytes += sum(map(_spread_bytes, leaves(array)))
    if size_bytes > bytes_max:
        raise OversizedError(
            f"texts of {size_bytes:,} bytes where each row has its own, more than {bytes_max:,}"
        )


def leaves(array: pa.Array) -> Iterator[pa.Array]:
    """The arrays of the innermost values of an array. Raises ValueError for views of lists, which
    Arrow does not cast to lists."""
    if pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type):
        raise ValueError(f"{array.type} is not read: send lists")
    if pa.types.is_struct(array.type):
        parts = array.flatten()
    elif pa.types.is_map(array.type):
        parts = [array.keys, array.items]
    elif pa.types.is_nested(array.type):
        parts = [array.flatten()]
    else:
        yield array
        return
    for part in parts:
        yield from leaves(part)


def _sizes(header: bytes, content: memoryview) -> Iterator[tuple[int, bool]]:
    """Yield the unpacked sizes of a message's buffers; and with True the lengths of its arrays,
    nested ones included."""
    message = _target(header, 0)
    kind = header[_field(header, message, _HEADER_TYPE)]
    if kind not in (_IS_DICTIONARY, _IS_BATCH):
        return
    batch = _target(header, _field(header, message, _HEADER))
    if kind == _IS_DICTIONARY:
        batch = _target(header, _field(header, batch, _DICTIONARY))
    for length, _ in _pairs(header, batch, _NODES):
        yield length, True
    is_packed = _field(header, batch, _COMPRESSION)
    for offset, size in _pairs(header, batch, _BUFFERS):
        if is_packed and size >= _SIZE.size and 0 <= offset <= len(content) - size:
            # A buffer begins with its unpacked size; -1 says that it is not packed.
            (unpacked,) = _SIZE.unpack_from(content, offset)
            size = max(size, unpacked)
        yield size, False


def _field(buffer: bytes, table: int, number: int) -> int:
    """The position of a table's field; 0 if it is absent."""
    vtable = table - int.from_bytes(buffer[table : table + 4], "little", signed=True)
    size = int.from_bytes(buffer[vtable : vtable + 2], "little")
    at = 4 + 2 * number
    if at + 2 > size:
        return 0
    offset = int.from_bytes(buffer[vtable + at : vtable + at + 2], "little")
    return table + offset if offset else 0


def _target(buffer: bytes, at: int) -> int:
    """The position that the offset at a position leads to."""
    return at + int.from_bytes(buffer[at : at + 4], "little")


def _pairs(buffer: bytes, table: int, number: int) -> Iterator[tuple[int, int]]:
    """The pairs of numbers in a vector of a table."""
    at = _field(buffer, table, number)
    if not at:
        return iter(())
    vector = _target(buffer, at)
    count = int.from_bytes(buffer[vector : vector + 4], "little")
    first = vector + 4
    return _PAIR.iter_unpack(buffer[first : first + count * _PAIR.size])


def _spread_bytes(leaf: pa.Array) -> int:
    """The bytes of texts where each row has its own."""
    if pa.types.is_dictionary(leaf.type) or _is_view(leaf.type):
        return int(pc.sum(_lengths(leaf)).as_py() or 0)
    return 0


def _lengths(leaf: pa.Array) -> pa.Array:
    """The number of bytes of each value that has any number of them; else NULLs."""
    kind = leaf.type
    if pa.types.is_dictionary(kind):
        return _lengths(leaf.dictionary).take(leaf.indices)
    if _is_view(kind):
        if not len(leaf):
            return pa.nulls(0, pa.int32())
        words = np.frombuffer(leaf.buffers()[1], dtype="<i4")
        first = leaf.offset * _VIEW_WORDS
        lengths = words[first : first + len(leaf) * _VIEW_WORDS : _VIEW_WORDS]
        return pa.array(lengths, mask=leaf.is_null().to_numpy(zero_copy_only=False))
    if pa.types.is_nested(kind) or not is_bytes(kind):
        return pa.nulls(len(leaf), pa.int64())
    return pc.binary_length(leaf)


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))
