"""Merges the rows in a writer's buffer: one row for each key, in the order of the keys.

Rows of a key are ordered by the sequence fields and then as they arrived, and merged by the table's
merge engine. A key's only row stays as it is. Sources: `SortBufferWriteBuffer`, `MergeTreeWriter`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.folding import MergeRule, merge_rows, retract_error, winning_rows
from paimon_magics.columnar.merging import KIND, SEQUENCE, Groups, group_rows, is_retract
from paimon_magics.planning.options.merge_engines import MergeEngine

_FOLDED_ROWS = 64 * 1024
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Flushed:
    """Some keys of a buffer: their merged rows, and all their rows for the changelog, if wanted.
    Both are in the order of the keys."""

    rows: pa.RecordBatch
    changelog: pa.RecordBatch | None = None


def flushed(
    batches: list[pa.RecordBatch], rule: MergeRule, *, wants_changelog: bool = False
) -> Iterator[Flushed]:
    """Merge the rows of a buffer, in the order of their keys.

    `batches` have SEQUENCE, which ascends from row to row, and KIND, and are not empty. The list is
    emptied, and the rows are copied column by column, so that memory use is little more than the
    buffer. Raises JobError for rows that the merge engine can't merge.
    """
    rule = replace(rule, looks_up=False, in_key_order=True)
    kinds = np.concatenate([np.asarray(batch.column(KIND)) for batch in batches])
    groups = _grouped(batches, rule)
    if rule.engine.keeps_first_row:
        _check_first_rows(groups, kinds, rule.engine)
    if len(groups.starts) == len(groups.order):  # every key once
        rows = _taken(batches, groups.order)
        yield Flushed(rows, rows if wants_changelog else None)
        return
    if not wants_changelog and rule.engine.keeps_whole_rows:
        # Values of rows that lose are never put together.
        yield Flushed(_taken(batches, winning_rows(groups, rule)))
        return
    starts, order = groups.starts, groups.order
    del groups
    rows = _taken(batches, order)
    for low, high in _ranges(starts, rows.num_rows):
        first = starts[low]
        end = starts[high] if high < len(starts) else rows.num_rows
        part = rows.slice(first, end - first)
        yield Flushed(
            _merged(part, starts[low:high] - first, rule), part if wants_changelog else None
        )


def _grouped(batches: list[pa.RecordBatch], rule: MergeRule) -> Groups:
    """The rows grouped by key; the groups have the columns of their order only, and KIND."""
    order = replace(rule.order, runs_in_sequence=True)
    names = dict.fromkeys([*order.keys, *order.sequence_fields, SEQUENCE, KIND])
    return group_rows(tuple(batch.select(list(names)) for batch in batches), order)


def _taken(batches: list[pa.RecordBatch], order: _Ints) -> pa.RecordBatch:
    """The rows with these numbers, in this order. Empties `batches`."""
    schema = batches[0].schema
    columns = {name: [batch.column(name) for batch in batches] for name in schema.names}
    batches.clear()
    numbers = pa.array(order)
    arrays = []
    for name in schema.names:
        parts = columns.pop(name)
        arrays.append((parts[0] if len(parts) == 1 else pa.concat_arrays(parts)).take(numbers))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _ranges(starts: _Ints, rows: int) -> Iterator[tuple[int, int]]:
    """Ranges of groups with about `_FOLDED_ROWS` rows each."""
    low = 0
    while low < len(starts):
        high = int(np.searchsorted(starts, starts[low] + _FOLDED_ROWS)) if rows else low
        high = max(high, low + 1)
        yield low, high
        low = high


def _merged(rows: pa.RecordBatch, starts: _Ints, rule: MergeRule) -> pa.RecordBatch:
    if len(starts) == rows.num_rows:
        return rows
    order = np.arange(rows.num_rows, dtype=np.int64)
    (merged,) = merge_rows(Groups((rows,), order, starts), rule)
    return merged


def _check_first_rows(groups: Groups, kinds: npt.NDArray[np.int8], engine: MergeEngine) -> None:
    """Raise JobError for a row that retracts beside others of its key."""
    if not is_retract(kinds).any():
        return
    several = np.repeat(~groups.alone, groups.ends - groups.starts)
    if is_retract(kinds[groups.order[several]]).any():
        raise retract_error(engine)
