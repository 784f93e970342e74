"""The merge engines, and what each does to the rows of one key.

Code asks for what it needs to know (`engine.keeps_first_row`), not for a name. An unknown name,
which another engine may have stored, has no traits. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MergeEngine:
    """How the rows of one key become one (`CoreOptions.MergeEngine`).

    Either the first or the last row stays as a whole, or values are merged column by column
    (`merges_values`), by the aggregate functions of columns. With `skips_nulls` a NULL leaves a
    value as it is, and columns may have sequence groups. `default_function` is that of columns
    without one. `takes_updates` is whether Paimon offers UPDATE.
    """

    name: str
    keeps_first_row: bool = False
    keeps_last_row: bool = False
    merges_values: bool = False
    skips_nulls: bool = False
    default_function: str | None = None
    takes_updates: bool = False

    @property
    def keeps_whole_rows(self) -> bool:
        """Whether the row of a key is one of the rows that were written."""
        return self.keeps_first_row or self.keeps_last_row

    @property
    def delete_option(self) -> str | None:
        """The option with which a row of the kind -D removes the row of its key, None if there is
        no such option."""
        return f"{self.name}.remove-record-on-delete" if self.merges_values else None


MERGE_ENGINES: Mapping[str, MergeEngine] = {
    engine.name: engine
    for engine in (
        MergeEngine("deduplicate", keeps_last_row=True, takes_updates=True),
        MergeEngine("partial-update", merges_values=True, skips_nulls=True, takes_updates=True),
        MergeEngine(
            "aggregation", merges_values=True, default_function="last_non_null_value"
        ),
        MergeEngine("first-row", keeps_first_row=True),
    )
}  # fmt: skip
