"""Counts the rows whose values Spark has rounded or cut for their columns, as they are written."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.planning.writes.losses import (
    LOSS_END,
    LOSS_IS,
    LOSSES,
    ColumnLoss,
    added_losses,
)

__all__ = ["LossyRows"]


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
    found = []
    while len(texts):
        # Count the column that the first text begins with, then go on with what is left.
        column, _, rest = texts[0].as_py().partition(LOSS_IS)
        begun = pc.starts_with(texts, f"{column}{LOSS_IS}")
        found.append(ColumnLoss(column, pc.sum(begun).as_py(), rest.partition(LOSS_END)[0]))
        left = pc.replace_substring_regex(
            texts.filter(begun), f"^[^{LOSS_END}]*{LOSS_END}", "", max_replacements=1
        )
        texts = pa.concat_arrays([texts.filter(pc.invert(begun)), left])
        texts = texts.filter(pc.not_equal(texts, ""))
    return found
