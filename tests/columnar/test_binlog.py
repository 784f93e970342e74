"""Updates packed into one row, whatever batches they come in."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_magics.columnar.binlog import pack_updates, single_rows

KINDS = ["+I", "-U", "+U", "-D"]


def packed(kinds: list[str], cuts: list[int]) -> list[tuple[str, list[int]]]:
    """Rows numbered by their place, in batches that end at `cuts`."""
    bounds = [0, *sorted(cuts), len(kinds)]
    codes = np.array([KINDS.index(kind) for kind in kinds], dtype=np.int8)
    values = pa.array(range(len(kinds)), pa.int32())
    batches = [(codes[low:high], [values.slice(low, high - low)]) for low, high in pairwise(bounds)]
    return [
        (KINDS[kind], row)
        for each, columns in pack_updates(batches)
        for kind, row in zip(each, columns[0].to_pylist(), strict=True)
    ]


def one_by_one(kinds: list[str]) -> list[tuple[str, list[int]]]:
    result, place = [], 0
    while place < len(kinds):
        width = 2 if kinds[place] == "-U" and place + 1 < len(kinds) else 1
        result.append((kinds[place + width - 1], list(range(place, place + width))))
        place += width
    return result


@given(st.lists(st.sampled_from(KINDS), max_size=12), st.data())
def test_update_is_packed_with_the_next_row(kinds: list[str], data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(kinds)), max_size=3))
    assert packed(kinds, cuts) == one_by_one(kinds)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["-U", "+U"], [("+U", [0, 1])]),
        (["-U", "+I"], [("+I", [0, 1])]),
        (["-U", "-U", "+U"], [("-U", [0, 1]), ("+U", [2])]),
        (["+I", "-U"], [("+I", [0]), ("-U", [1])]),
        (["-D", "+I"], [("-D", [0]), ("+I", [1])]),
    ],
)
def test_update_pairs_match_paimon(kinds: list[str], expected: list[tuple[str, list[int]]]) -> None:
    assert packed(kinds, []) == expected


def test_null_becomes_an_array_with_a_null() -> None:
    column = pa.array([1, None], pa.int32())
    assert single_rows([column], 2)[0].to_pylist() == [[1], [None]]
