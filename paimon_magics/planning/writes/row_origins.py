"""Where the rows of a job come from, for a count of each origin's written rows.

The rows have a number of their origin in a column ORIGIN. The writers count them
(`tables/writing/row_counters.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

ORIGIN = "__paimon_magics_origin"
"""The column of a job's rows with the number of their origin (64 bits)."""

OriginCounts = tuple[tuple[int, int], ...]
"""Origins, each with the number of its rows."""


def added_origins(counts: Iterable[OriginCounts]) -> OriginCounts:
    """The counts of several writers, one for each origin."""
    total: Counter[int] = Counter()
    for each in counts:
        for origin, rows in each:
            total[origin] += rows
    return tuple(sorted(total.items()))
