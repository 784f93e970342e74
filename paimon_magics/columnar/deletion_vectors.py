"""Decodes deletion vectors: the deleted rows of a data file, from the bytes of an index file.

Layouts: 32 bits, Paimon's own (`BitmapDeletionVector`: magic number, one roaring bitmap); 64 bits,
Iceberg's (`Bitmap64DeletionVector`: magic number, roaring bitmaps by their high 32 bits).
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

from paimon_magics.columnar.roaring import numbers_at

__all__ = ["deleted_rows"]

_MAGIC_32 = 1581511376  # stored big-endian
_MAGIC_64 = 1681511377  # stored little-endian

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
        return numbers_at(data, 4)[0]
    if struct.unpack_from("<i", data)[0] == _MAGIC_64:
        return _bitmaps(data)
    raise ValueError("it begins with an unknown magic number")


def _bitmaps(data: bytes) -> _Rows:
    (count,) = struct.unpack_from("<q", data, 4)
    position, parts = 12, []
    for _ in range(count):
        (high,) = struct.unpack_from("<I", data, position)
        rows, position = numbers_at(data, position + 4)
        parts.append(rows + (high << 32))
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
