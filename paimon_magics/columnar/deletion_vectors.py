"""Decodes deletion vectors: the deleted rows of a data file, from the bytes of an index file.

Layouts: 32 bits, Paimon's own (`BitmapDeletionVector`: magic number, one roaring bitmap); 64 bits,
Iceberg's (`Bitmap64DeletionVector`: magic number, roaring bitmaps by their high 32 bits). Bitmaps
are in the portable format of the Roaring project's specification, and decoded without a library.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

__all__ = ["deleted_rows"]

_MAGIC_32 = 1581511376  # stored big-endian
_MAGIC_64 = 1681511377  # stored little-endian
_COOKIE_WITHOUT_RUNS = 12346
_COOKIE_WITH_RUNS = 12347
_NO_OFFSETS_MAX = 4
_ARRAY_MAX = 4096

_Rows = npt.NDArray[np.int64]


def deleted_rows(body: bytes) -> _Rows:
    """The positions of the deleted rows, sorted.

    `body` has the bytes from a deletion vector's offset on: four bytes of size, the vector, four
    bytes of checksum. Raises ValueError for a damaged vector.
    """
    if len(body) < 8:
        raise ValueError("it is too short")
    (size,) = struct.unpack_from(">i", body)
    data = body[4 : 4 + size]
    if size < 4 or len(body) < 4 + size + 4:
        raise ValueError(f"it has {len(body)} bytes, and {size + 8} are needed")
    if zlib.crc32(data) != struct.unpack_from(">I", body, 4 + size)[0]:
        raise ValueError("its checksum is wrong")
    if struct.unpack_from(">i", data)[0] == _MAGIC_32:
        return _bitmap(data, 4)[0]
    if struct.unpack_from("<i", data)[0] == _MAGIC_64:
        return _bitmaps(data)
    raise ValueError("it begins with an unknown magic number")


def _bitmaps(data: bytes) -> _Rows:
    (count,) = struct.unpack_from("<q", data, 4)
    position, parts = 12, []
    for _ in range(count):
        (high,) = struct.unpack_from("<I", data, position)
        rows, position = _bitmap(data, position + 4)
        parts.append(rows + (high << 32))
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _bitmap(data: bytes, position: int) -> tuple[_Rows, int]:
    """The numbers of the roaring bitmap at a position, and where it ends."""
    (cookie,) = struct.unpack_from("<I", data, position)
    position += 4
    runs = np.zeros(0, dtype=np.uint8)
    if cookie & 0xFFFF == _COOKIE_WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = (count + 7) // 8
        marks = np.frombuffer(data, np.uint8, flags, position)
        runs = np.unpackbits(marks, bitorder="little")[:count]
        position += flags
    elif cookie == _COOKIE_WITHOUT_RUNS:
        (count,) = struct.unpack_from("<I", data, position)
        position += 4
    else:
        raise ValueError("its bitmap is in an unknown format")
    headers = np.frombuffer(data, "<u2", 2 * count, position).reshape(count, 2)
    position += 4 * count
    if not len(runs) or count >= _NO_OFFSETS_MAX:
        position += 4 * count  # the containers' offsets, not needed: they follow each other
    parts = []
    for index in range(count):
        base = int(headers[index, 0]) << 16
        cardinality = int(headers[index, 1]) + 1
        if len(runs) and runs[index]:
            (number,) = struct.unpack_from("<H", data, position)
            pairs = np.frombuffer(data, "<u2", 2 * number, position + 2).reshape(number, 2)
            position += 2 + 4 * number
            low = np.concatenate(
                [np.arange(int(s), int(s) + int(n) + 1, dtype=np.int64) for s, n in pairs]
            )
        elif cardinality > _ARRAY_MAX:
            bits = np.frombuffer(data, np.uint8, 8192, position)
            low = np.flatnonzero(np.unpackbits(bits, bitorder="little")).astype(np.int64)
            position += 8192
        else:
            low = np.frombuffer(data, "<u2", cardinality, position).astype(np.int64)
            position += 2 * cardinality
        parts.append(low + base)
    return (np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)), position
