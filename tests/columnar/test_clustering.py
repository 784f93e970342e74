"""What the keys by which rows are clustered are for: rows near to each other lie together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_magics.columnar.clustering import hilbert_keys, row_order, z_order_keys

SIDE = 64
X = pa.array(np.tile(np.arange(SIDE), SIDE))
Y = pa.array(np.repeat(np.arange(SIDE), SIDE))


@pytest.mark.parametrize("keys", [z_order_keys([X, Y]), hilbert_keys([X, Y])], ids=["z", "hilbert"])
def test_curve_segment_spans_little_of_each_column(keys: pa.Array) -> None:
    order = row_order([keys])
    part = SIDE * SIDE // 16
    for start in range(0, SIDE * SIDE, part):
        rows = pa.array(order[start : start + part])
        for column in (X, Y):
            actual = pc.min_max(column.take(rows))
            assert actual["max"].as_py() - actual["min"].as_py() < SIDE // 4


def test_neighbours_on_a_hilbert_curve_are_adjacent_cells() -> None:
    order = row_order([hilbert_keys([X, Y])])
    steps = [np.abs(np.diff(np.asarray(column)[order])) for column in (X, Y)]
    assert np.array_equal(steps[0] + steps[1], np.ones(SIDE * SIDE - 1))


def test_curve_keys_are_independent_of_slices() -> None:
    rng = np.random.default_rng(3)
    numbers = pa.array(rng.integers(-9, 9, 70_000), pa.int32())
    texts = pa.array([None if n % 7 == 0 else "x" * (n % 11) for n in range(70_000)])
    for keys_of in (z_order_keys, hilbert_keys):
        keys = keys_of([numbers, texts])
        part = keys_of([numbers.slice(40_000, 5), texts.slice(40_000, 5)])
        assert keys.slice(40_000, 5).equals(part)
        assert len(keys_of([numbers.slice(0, 0), texts.slice(0, 0)])) == 0


def test_row_order_matches_paimon() -> None:
    values = pa.array([1.0, float("nan"), None, -0.0, 0.0, -1.0])
    assert row_order([values]).tolist() == [2, 5, 3, 4, 0, 1]
    first = pa.array(["b", "a", "b", "a"])
    assert row_order([first, pa.array([1, 2, 0, 2])]).tolist() == [1, 3, 2, 0]


def test_unorderable_columns_are_refused() -> None:
    with pytest.raises(TypeError, match="list"):
        z_order_keys([pa.array([[1]])])
    with pytest.raises(ValueError, match="two columns"):
        hilbert_keys([X])
