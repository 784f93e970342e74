from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_magics.columnar.value_bounds import odd_float_columns

MAP = pa.map_(pa.string(), pa.float32())


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.0, pa.float64()),
        (math.inf, pa.float32()),
        ([1.0], pa.list_(pa.float64())),
        ({"x": 1.0}, pa.struct([("x", pa.float32())])),
        ([("k", 1.0)], MAP),
        (1, pa.int32()),
    ],
)
def test_numbers_and_infinities_are_not_odd(value: Any, kind: pa.DataType) -> None:
    rows = pa.record_batch({"c": pa.array([value, None, value], kind)})
    assert list(odd_float_columns(rows, ["c"])) == []


@pytest.mark.parametrize("odd", [math.nan, -math.nan, -0.0])
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_nan_and_negative_zero_are_odd_at_any_level(odd: float, kind: pa.DataType) -> None:
    rows = pa.record_batch(
        {
            "plain": pa.array([1.0, None, odd], kind),
            "list": pa.array([[1.0], None, [2.0, odd]], pa.list_(kind)),
            "struct": pa.array([None, {"x": [odd]}, None], pa.struct([("x", pa.list_(kind))])),
            "map": pa.array([[("k", odd)], None, []], pa.map_(pa.string(), kind)),
            "before": pa.array([odd, 1.0, 2.0], kind),
        }
    )
    columns = rows.schema.names
    assert list(odd_float_columns(rows, columns)) == columns
    assert list(odd_float_columns(rows.slice(1), ["before"])) == []
    assert list(odd_float_columns(rows.slice(0, 0), columns[:1])) == []


def test_values_below_null_are_ignored() -> None:
    numbers = np.array([1.0, math.nan])
    rows = pa.record_batch({"c": pa.array(numbers, mask=np.isnan(numbers))})
    assert list(odd_float_columns(rows, ["c"])) == []
