"""Which files of a data-evolution table are rewritten together.

Files that hold columns of the same rows become one, and so do small files whose rows follow each
other: the rows keep their ids, which are counted from the first one of their file.

Source: `DataEvolutionCompactCoordinator` without blob and vector files, which stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paimon_magics.errors import TableDamagedError
from paimon_magics.planning.compaction.append_tables import AppendRules

__all__ = ["RowRangeFile", "row_range_bins"]


@dataclass(frozen=True, slots=True)
class RowRangeFile:
    """A data file of some columns: the rows with the ids from `first_row_id` on. `place` is the
    caller's number of it."""

    place: int
    first_row_id: int
    rows: int
    size_bytes: int

    @property
    def next_row_id(self) -> int:
        """The id after those of its rows."""
        return self.first_row_id + self.rows


def row_range_bins(files: Iterable[RowRangeFile], rules: AppendRules) -> list[tuple[int, ...]]:
    """The places of the files of a partition that become one file each, in the order of their row
    ids.

    Files of the same rows stay together. Such groups are packed in the order of their rows, without
    a gap between them, until they have more than the target size; bins of fewer than
    `compaction.min.file-num` files stay. Raises TableDamagedError for files that share only some of
    their rows.
    """
    bins: list[list[RowRangeFile]] = []
    bin_: list[RowRangeFile] = []
    weight = 0
    for group in _groups(files):
        own = sum(max(file.size_bytes, rules.open_file_cost_bytes) for file in group)
        if bin_ and (bin_[-1].next_row_id < group[0].first_row_id or own > rules.target_bytes):
            bins.append(bin_)
            bin_, weight = [], 0
        bin_ += group
        weight += own
        if weight > rules.target_bytes:
            bins.append(bin_)
            bin_, weight = [], 0
    bins.append(bin_)
    # A single file would be rewritten as it is.
    least = max(rules.file_count_min, 2)
    return [tuple(file.place for file in one) for one in bins if len(one) >= least]


def _groups(files: Iterable[RowRangeFile]) -> list[Sequence[RowRangeFile]]:
    """The files of the same rows, in the order of these."""
    found: list[list[RowRangeFile]] = []
    for file in sorted(files, key=lambda one: (one.first_row_id, one.rows, one.place)):
        if not found or file.first_row_id >= found[-1][0].next_row_id:
            found.append([file])
            continue
        before = found[-1][0]
        if (before.first_row_id, before.rows) != (file.first_row_id, file.rows):
            raise TableDamagedError(
                f"Two data files share some of their rows: those of one have the ids from "
                f"{before.first_row_id} to {before.next_row_id - 1}, those of the other from "
                f"{file.first_row_id} to {file.next_row_id - 1}.",
                hint="Files of the same rows must have all of them. Go back to a snapshot without "
                "such files.",
            )
        found[-1].append(file)
    return list(found)
