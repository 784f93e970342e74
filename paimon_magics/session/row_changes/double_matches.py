"""MERGE refuses a row of the target that more than one row of the source would change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paimon_magics.errors import InvalidValueError
from paimon_magics.spark.merge_rows import MatchCounts, match_counts

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame


_TWICE = (
    "The ON search condition of the MERGE statement matched a single row from the target table "
    "with multiple rows of the source table, so that it would be updated or deleted more than once."
)


def counted_rows(changed: DataFrame, identity: Sequence[str]) -> MatchCounts:
    """Count the changed rows. `identity` are the columns that identify a row of the target. Raises
    InvalidValueError for a row that several source rows would change."""
    counts = match_counts(changed, identity)
    if counts.matches_max > 1:
        raise changed_twice()
    return counts


def changed_twice() -> InvalidValueError:
    """The error for a row that several source rows would change."""
    return InvalidValueError(
        _TWICE,
        hint="Nothing was written. Make the source have one row for each target row, or add "
        "a condition to WHEN MATCHED that only one of them meets.",
    )
