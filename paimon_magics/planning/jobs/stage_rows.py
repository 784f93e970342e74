"""Which stages the rows belong to that a statement's plan has counted so far.

Spark counts the rows of running tasks by the nodes of a plan, and tells no stage with them. So what
came since the last look belongs to the stages that ran by then: rows of a stage that has just ended
may come a moment late. Stages that run at the same time get as many each.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

__all__ = ["RowCounts", "StageRows"]


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Rows that came from where a plan begins, that were written for a shuffle, and that were
    fetched from one."""

    read: int = 0
    shuffled: int = 0
    fetched: int = 0

    def plus(self, other: RowCounts) -> RowCounts:
        """The sums of both."""
        return RowCounts(
            self.read + other.read, self.shuffled + other.shuffled, self.fetched + other.fetched
        )


@dataclass(frozen=True, slots=True)
class StageRows:
    """The counts of each stage by its id, of all that was counted in `total`; `running` are the
    stages that ran at the last look."""

    stages: Mapping[int, RowCounts] = field(default_factory=dict)
    total: RowCounts = RowCounts()
    running: frozenset[int] = frozenset()

    def then(self, total: RowCounts, running: Set[int]) -> StageRows:
        """With the counts of the next look, at which `running` run."""
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
    """The part of the stage at `place`; together they are all rows."""
    return rows // len(ids) + (place < rows % len(ids))
