from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from paimon_magics.columnar.value_bounds import matching, may_match
from paimon_magics.planning.reads.predicates import ColumnPredicate


@pytest.mark.parametrize("data_type", [pa.int8(), pa.int16(), pa.int32(), pa.int64()], ids=str)
@pytest.mark.parametrize("wanted", [0, 3, -3])
def test_remainder_has_the_sign_of_the_dividend(data_type: pa.DataType, wanted: int) -> None:
    least = -(2 ** (data_type.bit_width - 1))
    values = [7, 3, 0, None, -3, -7, 17, 103, least, -least - 1]
    one = ColumnPredicate("k", "remainder", (10, wanted))
    # As Java divides: towards zero.
    expected = [
        value is not None and abs(value) % 10 * (1 if value >= 0 else -1) == wanted
        for value in values
    ]
    assert matching(one, pa.array(values, data_type)).tolist() == expected


def test_bounds_exclude_no_remainders() -> None:
    one = ColumnPredicate("k", "remainder", (10, 3))
    bounds = pa.array([1, None], pa.int64())
    nulls = np.array([True, False])
    assert may_match(one, bounds, bounds, nulls, np.array([False, True])).tolist() == [True, False]


def test_divisor_outside_the_type_matches_all_rows() -> None:
    one = ColumnPredicate("k", "remainder", (1000, 3))
    assert matching(one, pa.array([3, 4, None], pa.int8())).all()
