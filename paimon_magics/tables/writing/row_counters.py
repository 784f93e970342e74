"""Counts rows in a writer: changed rows, rows that Spark has rounded or cut, and rows of an UPDATE
that would have no visible effect.

The rows come with their kinds, and rows of one key follow each other. So only the last key is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.differences import same_rows
from paimon_magics.columnar.merging import KIND
from paimon_magics.planning.reads.views import INSERT, OLDER, PARTLY, UNCHANGED, UPDATE_AFTER
from paimon_magics.planning.row_changes.merged_updates import ALL_SEEN, UnseenCounts
from paimon_magics.planning.writes.losses import (
    LOSS_END,
    LOSS_IS,
    LOSSES,
    ColumnLoss,
    added_losses,
)
from paimon_magics.planning.writes.row_origins import ORIGIN, OriginCounts, added_origins


class ChangedTwiceError(Exception):
    """Two changes have the same key: both would change one row of the table."""


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
        self.counts = [int(count + more) for count, more in zip(self.counts, counts, strict=True)]
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


# Counts the rows whose values Spark has rounded or cut for their columns, as they are written.


@dataclass(slots=True)
class LossyRows:
    """Counts the changed values in the rows of one writer."""

    counts: tuple[ColumnLoss, ...] = field(default=())

    def noted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows, after their changed values are counted. Rows without LOSSES have none."""
        if LOSSES in rows.schema.names:
            texts = rows.column(LOSSES)
            if texts.null_count < len(texts):
                self.counts = added_losses((*self.counts, *_counted(texts.drop_null())))
        return rows


def _counted(texts: pa.Array) -> list[ColumnLoss]:
    losses = []
    while len(texts):
        # Count the column that the first text begins with, then continue with the rest.
        column, _, rest = texts[0].as_py().partition(LOSS_IS)
        begun = pc.starts_with(texts, f"{column}{LOSS_IS}")
        losses.append(ColumnLoss(column, pc.sum(begun).as_py(), rest.partition(LOSS_END)[0]))
        left = pc.replace_substring_regex(
            texts.filter(begun), f"^[^{LOSS_END}]*{LOSS_END}", "", max_replacements=1
        )
        texts = pa.concat_arrays([texts.filter(pc.invert(begun)), left])
        texts = texts.filter(pc.not_equal(texts, ""))
    return losses


# Counts the written rows of each origin.


@dataclass(slots=True)
class RowOrigins:
    """Counts the rows of one writer by their origin."""

    counts: OriginCounts = field(default=())

    def noted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows, after they are counted. Rows without ORIGIN are not."""
        if ORIGIN in rows.schema.names:
            origins, numbers = np.unique(np.asarray(rows.column(ORIGIN)), return_counts=True)
            pairs = zip(origins.tolist(), numbers.tolist(), strict=True)
            self.counts = added_origins((self.counts, tuple(pairs)))
        return rows


# Rows of an UPDATE without visible effect: a writer leaves them out and counts them.
#
# They have a separate kind in the column KIND (`planning/row_changes/merged_updates.py`).


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
        unseen_counts = UnseenCounts(
            int(counts[OLDER]), int(counts[UNCHANGED]), int(counts[PARTLY])
        )
        if not unseen_counts:
            return rows
        self.counts += unseen_counts
        is_written = ~np.isin(kinds, (OLDER, UNCHANGED))
        kinds = np.where(kinds == PARTLY, np.int8(UPDATE_AFTER), kinds).astype(np.int8)
        place = rows.schema.get_field_index(KIND)
        rows = rows.set_column(place, rows.schema.field(place), pa.array(kinds))
        return rows if is_written.all() else rows.filter(pa.array(is_written))
