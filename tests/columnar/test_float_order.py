from __future__ import annotations

import math

import pyarrow as pa
import pytest

from paimon_magics.columnar.key_numbers import in_java_order

GROWING = [-math.inf, -1.5, -1e-40, -0.0, 0.0, 1e-40, 2.5, math.inf, math.nan]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_floats_are_ordered_as_in_java(kind: pa.DataType) -> None:
    column = pa.array([9.0, None, *GROWING, -math.nan], kind)[1:]
    null, *actual, nan = in_java_order(column).to_pylist()
    assert null is None
    assert actual == sorted(set(actual))
    assert nan == actual[-1]


def test_other_types_are_unchanged() -> None:
    column = pa.array(["b", None])
    assert in_java_order(column) is column
