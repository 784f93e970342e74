from __future__ import annotations

from collections import defaultdict
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from paimon_magics.tables.writing.bucket_counts import BucketRule, row_groups, values_at

ROWS = 70_000
DAYS = pa.array([None if i % 5 == 0 else f"d{i * 7919 % 300}" for i in range(ROWS)])
HOURS = pa.array((np.arange(ROWS) * 31 % 1000).astype(np.int32))
PARTS = pa.array(np.arange(ROWS, dtype=np.int64) % 3)
ONE = pa.array(["same"] * ROWS)
KEYS = pa.array(np.arange(ROWS))


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param([ONE], id="one group"),
        pytest.param([DAYS], id="some groups, NULL among them"),
        pytest.param([KEYS], id="a group for each row, more than sixteen bits can number"),
        pytest.param([PARTS, DAYS], id="two columns"),
        pytest.param([PARTS, HOURS, DAYS], id="combinations that sixteen bits can't number"),
        pytest.param([KEYS, KEYS, KEYS, KEYS], id="combinations that 64 bits can't number"),
    ],
)
def test_rows_are_grouped_by_equal_values_in_order(columns: list[pa.Array]) -> None:
    expected = defaultdict(list)
    for row, values in enumerate(zip(*(c.to_pylist() for c in columns), strict=True)):
        expected[values].append(row)
    groups = row_groups(columns)
    actual = {values_at(columns, int(rows[0])): rows.tolist() for rows in groups}
    assert len(actual) == len(groups)
    assert actual == dict(expected)


def test_no_rows_form_no_group() -> None:
    for columns in product([pa.array([], pa.int32())], repeat=2):
        assert row_groups(columns) == []


def test_rows_without_a_bucket_key_are_in_the_first_bucket() -> None:
    batch = pa.RecordBatch.from_arrays([PARTS], names=["p"])
    actual = BucketRule((), 1).owners(batch, ["p"])
    assert actual.tolist() == [0] * ROWS
    actual = BucketRule((), 1, by_partition=(((0,), 2),)).owners(batch, ["p"])
    assert actual.tolist() == [0] * ROWS
