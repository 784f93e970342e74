"""The rows of updates, before and after: which values changed, and `$binlog` as single rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from paimon_magics.columnar.differences import same_rows

__all__ = ["changed_columns", "single_changes"]

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


def single_changes(rows: pa.Table) -> pa.Table:
    """Rows of `$binlog` as those of `$audit_log`: an update has two, one with its first values and
    one with its last ones."""
    kinds: list[str] = []
    columns: dict[str, list[object]] = {n: [] for n in rows.column_names if n != _KIND}
    for row in rows.to_pylist():
        sizes = {len(row[name]) for name in columns if isinstance(row[name], list)}
        is_update = max(sizes, default=1) == 2
        kinds += ["-U", "+U"] if is_update else [row[_KIND]]
        for name, values in columns.items():
            values += _values(row[name], 2 if is_update else 1)
    arrays = [pa.array(kinds, pa.string())]
    schema = [pa.field(_KIND, pa.string())]
    for name, values in columns.items():
        stored = rows.schema.field(name).type
        data_type = stored.value_type if pa.types.is_list(stored) else stored
        arrays.append(pa.array(values, data_type))
        schema.append(pa.field(name, data_type))
    return pa.Table.from_arrays(arrays, schema=pa.schema(schema))


def _values(stored: object, count: int) -> Sequence[object]:
    if isinstance(stored, list):
        return [*stored, *[None] * count][:count]
    return [stored] * count


def _array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
