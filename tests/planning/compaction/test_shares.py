"""Work that is divided among tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paimon_magics.planning.compaction.steps import balanced


def test_largest_items_are_placed_first() -> None:
    assert balanced([1, 5, 3, 4], lambda size: size, 2) == ((4, 3), (5, 1))


@given(st.lists(st.integers(0, 1000), max_size=30), st.integers(1, 8))
def test_items_are_divided_into_balanced_groups(sizes: list[int], count: int) -> None:
    groups = balanced(sizes, lambda size: size, count)
    assert sorted(size for group in groups for size in group) == sorted(sizes)
    assert len(groups) == min(count, len(sizes))
    assert all(groups)
    totals = [sum(max(size, 1) for size in group) for group in groups]
    assert totals == sorted(totals, reverse=True)
    assert not totals or totals[0] - totals[-1] <= max(max(sizes), 1)
