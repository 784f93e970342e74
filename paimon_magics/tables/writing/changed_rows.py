"""Counts the changed rows that a writer of a primary-key table gets, and finds a row of the table
that would be changed twice.

The rows come with their kinds, and rows of one key follow each other. So the last key is all that
has to be kept, however many rows there are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from paimon_magics.columnar.differences import same_rows
from paimon_magics.columnar.merging import KIND
from paimon_magics.planning.reads.row_kinds import INSERT, PARTLY

__all__ = ["ChangedRows", "ChangedTwiceError"]


class ChangedTwiceError(Exception):
    """Two rows that are no inserts have the same key: both would change one row of the table."""


class ChangedRows:
    """The rows that one writer has got; `counts` has their numbers by the number of their kind."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.counts = [0] * (PARTLY + 1)
        self._keys = list(keys)
        self._last: pa.Table | None = None

    def note(self, rows: pa.RecordBatch) -> None:
        """Count the next rows, which have the keys and KIND. Raises ChangedTwiceError."""
        kinds = np.asarray(rows.column(KIND))
        counts = np.bincount(kinds, minlength=len(self.counts))
        self.counts = [int(one + more) for one, more in zip(self.counts, counts, strict=True)]
        changed = rows.select(self._keys).filter(pa.array(kinds != INSERT))
        if not changed.num_rows:
            return
        parts = [pa.Table.from_batches([changed])]
        if self._last is not None:
            parts.insert(0, self._last)
        keys = pa.concat_tables(parts).combine_chunks()
        places = np.arange(keys.num_rows, dtype=np.int64)
        columns = [pa.concat_arrays(column.chunks) for column in keys.columns]
        if same_rows(columns, places[:-1], places[1:]).any():
            raise ChangedTwiceError
        # A copy: a slice would keep the batch that it was cut from.
        self._last = keys.take(pa.array(places[-1:]))
