"""Which cases of a matrix are in every run, and which only in `make soak`.

A sample of several axes has each value of each: the cases whose places add up to a multiple of a
number. Of one axis it has every second value, or third.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

__all__ = ["examples", "only_in_soak", "sampled"]


def examples(number: int) -> int:
    """How many examples a test draws: `number`, or what `make soak` sets."""
    return int(os.environ.get("PAIMON_MAGICS_EXAMPLES", number))


def sampled(*axes: Mapping[str, Any] | Sequence[Any], one_in: int = 2) -> list[Any]:
    """All combinations of the axes' values for `pytest.mark.parametrize`, one in so many of them in
    every run. A value's name is its key, or its text."""
    named = [
        list(axis.items()) if isinstance(axis, Mapping) else [(str(each), each) for each in axis]
        for axis in axes
    ]
    return [
        pytest.param(
            *(value for _, (_, value) in chosen),
            id="-".join(name for _, (name, _) in chosen),
            marks=[pytest.mark.soak] if sum(place for place, _ in chosen) % one_in else [],
        )
        for chosen in itertools.product(*(enumerate(axis) for axis in named))
    ]


def only_in_soak(cases: Mapping[str, Any] | Sequence[Any], left_out: Collection[str]) -> list[Any]:
    """The cases of one axis, those that are `left_out` by their names only in `make soak`."""
    named = cases.items() if isinstance(cases, Mapping) else ((str(each), each) for each in cases)
    return [
        pytest.param(value, id=name, marks=[pytest.mark.soak] if name in left_out else [])
        for name, value in named
    ]
