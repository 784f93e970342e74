"""Which times are too old, by type."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from paimon_magics.columnar.row_filters import RecordExpiry


@pytest.mark.parametrize(
    ("data_type", "times", "expected"),
    [
        (pa.int32(), [899, 900, None, -5], [True, False, False, True]),
        (pa.int64(), [899, 900, None, 1_000_000_000_000], [True, False, False, False]),
        (pa.timestamp("s"), [899, 900, None], [True, False, False]),
        (pa.timestamp("ms"), [899_999, 900_000], [True, False]),
        (pa.timestamp("us", "UTC"), [899_999_999, 900_000_000], [True, False]),
        (pa.timestamp("ns"), [899_999_999_999, 900_000_000_000], [True, False]),
    ],
)
def test_times_before_the_limit_are_expired(
    data_type: Any, times: list[Any], expected: list[bool]
) -> None:
    array = pa.array(times, pa.int64()).cast(data_type)
    assert RecordExpiry("t", 900).too_old(array).tolist() == expected


def test_milliseconds_in_a_bigint_are_recognised() -> None:
    limit = 1_700_000_000
    times = pa.array([limit * 1000 - 1, limit * 1000], pa.int64())
    assert RecordExpiry("t", limit).too_old(times).tolist() == [True, False]
