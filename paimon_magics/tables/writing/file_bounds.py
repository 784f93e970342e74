"""Collects the bounds of a file's columns while the file is written.

The Parquet writer compares all values for its footer. Comparing texts and binaries once more would
take a tenth of the time that a file takes, so that their bounds come from the footer, as in Java
(`ParquetSimpleStatsExtractor`). It leaves out those of long values, so that from the first of them
on the values are compared here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from paimon_magics.columnar.binary_row_encoding import encode_values
from paimon_magics.columnar.value_bounds import BoundsCollector
from paimon_magics.planning.writes.file_rules import NO_STATISTICS, Statistics
from paimon_magics.tables.writing.format_writers import FormatWriter
from paimon_magics.tables.writing.new_files import StoredBounds

__all__ = ["FileBounds"]

_FOOTER_VALUE_BYTES_MAX = 4000  # Arrow leaves out more than 4,096


class FileBounds:
    """The bounds of the columns `wanted` of a file whose columns are `schema`. `has_footer` tells
    that the file is Parquet."""

    def __init__(self, schema: pa.Schema, wanted: dict[str, Statistics], has_footer: bool) -> None:
        self._all = len(wanted)
        self._types = {n: schema.field(n).type for n, r in wanted.items() if r != NO_STATISTICS}
        self._collectors = {
            name: BoundsCollector(
                data_type, length=wanted[name].length, wants_values=wanted[name].wants_values
            )
            for name, data_type in self._types.items()
        }
        # The parts of the file for which the footer tells a column's bounds; None for all of them.
        self._told_parts: dict[str, int | None] = {
            name: None
            for name, data_type in self._types.items()
            if has_footer and data_type in (pa.string(), pa.binary())
        }

    def add(self, rows: pa.RecordBatch, waiting: Sequence[pa.RecordBatch], parts: int) -> None:
        """Take rows into account. Before them, `waiting` came after the `parts` of the file that
        are written."""
        for name, collector in self._collectors.items():
            values = rows.column(name)
            if name not in self._told_parts:
                collector.add(values)
                continue
            if self._told_parts[name] is None and _has_long_value(values):
                self._told_parts[name] = parts
                for earlier in waiting:
                    collector.add_ends(earlier.column(name))
            if self._told_parts[name] is None:
                collector.add_nulls(values)
            else:
                collector.add(values)

    def take_from_footer(self, writer: FormatWriter) -> None:
        """Take what the footer tells of the values; call it once the file is written."""
        for name, parts in self._told_parts.items():
            found = writer.ends(name, parts)
            if found is None:
                self._collectors[name].forget_ends()
                continue
            for ends in found:
                self._collectors[name].add_ends(ends)

    def bounded_columns(self) -> tuple[str, ...] | None:
        """The columns that have bounds; None for all of them."""
        return None if len(self._collectors) == self._all else tuple(self._collectors)

    def bounds(self) -> StoredBounds:
        """The bounds of all values."""
        found = [collector.bounds() for collector in self._collectors.values()]
        types: Sequence[pa.DataType] = list(self._types.values())
        return StoredBounds(
            least=encode_values([one.least for one in found], types),
            greatest=encode_values([one.greatest for one in found], types),
            null_counts=tuple(one.null_count for one in found),
        )


def _has_long_value(values: pa.Array) -> bool:
    """Whether some text or binary may be too long for the footer."""
    if not len(values):
        return False
    offsets = np.frombuffer(values.buffers()[1], np.int32)
    offsets = offsets[values.offset : values.offset + len(values) + 1]
    return bool((offsets[1:] - offsets[:-1]).max() > _FOOTER_VALUE_BYTES_MAX)
