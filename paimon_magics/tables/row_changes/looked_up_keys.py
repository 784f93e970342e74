"""The values that a row of a table must have in some columns to matter to a statement, as a file
that Spark's tasks on this machine read.

Light to import, because the tasks load it. Memory is bounded by `INTEGERS_MAX`, and for a column
of whole numbers that lie close together by `_SPAN_MAX` bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["INTEGERS_MAX", "TEXTS_MAX", "LookedUpKeys"]

INTEGERS_MAX = 1_000_000
"""The most values of a column of whole numbers or dates."""
TEXTS_MAX = 65_536
"""The most values of a column of texts: Arrow hashes them anew for each batch of rows."""

_SPAN_MAX = 2**25

_Mask = Callable[[pa.Array], npt.NDArray[np.bool_]]


@dataclass(frozen=True)
class LookedUpKeys:
    """Values of columns, in the file `path`. Before it is written, and of columns that it does not
    have, rows may have any values."""

    path: str

    def write(self, values: Mapping[str, pa.Array]) -> None:
        """Write the values of each column: distinct, without NULL; int64 for numbers and dates."""
        columns = {
            name: pa.ListArray.from_arrays(pa.array([0, len(one)], pa.int32()), one)
            for name, one in values.items()
        }
        rows = pa.RecordBatch.from_pydict(columns)
        with pa.OSFile(self.path, "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows)

    def matching(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that have such values. No batch is empty."""
        masks = self._masks()
        for batch in batches:
            for name, mask in masks.items():
                kept = mask(batch.column(name))
                batch = batch if kept.all() else batch.filter(pa.array(kept))
            if batch.num_rows:
                yield batch

    def _masks(self) -> dict[str, _Mask]:
        if not Path(self.path).exists():
            return {}
        with pa.OSFile(self.path) as source, pa.ipc.open_stream(source) as reader:
            rows = reader.read_next_batch()
        return {name: _mask(rows.column(name).flatten()) for name in rows.schema.names}


def _mask(values: pa.Array) -> _Mask:
    if not pa.types.is_integer(values.type):
        return lambda column: np.asarray(pc.is_in(column, values.cast(column.type)))
    known = np.sort(np.asarray(values))
    if not len(known):
        return lambda column: np.zeros(len(column), dtype=bool)
    least, span = int(known[0]), int(known[-1]) - int(known[0]) + 1
    if span <= _SPAN_MAX:
        table = np.zeros(span, dtype=bool)
        table[known - least] = True
    else:
        table = None

    def mask(column: pa.Array) -> npt.NDArray[np.bool_]:
        is_null = np.asarray(column.is_null()) if column.null_count else None
        given = np.asarray(_numbers(column))
        if table is not None:
            inside = (given >= known[0]) & (given <= known[-1])
            found = np.zeros(len(given), dtype=bool)
            found[inside] = table[given[inside] - least]
        else:
            at = np.minimum(np.searchsorted(known, given), len(known) - 1)
            found = known[at] == given
        return found if is_null is None else found & ~is_null

    return mask


def _numbers(column: pa.Array) -> pa.Array:
    """Whole numbers, or the days of dates, as int64; 0 for NULL."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    column = column.cast(pa.int64())
    return column.fill_null(0) if column.null_count else column
