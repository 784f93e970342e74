"""Deletion vectors, the deleted rows of a data file, as they are stored in index files.

Layouts: 32 bits, Paimon's own (`BitmapDeletionVector`: magic number, one roaring bitmap); 64 bits,
Iceberg's (`Bitmap64DeletionVector`: magic number, roaring bitmaps by their high 32 bits). An index
file is a version and vectors (`DeletionFileWriter`). `tables/reading/data_files.py` applies them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paimon_magics.columnar.roaring import numbers_at, roaring_bitmap

_MAGIC_32 = 1581511376  # stored big-endian
_MAGIC_64 = 1681511377  # stored little-endian

_VERSION = b"\1"
_BITS_32_MAX = 0x7FFF_FFFF  # RoaringBitmap32.MAX_VALUE

_Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _StoredVector:
    """Where the vector of a data file is in an index file, and how many rows it marks.

    `length` is the length in Paimon's metadata: the size of the vector itself, and for 64 bits also
    the eight bytes of size and checksum around it.
    """

    data_file: str
    offset: int
    length: int
    rows: int


def vector_file(
    vectors: Mapping[str, _Rows], *, is_64_bit: bool
) -> tuple[bytes, list[_StoredVector]]:
    """An index file with the vectors of data files by name, and where each of them is.

    The rows of a vector ascend without repeating. Raises ValueError for rows that 32 bits can't
    hold.
    """
    content = [_VERSION]
    stored = []
    offset = len(_VERSION)
    for name, rows in vectors.items():
        data = _data_64(rows) if is_64_bit else _data_32(rows)
        body = struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
        length = len(body) if is_64_bit else len(data)
        stored.append(_StoredVector(name, offset, length, len(rows)))
        content.append(body)
        offset += len(body)
    return b"".join(content), stored


def united_rows(parts: Sequence[_Rows]) -> _Rows:
    """The rows that are in any of the parts, ascending, each once. Ascending parts are merged
    quickly, unlike in `numpy.unique`."""
    rows = np.sort(np.concatenate(parts), kind="stable")
    return rows[np.diff(rows, prepend=-1) != 0] if len(rows) else rows


def _data_32(rows: _Rows) -> bytes:
    if len(rows) and rows[-1] > _BITS_32_MAX:
        raise ValueError("a deletion vector of 32 bits marks rows up to 2**31 - 1 only")
    return struct.pack(">i", _MAGIC_32) + roaring_bitmap(rows)


def _data_64(rows: _Rows) -> bytes:
    high = rows >> 32
    count = int(high[-1]) + 1 if len(rows) else 0
    ends = np.searchsorted(high, np.arange(count), side="right").tolist()
    data = [struct.pack("<iq", _MAGIC_64, count)]
    for key, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        bitmap = roaring_bitmap(rows[start:end] & 0xFFFF_FFFF)
        data.append(struct.pack("<i", key) + bitmap)
    return b"".join(data)


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
