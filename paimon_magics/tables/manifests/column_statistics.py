"""NULL counts, least and greatest values of columns, from the statistics of data files.

They are exact only if every file has them and none is truncated. Paimon keeps the first 16
characters of a text (`metadata.stats-mode` = truncate(16)), so the bounds of longer texts are
unknown. Files of this project have no bounds for floating-point columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.binary_rows import decode_bounds
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.tables.schema.types import arrow_type

_CUT_AT = 16


@dataclass(frozen=True, slots=True)
class Bounds:
    """Statistics of one column. `nulls` is the number of NULLs, None if it is unknown. `is_exact`
    tells whether `least` and `greatest` are exact; both are None in a column of NULLs."""

    nulls: int | None = None
    least: Any = None
    greatest: Any = None
    is_exact: bool = False


def column_bounds(
    files: pa.Table, columns_of: Callable[[int], Sequence[Column]], columns: Sequence[Column]
) -> dict[str, Bounds]:
    """The bounds of each of `columns` by name. `files` are manifest entries, `columns_of` gives the
    columns of a schema by its id."""
    groups: dict[tuple[int, tuple[str, ...] | None], list[int]] = {}
    told = zip(
        files["schema_id"].to_pylist(),
        files["value_stats_cols"].to_pylist(),
        files["write_cols"].to_pylist(),
        strict=True,
    )
    for row, (schema_id, stored, written) in enumerate(told):
        names = stored if stored is not None else written
        groups.setdefault((schema_id, None if names is None else tuple(names)), []).append(row)
    parts: dict[str, list[Bounds]] = {column.name: [] for column in columns}
    for (schema_id, names), members in groups.items():
        in_file = list(columns_of(schema_id))
        if names is not None:
            by_name = {column.name: column for column in in_file}
            in_file = [by_name[name] for name in names if name in by_name]
        found = _of_group(files.take(pa.array(members)), in_file, columns)
        for name, bounds in found.items():
            parts[name].append(bounds)
    return {name: _joined(found) for name, found in parts.items()}


def _of_group(
    files: pa.Table, in_file: Sequence[Column], columns: Sequence[Column]
) -> dict[str, Bounds]:
    least_rows = files["value_min_values"].combine_chunks()
    arity = len(in_file).to_bytes(4, "big")
    if not pc.all(pc.equal(pc.binary_slice(least_rows, 0, 4), arity)).as_py():
        return {column.name: Bounds() for column in columns}
    types = [arrow_type(stored.type) for stored in in_file]
    least = decode_bounds(least_rows, types)
    greatest = decode_bounds(files["value_max_values"].combine_chunks(), types)
    counts = files["value_null_counts"].to_pylist()
    rows = files["row_count"].to_pylist()
    places = {stored.id: place for place, stored in enumerate(in_file)}
    found = {}
    for column in columns:
        place = places.get(column.id)
        if place is None or in_file[place].type != column.type:
            found[column.name] = Bounds()
            continue
        known = [c[place] if c is not None and len(c) > place else None for c in counts]
        found[column.name] = _bounds(least[place], greatest[place], known, rows)
    return found


def _bounds(
    least: pa.Array, greatest: pa.Array, nulls: Sequence[int | None], rows: Sequence[int]
) -> Bounds:
    total = None if None in nulls else sum(count for count in nulls if count is not None)
    smallest, largest = least.to_pylist(), greatest.to_pylist()
    exact = all(
        # A file without bounds makes the result inexact, unless it holds only NULLs.
        (_is_whole(low) and _is_whole(high)) if low is not None else count == size
        for low, high, count, size in zip(smallest, largest, nulls, rows, strict=True)
    )
    return Bounds(total, _least(smallest), _greatest(largest), exact)


def _is_whole(value: Any) -> bool:
    if isinstance(value, str | bytes):
        return len(value) < _CUT_AT
    return value is not None and not isinstance(value, float | list | dict)


def _joined(parts: Sequence[Bounds]) -> Bounds:
    nulls = (
        None
        if any(part.nulls is None for part in parts)
        else sum(part.nulls or 0 for part in parts)
    )
    return Bounds(
        nulls,
        _least(part.least for part in parts),
        _greatest(part.greatest for part in parts),
        all(part.is_exact for part in parts),
    )


def _least(values: Iterable[Any]) -> Any:
    return min((value for value in values if value is not None), default=None)


def _greatest(values: Iterable[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)
