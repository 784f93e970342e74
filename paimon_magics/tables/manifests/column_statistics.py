"""NULL counts, least and greatest values of columns, from the statistics of data files.

They are exact only if every file has them and none is truncated. Paimon keeps the first 16
characters of a text (`metadata.stats-mode` = truncate(16)), so the bounds of longer texts are
unknown. Files of this project have no bounds for floating-point columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.binary_rows import decode_bounds
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.tables.schema.types import arrow_type

_CUT_AT = 16
_STORED_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DATE")
"""The types whose bounds every writer stores whole. Texts and binary values are truncated
(`metadata.stats-mode`), floating-point bounds leave out NaN and the sign of zero, and times lose
digits. Source: `AggregatePushDownUtils`, `PushDownUtils.minmaxAvailable` of Paimon."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Statistics of one column. `nulls` is the number of NULLs, None if it is unknown. `is_exact`
    tells whether `least` and `greatest` are exact; both are None in a column of NULLs."""

    nulls: int | None = None
    least: Any = None
    greatest: Any = None
    is_exact: bool = False


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """The statistics of a column by file: bounds, NULL if unknown, and numbers of NULLs, -1 if
    unknown."""

    least: pa.Array
    greatest: pa.Array
    nulls: npt.NDArray[np.int64]


@dataclass(frozen=True)
class FileStatistics:
    """The statistics of `files` (manifest entries), which have them of the same `columns`."""

    files: pa.Table
    columns: Sequence[Column]

    def of(self, column: Column) -> ColumnStatistics | None:
        """The statistics of a column; None if the files lack it, or have it in another type."""
        place = next((at for at, stored in enumerate(self.columns) if stored.id == column.id), None)
        if place is None or self.columns[place].type != column.type or self._bounds is None:
            return None
        least, greatest = (columns[place] for columns in self._bounds)
        return ColumnStatistics(least, greatest, counts_at(self.files["value_null_counts"], place))

    @cached_property
    def _bounds(self) -> list[list[pa.Array]] | None:
        """The least and the greatest values of all columns; None if the statistics are of other
        columns."""
        types = [arrow_type(column.type) for column in self.columns]
        ends = [self.files[f"value_{end}_values"].combine_chunks() for end in ("min", "max")]
        if not has_fields(ends[0], len(types)):
            return None
        return [decode_bounds(rows, types) for rows in ends]


def file_statistics(
    files: pa.Table, columns_of: Callable[[int], Sequence[Column]]
) -> Iterator[tuple[npt.NDArray[np.int64], FileStatistics]]:
    """The statistics of files that have them of the same columns, with the positions of these
    files. `columns_of` returns the columns of a schema by its id."""
    schema_ids = np.asarray(files["schema_id"])
    listed = [files[name] for name in ("value_stats_cols", "write_cols")]
    groups: dict[tuple[int, tuple[str, ...] | None], Any] = {}
    if all(column.null_count == files.num_rows for column in listed):
        groups = {(int(id), None): np.flatnonzero(schema_ids == id) for id in np.unique(schema_ids)}
    else:
        rows = zip(schema_ids.tolist(), *(column.to_pylist() for column in listed), strict=True)
        for row, (schema_id, stored, written) in enumerate(rows):
            names = written if stored is None else stored
            key = schema_id, None if names is None else tuple(names)
            groups.setdefault(key, []).append(row)
    for (schema_id, names), members in groups.items():
        by_name = {column.name: column for column in columns_of(schema_id)}
        columns = [
            by_name[name] for name in (by_name if names is None else names) if name in by_name
        ]
        yield np.array(members), FileStatistics(files.take(pa.array(members)), columns)


def has_fields(rows: pa.Array, fields: int) -> bool:
    """Whether all serialized rows have that many fields."""
    arities = pc.binary_slice(rows, 0, 4)
    return bool(pc.all(pc.equal(arities, fields.to_bytes(4, "big"))).as_py())


def counts_at(lists: pa.ChunkedArray, place: int) -> npt.NDArray[np.int64]:
    """The number at `place` of each list; -1 where there is none."""
    rows = lists.combine_chunks()
    offsets = np.asarray(rows.offsets)
    is_there = np.asarray(rows.is_valid()) & (np.diff(offsets) > place)
    counts = np.full(len(rows), -1, dtype=np.int64)
    positions = pa.array(offsets[:-1][is_there] + place)
    counts[is_there] = np.asarray(pc.fill_null(rows.values.take(positions), -1))
    return counts


def column_bounds(
    files: pa.Table, columns_of: Callable[[int], Sequence[Column]], columns: Sequence[Column]
) -> dict[str, Bounds]:
    """The bounds of each of `columns` by name. `files` are manifest entries, `columns_of` gives the
    columns of a schema by its id."""
    parts: dict[str, list[Bounds]] = {column.name: [] for column in columns}
    for _, statistics in file_statistics(files, columns_of):
        for column in columns:
            parts[column.name].append(_bounds(statistics, column))
    return {name: _joined(bounds) for name, bounds in parts.items()}


def exact_bounds(
    files: pa.Table, columns_of: Callable[[int], Sequence[Column]], column: Column
) -> Bounds | None:
    """The bounds of `column` in all rows of whole files, None if their statistics are unknown or
    may be truncated. Statistics are unknown in a file that was written with another type of the
    column, or without it."""
    if not isinstance(column.type, AtomicType) or column.type.name not in _STORED_WHOLE:
        return None
    bounds = column_bounds(files, columns_of, [column])[column.name]
    return bounds if bounds.is_exact else None


def _bounds(statistics: FileStatistics, column: Column) -> Bounds:
    known = statistics.of(column)
    if known is None:
        return Bounds()
    try:
        smallest, largest = known.least.to_pylist(), known.greatest.to_pylist()
    except (OverflowError, ValueError):  # days and times beyond Python's year 9999
        return Bounds()
    # A file without bounds makes the result inexact, unless it holds only NULLs.
    only_nulls = known.nulls == np.asarray(statistics.files["row_count"])
    return Bounds(
        None if (known.nulls < 0).any() else int(known.nulls.sum()),
        _least(smallest),
        _greatest(largest),
        all(
            is_null if low is None else _is_whole(low) and _is_whole(high)
            for low, high, is_null in zip(smallest, largest, only_nulls, strict=True)
        ),
    )


def _is_whole(value: Any) -> bool:
    if isinstance(value, str | bytes):
        return len(value) < _CUT_AT
    return value is not None and not isinstance(value, float | list | dict)


def _joined(parts: Sequence[Bounds]) -> Bounds:
    nulls = [part.nulls for part in parts if part.nulls is not None]
    return Bounds(
        sum(nulls) if len(nulls) == len(parts) else None,
        _least(part.least for part in parts),
        _greatest(part.greatest for part in parts),
        all(part.is_exact for part in parts),
    )


def _least(values: Iterable[Any]) -> Any:
    return min((value for value in values if value is not None), default=None)


def _greatest(values: Iterable[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)
