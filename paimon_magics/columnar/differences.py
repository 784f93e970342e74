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
        left, right = column.take(pa.array(first)), column.take(pa.array(second))
        same &= _equal(left, right)
    return same


def _equal(left: pa.Array, right: pa.Array) -> npt.NDArray[np.bool_]:
    if pa.types.is_nested(left.type):
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return np.fromiter((_alike(a, b) for a, b in pairs), dtype=bool, count=len(left))
    if pa.types.is_floating(left.type):
        numbers = pa.int32() if pa.types.is_float32(left.type) else pa.int64()
        left, right = left.view(numbers), right.view(numbers)
    nulls = np.asarray(left.is_null()), np.asarray(right.is_null())
    values = np.asarray(pc.fill_null(pc.equal(left, right), fill_value=False))
    same: npt.NDArray[np.bool_] = (values & ~nulls[0] & ~nulls[1]) | (nulls[0] & nulls[1])
    return same


def _alike(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (left != left and right != right)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_alike, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_alike(left[key], right[key]) for key in left)
    return bool(left == right)


# Finds the values that an update changed, in its rows before and after.


def changed_columns(rows: pa.Table) -> tuple[tuple[str, ...], ...]:
    """The columns that an update changed, for each row: for a +U right after its -U the columns
    whose values differ, none for all other rows. Row kinds are in the column `rowkind`."""
    rows = rows.combine_chunks()
    kinds = np.array(rows.column(_KIND).to_pylist(), dtype=object)
    changed: list[tuple[str, ...]] = [()] * rows.num_rows
    after = np.flatnonzero((kinds[1:] == "+U") & (kinds[:-1] == "-U")) + 1
    if not len(after):
        return tuple(changed)
    names = [name for name in rows.column_names if name != _KIND]
    others = {name: ~same_rows([_array(rows.column(name))], after - 1, after) for name in names}
    for place, row in enumerate(after.tolist()):
        changed[row] = tuple(name for name in names if others[name][place])
    return tuple(changed)


def _array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
