"""Compares rows of a block, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_Ints = npt.NDArray[np.int64]


_KIND = "rowkind"


def same_rows(columns: Sequence[pa.Array], first: _Ints, second: _Ints) -> npt.NDArray[np.bool_]:
    """For each pair of places in `first` and `second`, whether the rows there are equal in all
    columns.

    NULL equals NULL and NaN equals NaN, as in Java's `Objects.equals`. Columns of FLOAT and DOUBLE
    are compared by their bits.
    """
    same = np.ones(len(first), dtype=bool)
    for column in columns:
        one, other = column.take(pa.array(first)), column.take(pa.array(second))
        same &= _equal(one, other)
    return same


def _equal(one: pa.Array, other: pa.Array) -> npt.NDArray[np.bool_]:
    if pa.types.is_nested(one.type):
        pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
        return np.fromiter((_alike(a, b) for a, b in pairs), dtype=bool, count=len(one))
    if pa.types.is_floating(one.type):
        numbers = pa.int32() if pa.types.is_float32(one.type) else pa.int64()
        one, other = one.view(numbers), other.view(numbers)
    nulls = np.asarray(one.is_null()), np.asarray(other.is_null())
    values = np.asarray(pc.fill_null(pc.equal(one, other), fill_value=False))
    same: npt.NDArray[np.bool_] = (values & ~nulls[0] & ~nulls[1]) | (nulls[0] & nulls[1])
    return same


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (one != one and other != other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    return bool(one == other)


# Finds the values that an update changed, in its rows before and after.


def changed_columns(rows: pa.Table) -> tuple[tuple[str, ...], ...]:
    """The columns that an update changed, for each row: for a +U right after its -U the columns
    whose values differ, for all other rows none. Row kinds are in the column `rowkind`."""
    rows = rows.combine_chunks()
    kinds = np.array(rows.column(_KIND).to_pylist(), dtype=object)
    found: list[tuple[str, ...]] = [()] * rows.num_rows
    after = np.flatnonzero((kinds[1:] == "+U") & (kinds[:-1] == "-U")) + 1
    if not len(after):
        return tuple(found)
    names = [name for name in rows.column_names if name != _KIND]
    others = {name: ~same_rows([_array(rows.column(name))], after - 1, after) for name in names}
    for place, row in enumerate(after.tolist()):
        found[row] = tuple(name for name in names if others[name][place])
    return tuple(found)


def _array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
