"""The bounds of a file's columns hold for each of its values, however they are cut."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_magics.columnar.value_bounds import (
    Bounds,
    BoundsCollector,
    truncated_greatest,
    truncated_least,
)


def collected(*batches: pa.Array, **options: Any) -> Bounds:
    collector = BoundsCollector(batches[0].type, **options)
    for batch in batches:
        collector.add(batch)
    return collector.bounds()


@given(text=st.text(min_size=1), length=st.integers(1, 5))
def test_truncated_text_bounds_enclose_the_text(text: str, length: int) -> None:
    least, greatest = truncated_least(text, length), truncated_greatest(text, length)
    assert isinstance(least, str)
    assert len(least) <= length
    assert least.encode() <= text.encode()
    if greatest is None:
        assert set(text[:length]) == {"\U0010ffff"}
    else:
        assert isinstance(greatest, str)
        assert len(greatest) <= length
        assert greatest.encode() >= text.encode()


@given(value=st.binary(min_size=1), length=st.integers(1, 5))
def test_truncated_binary_bounds_enclose_the_value(value: bytes, length: int) -> None:
    greatest = truncated_greatest(value, length)
    least = truncated_least(value, length)
    assert isinstance(least, bytes)
    assert least <= value
    if greatest is None:
        assert set(value[:length]) == {0xFF}
    else:
        assert isinstance(greatest, bytes)
        assert len(greatest) <= length
        assert greatest >= value


def test_incremented_bound_skips_invalid_characters() -> None:
    assert truncated_greatest("abcd", 3) == "abd"
    assert truncated_greatest("ab\ud7ffd", 3) == "ab\ue000"
    assert truncated_greatest("ab\U0010ffffd", 3) == "ac"
    assert truncated_greatest("abc", 3) == "abc"
    assert truncated_greatest(b"a\xff\xff1", 3) == b"b"


@pytest.mark.parametrize(
    ("values", "least", "greatest"),
    [
        (pa.array([3, None, 1], pa.int8()), 1, 3),
        (pa.array([True, False]), False, True),
        (pa.array([1.5, -2.0]), -2.0, 1.5),
        (pa.array([Decimal("1.25"), Decimal("-3.10")]), Decimal("-3.10"), Decimal("1.25")),
        (pa.array(["b", "ä", "a"]), "a", "ä"),
        (pa.array([b"\xff", b"a"]), b"a", b"\xff"),
        (
            pa.array([datetime.date(2024, 1, 2), datetime.date(1969, 1, 1)]),
            datetime.date(1969, 1, 1),
            datetime.date(2024, 1, 2),
        ),
        (
            pa.array([datetime.datetime(2024, 1, 2)], pa.timestamp("us")),
            datetime.datetime(2024, 1, 2),
            datetime.datetime(2024, 1, 2),
        ),
        (pa.array([None, None], pa.string()), None, None),
        (pa.array([[1], [2]]), None, None),
        (pa.array([1, 2], pa.timestamp("ns")), None, None),
        (pa.array([1.0, float("nan")]), None, None),
        (pa.array([1.0, -0.0]), None, None),
    ],
)
def test_bounds_are_collected_for_each_type(values: pa.Array, least: Any, greatest: Any) -> None:
    assert collected(values) == Bounds(least, greatest, values.null_count)


def test_bounds_grow_with_each_batch() -> None:
    batches = (
        pa.array([5, 7], pa.int64()),
        pa.array([None], pa.int64()),
        pa.array([9, None], pa.int64()),
        pa.array([], pa.int64()),
        pa.array([1], pa.int64()),
    )
    assert collected(*batches) == Bounds(1, 9, 2)


def test_collection_honours_length_and_requested_values() -> None:
    texts = pa.array(["abcdef", None, "xyz"])
    assert collected(texts, length=2) == Bounds("ab", "xz", 1)
    assert collected(texts, wants_values=False) == Bounds(None, None, 1)
    last = pa.array(["abc", "\U0010ffff\U0010ffff"])
    assert collected(last, length=1) == Bounds(None, None, 0)
