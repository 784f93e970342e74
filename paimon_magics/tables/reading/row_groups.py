"""Which row groups of a Parquet file can hold rows that meet conditions, by their statistics.

A group without statistics is kept. Light to import, because Spark's tasks load it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_magics.columnar.value_ranges import may_match
from paimon_magics.planning.reads.predicates import ColumnPredicate

__all__ = ["RowGroups", "StoredCondition", "useful_row_groups"]


@dataclass(frozen=True)
class StoredCondition:
    """A condition on the column `name` of a file; its values have the type `type`."""

    name: str
    type: pa.DataType
    predicate: ColumnPredicate


@dataclass(frozen=True)
class RowGroups:
    """Adjacent row groups. `first_row` is the number of their first row in the file, `rows` the
    number of their rows."""

    numbers: tuple[int, ...]
    first_row: int
    rows: int


def useful_row_groups(metadata: Any, conditions: Sequence[StoredCondition]) -> list[RowGroups]:
    """The row groups that can hold rows that meet all conditions; adjacent groups are joined.

    `metadata` is pyarrow's metadata of the file.
    """
    rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    kept = np.ones(len(rows), dtype=bool)
    places = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    for one in conditions:
        place = places.get(one.name)
        if place is not None and kept.any():
            columns = [metadata.row_group(i).column(place) for i in range(len(rows))]
            kept &= _matching(one, columns, rows)
    found: list[RowGroups] = []
    first = 0
    for number, count in enumerate(rows):
        if kept[number]:
            last = found[-1] if found else None
            if last is not None and last.first_row + last.rows == first:
                found[-1] = RowGroups((*last.numbers, number), last.first_row, last.rows + count)
            else:
                found.append(RowGroups((number,), first, count))
        first += count
    return found


def _matching(
    condition: StoredCondition, chunks: Sequence[Any], rows: Sequence[int]
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    least: list[Any] = []
    greatest: list[Any] = []
    nulls = np.ones(len(chunks), dtype=bool)
    all_null = np.zeros(len(chunks), dtype=bool)
    for i, chunk in enumerate(chunks):
        known = chunk.statistics if chunk.is_stats_set else None
        low, high = _bounds(known, condition.type) if known is not None else (None, None)
        least.append(low)
        greatest.append(high)
        if known is not None and known.has_null_count:
            nulls[i] = known.null_count > 0
            all_null[i] = known.null_count >= rows[i]
    try:
        bounds = pa.array(least, condition.type), pa.array(greatest, condition.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError):
        return np.ones(len(chunks), dtype=bool)  # bounds of another type than the column's
    return may_match(condition.predicate, *bounds, nulls, all_null)


def _bounds(known: Any, data_type: pa.DataType) -> tuple[Any, Any]:
    """The least and greatest value in the statistics; None where they have none."""
    if not known.has_min_max:
        return None, None
    if pa.types.is_decimal(data_type) and known.physical_type in ("INT32", "INT64"):
        # Java stores short decimals as integers, and pyarrow has no bounds but these integers.
        scale = data_type.scale
        return Decimal(known.min_raw).scaleb(-scale), Decimal(known.max_raw).scaleb(-scale)
    try:
        return known.min, known.max
    except (pa.ArrowNotImplementedError, OverflowError):  # such as days beyond Python's years
        return None, None
