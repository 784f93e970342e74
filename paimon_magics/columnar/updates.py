"""The rows of updates, before and after: which values changed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from paimon_magics.columnar.differences import same_rows

__all__ = ["changed_columns"]

_KIND = "rowkind"


def changed_columns(rows: pa.Table) -> tuple[tuple[str, ...], ...]:
    """For each row the columns that an update changed: for a +U behind its -U those whose value is
    another, for all other rows none. `rowkind` says which is which."""
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
