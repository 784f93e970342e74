"""Rows of an UPDATE that nobody would see: a writer leaves them out and counts them.

They come with a kind of their own in the column KIND (`planning/row_changes/merged_updates.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_magics.columnar.merging import KIND
from paimon_magics.planning.reads.row_kinds import OLDER, PARTLY, UNCHANGED, UPDATE_AFTER
from paimon_magics.planning.row_changes.unseen_counts import ALL_SEEN, UnseenCounts

__all__ = ["UnseenRows"]


@dataclass(slots=True)
class UnseenRows:
    """Counts the rows that one writer leaves out, or writes with values that are not taken."""

    counts: UnseenCounts = ALL_SEEN

    def written(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows to write, with Paimon's kinds. Rows without KIND are all written."""
        if KIND not in rows.schema.names:
            return rows
        kinds = np.asarray(rows.column(KIND))
        counts = np.bincount(kinds, minlength=PARTLY + 1)
        found = UnseenCounts(int(counts[OLDER]), int(counts[UNCHANGED]), int(counts[PARTLY]))
        if not found:
            return rows
        self.counts += found
        is_written = ~np.isin(kinds, (OLDER, UNCHANGED))
        kinds = np.where(kinds == PARTLY, np.int8(UPDATE_AFTER), kinds).astype(np.int8)
        place = rows.schema.get_field_index(KIND)
        rows = rows.set_column(place, rows.schema.field(place), pa.array(kinds))
        return rows if is_written.all() else rows.filter(pa.array(is_written))
