"""Numbers, each once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paimon_magics.columnar.hash_index import distinct


@given(st.lists(st.one_of(st.integers(-3, 3), st.integers(-(2**31), 2**31 - 1))))
def test_distinct_numbers_are_unique_and_ascending(numbers: list[int]) -> None:
    actual = distinct(np.array(numbers, dtype=np.int32))
    assert actual.tolist() == sorted(set(numbers))
    assert actual.dtype == np.int32
