"""Keys and bounds of files in their binary form, as objects that pypaimon takes for its own.

Most of them are only copied from one manifest or commit message to another. So they are decoded
only when their values are needed, and their bytes stay as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from pypaimon.manifest.schema.simple_stats import SimpleStats
from pypaimon.table.row.binary_row import BinaryRow
from pypaimon.table.row.generic_row import (
    GenericRow,
    GenericRowDeserializer,
    GenericRowSerializer,
)
from pypaimon.table.row.row_kind import RowKind

from paimon_magics.tables.writing.row_layouts import BYTES, RowLayout, longs_of, packed_longs

_STATISTICS = RowLayout((BYTES, BYTES, BYTES), required=2)  # `SimpleStats`
_INT = struct.Struct(">i")
_EMPTY_ROW_BYTES: bytes = GenericRowSerializer.to_bytes(GenericRow([], []))


class StoredRow(BinaryRow):  # type: ignore[misc]  # pypaimon has no types
    """A row; `data` begins with the number of its fields. It also has the `values` of pypaimon's
    `GenericRow`."""

    def __init__(self, data: bytes, fields: list[Any]) -> None:
        if len(data) < len(_EMPTY_ROW_BYTES):
            raise ValueError(f"a row has {len(data)} bytes only")
        self.data = data
        self.fields = fields

    @cached_property
    def arity(self) -> int:
        """The number of fields."""
        return int(_INT.unpack_from(self.data)[0])

    @cached_property
    def actual_data(self) -> bytes:
        """The row without the number of its fields."""
        return self.data[_INT.size :]

    @cached_property
    def row_kind(self) -> RowKind:
        """The kind stored in the row."""
        return RowKind(self.data[_INT.size])

    @cached_property
    def values(self) -> list[Any]:
        """The values of all fields."""
        values: list[Any] = GenericRowDeserializer.from_bytes(self.data, self.fields).values
        return values


class StoredStatistics(SimpleStats):  # type: ignore[misc]  # pypaimon has no types
    """Bounds and numbers of NULLs, as a row of Paimon's `SimpleStats`. `fields` are those of the
    bounds, if their values are needed."""

    def __init__(self, row: bytes, fields: Sequence[Any] = ()) -> None:
        if len(row) < _STATISTICS.bytes_min:
            raise ValueError(f"the statistics of a file have {len(row)} bytes only")
        self.row = row
        self._fields = fields

    @classmethod
    def of(
        cls,
        least: bytes,
        greatest: bytes,
        null_counts: Sequence[int | None] | None,
        fields: Sequence[Any] = (),
    ) -> StoredStatistics:
        """Statistics of two rows, each with the number of its fields before it."""
        return cls(
            _STATISTICS.packed((least, greatest, packed_longs(tuple(null_counts or ())))), fields
        )

    @property
    def min_values(self) -> StoredRow:
        """The least values."""
        return StoredRow(_STATISTICS.unpacked(self.row)[0], list(self._fields))

    @property
    def max_values(self) -> StoredRow:
        """The greatest values."""
        return StoredRow(_STATISTICS.unpacked(self.row)[1], list(self._fields))

    @property
    def null_counts(self) -> list[int | None] | None:
        """The number of NULLs of each field, each None if it is unknown."""
        nulls = _STATISTICS.unpacked(self.row)[2]
        return None if nulls is None else list(longs_of(nulls))


def packed_row(row: Any) -> bytes:
    """A row of pypaimon's, or None for an empty one, with the number of its fields before it."""
    if isinstance(row, BinaryRow):
        return bytes(row.data)
    return _EMPTY_ROW_BYTES if row is None else bytes(GenericRowSerializer.to_bytes(row))


def packed_statistics(statistics: SimpleStats | None) -> bytes:
    """The row of pypaimon's statistics; empty ones for None."""
    if isinstance(statistics, StoredStatistics):
        return statistics.row
    if statistics is None:
        statistics = SimpleStats.empty_stats()
    least, greatest = packed_row(statistics.min_values), packed_row(statistics.max_values)
    return StoredStatistics.of(least, greatest, statistics.null_counts).row
