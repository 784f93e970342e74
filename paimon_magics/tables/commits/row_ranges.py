"""Checks that files of a data-evolution table which share rows have all of them in common.

Somebody may have written new columns for rows of a file that a compaction takes into a larger one:
then neither file would tell where its rows begin. Source: `ConflictDetection.
checkRowIdRangeConflicts`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.write.commit_message import CommitMessage

__all__ = ["row_range_problems"]


def row_range_problems(
    live: pa.Table, places: Sequence[int], messages: Sequence[CommitMessage]
) -> dict[int, str]:
    """What is wrong after a compaction, by the place of the bucket. `live` are the manifest entries
    of the buckets' files in the latest snapshot with the column `place`; `places` are those of the
    messages' buckets."""
    gone = {
        (place, file.file_name)
        for place, message in zip(places, messages, strict=True)
        for file in message.compact_before
    }
    added = [
        (place, file.file_name, file.first_row_id, file.row_count)
        for place, message in zip(places, messages, strict=True)
        for file in message.compact_after
    ]
    names = ["place", "file_name", "first_row_id", "row_count"]
    touched = pc.is_in(live["place"], value_set=pa.array(sorted(set(places)), pa.int64()))
    columns = [live.filter(touched)[name].to_pylist() for name in names]
    files = [row for row in zip(*columns, strict=True) if (row[0], row[1]) not in gone] + added
    files = [row for row in files if row[2] is not None and not _is_dedicated(row[1])]
    if not files:
        return {}
    place, first, rows = (np.array([row[at] for row in files], np.int64) for at in (0, 2, 3))
    order = np.lexsort((rows, first, place))
    place, first, rows = place[order], first[order], rows[order]
    # In this order files of other rows than their neighbour's overlap with a neighbour.
    bad = (place[1:] == place[:-1]) & (first[1:] < first[:-1] + rows[:-1])
    bad &= (first[1:] != first[:-1]) | (rows[1:] != rows[:-1])
    found: dict[int, str] = {}
    for at in np.flatnonzero(bad).tolist():
        one, other = (files[order[at + step]][1] for step in (0, 1))
        found.setdefault(
            int(place[at]), f"the files {one} and {other} would share some of their rows"
        )
    return found


def _is_dedicated(name: str) -> bool:
    return name.endswith(".blob") or ".vector." in name
