"""Roaring bitmaps are those that the format's own library writes and reads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from paimon_magics.columnar.roaring import numbers_at, roaring_bitmap, roaring_bitmaps

_RUNS = st.lists(
    st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 9000), st.integers(1, 3)), max_size=6
)


def numbers_of(runs: list[tuple[int, int, int]]) -> np.ndarray:
    parts = [np.arange(first, first + count * step, step) for first, count, step in runs]
    numbers = np.unique(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)
    return numbers[numbers < 2**32]


@given(_RUNS)
def test_bitmap_bytes_match_the_library(runs: list[tuple[int, int, int]]) -> None:
    numbers = numbers_of(runs)
    expected = BitMap(numbers.tolist())
    expected.run_optimize()
    assert roaring_bitmap(numbers) == expected.serialize()


@given(_RUNS)
def test_written_bitmap_is_read_back(runs: list[tuple[int, int, int]]) -> None:
    numbers = numbers_of(runs)
    stored = roaring_bitmap(numbers)
    actual, end = numbers_at(b"before" + stored + b"after", 6)
    assert np.array_equal(actual, numbers) and end == 6 + len(stored)


@pytest.mark.parametrize(
    "numbers",
    [
        [0],
        [0, 1],  # 4 bytes as an array, 6 as a run
        [0, 1, 2],  # as large either way: an array
        [0, 1, 2, 3],
        list(range(0, 8192, 2)),  # the largest array
        list(range(0, 8194, 2)),  # the smallest bits
        [n for n in range(65536) if n % 32 != 31],  # 2,048 runs: bits are smaller
        [n for n in range(65536) if n % 33 != 32],
        list(range(65536)),
        [n << 16 for n in range(9)],
        [2**32 - 2, 2**32 - 1],
    ],
    ids=lambda numbers: f"{len(numbers)} from {numbers[0]}",
)
def test_bitmap_bytes_match_at_container_boundaries(numbers: list[int]) -> None:
    expected = BitMap(numbers)
    expected.run_optimize()
    assert roaring_bitmap(np.array(numbers)) == expected.serialize()


@pytest.mark.parametrize("numbers", [[2, 1], [1, 1], [-1, 0], [0, 2**32]])
def test_unordered_or_out_of_range_numbers_are_refused(numbers: list[int]) -> None:
    with pytest.raises(ValueError, match="ascend"):
        roaring_bitmap(np.array(numbers))


@given(st.lists(_RUNS.filter(bool), min_size=1, max_size=5))
def test_bulk_bitmaps_equal_individual_bitmaps(
    groups: list[list[tuple[int, int, int]]],
) -> None:
    numbers = [numbers_of(runs) for runs in groups]
    firsts = np.cumsum([0, *(len(each) for each in numbers[:-1])])
    stored, lengths = roaring_bitmaps(np.concatenate(numbers), firsts)
    assert stored == b"".join(map(roaring_bitmap, numbers))
    assert lengths.tolist() == [len(roaring_bitmap(each)) for each in numbers]
