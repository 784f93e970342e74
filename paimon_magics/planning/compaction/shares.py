"""Divides work among tasks so that each has about as much to read."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["balanced"]

_T = TypeVar("_T")


def balanced(
    items: Iterable[_T], size_bytes: Callable[[_T], int], count: int
) -> tuple[tuple[_T, ...], ...]:
    """The items in at most `count` groups of about one size, the largest group first. Each item,
    the largest first, goes to the group with least so far."""
    ordered = sorted(items, key=size_bytes, reverse=True)
    groups: list[list[_T]] = [[] for _ in range(min(count, len(ordered)))]
    sizes = [(0, number) for number in range(len(groups))]
    for item in ordered:
        size, number = heapq.heappop(sizes)
        groups[number].append(item)
        heapq.heappush(sizes, (size + max(size_bytes(item), 1), number))
    order = sorted(sizes, key=lambda one: (-one[0], one[1]))
    return tuple(tuple(groups[number]) for _, number in order)
