"""Finds the values that an update changed, in its rows before and after."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from paimon_magics.columnar.differences import same_rows

__all__ = ["changed_columns"]

_KIND = "rowkind"


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
