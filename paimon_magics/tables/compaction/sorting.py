"""Sorts the rows that a compaction writes, so that rows near to each other lie in one file, and
bounds of files tell more. Light to import, because Spark's tasks load it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.clustering import hilbert_keys, row_order, z_order_keys
from paimon_magics.planning.compaction.sort_orders import SortOrder

__all__ = ["sorted_rows"]

_BATCH_ROWS = 131_072


def sorted_rows(batches: Iterable[pa.RecordBatch], order: SortOrder) -> Iterator[pa.RecordBatch]:
    """All rows of the batches, sorted; rows of equal order stay as they are."""
    found = list(batches)
    if not found:
        return
    rows = pa.Table.from_batches(found).combine_chunks()
    places = _order(rows, order)
    for start in range(0, len(places), _BATCH_ROWS):
        part = rows.take(pa.array(places[start : start + _BATCH_ROWS])).combine_chunks()
        yield from part.to_batches()


def _order(rows: pa.Table, order: SortOrder) -> npt.NDArray[np.int64]:
    columns = [_single(rows[name]) for name in order.columns]
    match order.strategy:
        case "zorder":
            columns = [z_order_keys(columns, var_length_bytes=order.var_length_bytes)]
        case "hilbert":
            columns = [hilbert_keys(columns)]
    return row_order(columns)


def _single(column: pa.ChunkedArray) -> pa.Array:
    """The column in one piece: texts of more than 2 GiB need 64-bit offsets."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_string(column.type):
        column = column.cast(pa.large_string())
    elif pa.types.is_binary(column.type):
        column = column.cast(pa.large_binary())
    return pa.concat_arrays(column.chunks)
