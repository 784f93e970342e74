"""Assigns the row counts of a plan to its stages.

Spark counts the rows of running tasks by plan node, without naming the stage. So rows that came
since the last sample are assigned to the stages that ran at that sample, because the rows of a
stage that has just ended may arrive late. Stages that run at the same time share them equally.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

__all__ = ["RowCounts", "StageRows"]


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Numbers of rows read from a plan's sources, written for a shuffle, and fetched from one."""

    read: int = 0
    shuffled: int = 0
    fetched: int = 0

    def plus(self, other: RowCounts) -> RowCounts:
        """Return the sum of both."""
        return RowCounts(
            self.read + other.read, self.shuffled + other.shuffled, self.fetched + other.fetched
        )


@dataclass(frozen=True, slots=True)
class StageRows:
    """Row counts by stage id. `total` has the counts of the plan, `running` the ids of the stages
    that ran, both at the last sample."""

    stages: Mapping[int, RowCounts] = field(default_factory=dict)
    total: RowCounts = RowCounts()
    running: frozenset[int] = frozenset()

    def then(self, total: RowCounts, running: Set[int]) -> StageRows:
        """Return the counts after the next sample, at which the stages `running` run."""
        before = sorted(self.running or running)
        now = sorted(running or self.running)
        if not now:
            return self
        stages = dict(self.stages)
        read = max(0, total.read - self.total.read)
        shuffled = max(0, total.shuffled - self.total.shuffled)
        fetched = max(0, total.fetched - self.total.fetched)
        for place, id in enumerate(before):
            more = RowCounts(_part(read, place, before), _part(shuffled, place, before))
            stages[id] = stages.get(id, RowCounts()).plus(more)
        for place, id in enumerate(now):
            more = RowCounts(fetched=_part(fetched, place, now))
            stages[id] = stages.get(id, RowCounts()).plus(more)
        return StageRows(stages, total, frozenset(running))


def _part(rows: int, place: int, ids: list[int]) -> int:
    """The part of `rows` for the stage at `place` in `ids`; the parts add up to `rows`."""
    return rows // len(ids) + (place < rows % len(ids))
