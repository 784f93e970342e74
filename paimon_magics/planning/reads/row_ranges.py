"""The rows of a data-evolution table by the files that hold their columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paimon_magics.planning.reads.splits import StoredFile

__all__ = ["RowRange"]


@dataclass(frozen=True, slots=True)
class RowRange:
    """The rows with the ids from `first_row_id` on, and the `files` that hold columns of all of
    them, as `row_groups` orders these. `partition` are the values of the partition columns,
    `folder` is where further files of these rows lie."""

    first_row_id: int
    rows: int
    partition: tuple[Any, ...]
    folder: str
    files: tuple[StoredFile, ...]

    @property
    def next_row_id(self) -> int:
        """The id after those of its rows."""
        return self.first_row_id + self.rows
