"""Packs rows of changes for `$binlog`, which shows an update's before and after in one row.

A -U is packed with the next row of the split, whatever its kind: the packed row has the kind of the
second row, and arrays with the values of both. A last -U stays alone. The arrays are offsets over
the existing values, so that only sequence numbers are copied. Source: `PackChangelogReader`,
`BinlogTable.BinlogRead`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.planning.reads.views import UPDATE_BEFORE


def single_rows(columns: Iterable[pa.Array], rows: int) -> list[pa.Array]:
    """The columns with each value in an array of its own; `rows` is their length."""
    offsets = np.arange(rows + 1, dtype=np.int32)
    return [_lists(column, offsets) for column in columns]


def pack_updates(
    batches: Iterable[tuple[npt.NDArray[np.int8], list[pa.Array]]], singles: int = 0
) -> Iterator[tuple[npt.NDArray[np.int8], list[pa.Array]]]:
    """Pack the batches (kinds, columns) of one split, which come and go in its order.

    The first `singles` columns stay single values: those of the first row. A -U at the end of a
    batch is packed with the first row of the next batch.
    """
    waiting: tuple[npt.NDArray[np.int8], list[pa.Array]] | None = None
    for kinds, columns in batches:
        if not len(kinds):
            continue
        if waiting is not None:
            kinds = np.concatenate([waiting[0], kinds])
            columns = [
                pa.concat_arrays([before, after])
                for before, after in zip(waiting[1], columns, strict=True)
            ]
            waiting = None
        starts = _starts(kinds)
        if kinds[starts[-1]] == UPDATE_BEFORE and starts[-1] == len(kinds) - 1:
            last = len(kinds) - 1
            waiting = kinds[last:], [column.slice(last) for column in columns]
            kinds, columns, starts = kinds[:last], [c.slice(0, last) for c in columns], starts[:-1]
        if len(starts):
            yield _packed(kinds, columns, starts, singles)
    if waiting is not None:
        yield _packed(*waiting, np.zeros(1, dtype=np.int64), singles)


def side_by_side(
    columns: Sequence[pa.ListArray], rows: int
) -> tuple[npt.NDArray[np.bool_], list[pa.Array]]:
    """Packed columns, each as two columns of values: of the row, and of the row after an update if
    there are two rows. The first column is whether there are two rows, for each of the `rows`; for
    a single row, the second column has an arbitrary value.
    """
    is_pair = np.zeros(rows, dtype=np.bool_)
    apart: list[pa.Array] = []
    for column in columns:
        offsets = np.asarray(column.offsets)
        is_pair = np.diff(offsets) == 2
        apart.append(column.values.take(pa.array(offsets[:-1])))
        apart.append(column.values.take(pa.array(offsets[1:] - 1)))
    return is_pair, apart


def _starts(kinds: npt.NDArray[np.int8]) -> npt.NDArray[np.int64]:
    """Where packed rows begin. In a series of -U rows, each even one belongs to the one before."""
    before = kinds == UPDATE_BEFORE
    rows = np.arange(len(kinds))
    # The length of the series of -U rows that ends just before each row.
    other = np.where(before, -1, rows)
    last_other = np.maximum.accumulate(np.concatenate([[-1], other[:-1]]))
    run = rows - 1 - last_other
    starts: npt.NDArray[np.int64] = np.flatnonzero(run % 2 == 0)
    return starts


def _packed(
    kinds: npt.NDArray[np.int8],
    columns: list[pa.Array],
    starts: npt.NDArray[np.int64],
    singles: int,
) -> tuple[npt.NDArray[np.int8], list[pa.Array]]:
    ends = np.append(starts[1:], len(kinds))
    offsets = np.append(starts, len(kinds)).astype(np.int32)
    single = [column.take(pa.array(starts)) for column in columns[:singles]]
    return kinds[ends - 1], single + [_lists(column, offsets) for column in columns[singles:]]


def _lists(column: pa.Array, offsets: npt.NDArray[np.int32]) -> pa.Array:
    field = pa.field("element", column.type, nullable=True)
    return pa.Array.from_buffers(
        pa.list_(field), len(offsets) - 1, [None, pa.py_buffer(offsets.tobytes())], 0, 0, [column]
    )
