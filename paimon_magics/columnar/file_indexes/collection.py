"""Collects all file indexes of one data file, batch by batch (`DataFileIndexWriter`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.file_indexes.bit_slices import BitSliceIndex
from paimon_magics.columnar.file_indexes.bitmaps import BitmapIndex
from paimon_magics.columnar.file_indexes.bloom_filters import BloomFilterIndex
from paimon_magics.columnar.file_indexes.container import file_index_container
from paimon_magics.columnar.file_indexes.range_bitmaps import RangeBitmapIndex
from paimon_magics.planning.writes.index_rules import (
    Bitmap,
    BloomFilter,
    FileIndex,
    RangeBitmap,
)

__all__ = ["IndexCollection"]


class _Index(Protocol):
    def add(self, column: pa.Array) -> None: ...

    def finish(self) -> bytes | None: ...


class IndexCollection:
    """The indexes of the rows of one data file."""

    def __init__(self, indexes: Sequence[FileIndex]) -> None:
        self._indexes = [(index, _begun(index)) for index in indexes]

    def add(self, rows: pa.RecordBatch) -> None:
        """Take further rows of the file; they have the indexed columns. Raises ValueError, with the
        column's name, for a value that an index can't hold."""
        for index, collected in self._indexes:
            column = rows.column(index.column)
            if index.map_key is not None:
                column = pc.map_lookup(column, pa.scalar(index.map_key), "first")
            try:
                collected.add(column)
            except ValueError as error:
                raise ValueError(f"column `{index.name}`: {error}") from error

    def finish(self) -> bytes | None:
        """The bytes of all indexes of the file; None if it has none after all."""
        bodies = [
            (index.name, index.kind, body)
            for index, collected in self._indexes
            if (body := collected.finish()) is not None
        ]
        return file_index_container(bodies) if bodies else None


def _begun(index: FileIndex) -> _Index:
    rules = index.rules
    if isinstance(rules, BloomFilter):
        return BloomFilterIndex(items=rules.items, false_positives=rules.false_positives)
    if isinstance(rules, Bitmap):
        return BitmapIndex(version=rules.version, block_bytes=rules.block_bytes)
    if isinstance(rules, RangeBitmap):
        return RangeBitmapIndex(chunk_bytes=rules.chunk_bytes)
    return BitSliceIndex()
