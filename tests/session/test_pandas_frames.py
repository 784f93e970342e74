"""A column's dtype in pandas follows from its type, and no value changes."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import pandas
import pyarrow as pa
import pytest

from paimon_magics.columnar.python_values import python_values
from paimon_magics.errors import InvalidValueError
from paimon_magics.session.outcome import pandas_frame

MOST = 9_223_372_036_854_775_807
DAY, DIGITS = datetime.date(9999, 12, 31), decimal.Decimal("12345678901234567890.12")
CASES: list[tuple[pa.DataType, Any, str]] = [
    (pa.int8(), 127, "Int8"),
    (pa.int32(), -1, "Int32"),
    (pa.int64(), MOST, "Int64"),
    (pa.bool_(), True, "boolean"),
    (pa.float32(), 0.5, "Float32"),
    (pa.float64(), 0.1, "Float64"),
    (pa.string(), "☃", "string"),
    (pa.date32(), DAY, "object"),
    (pa.decimal128(38, 2), DIGITS, "object"),
    (pa.binary(), b"\x00", "object"),
    (pa.timestamp("us"), datetime.datetime(9999, 12, 31, 23), "datetime64[us]"),
    (pa.list_(pa.int64()), [MOST, None], "object"),
    (pa.struct([("a", pa.int64()), ("b", pa.bool_())]), {"a": MOST, "b": None}, "object"),
    (pa.map_(pa.string(), pa.int64()), {"x": MOST, "y": None}, "object"),
]


@pytest.mark.parametrize(("data_type", "value", "dtype"), CASES, ids=[str(c[0]) for c in CASES])
def test_a_null_changes_neither_the_dtype_nor_the_values(
    data_type: pa.DataType, value: Any, dtype: str
) -> None:
    given = list(value.items()) if pa.types.is_map(data_type) else value
    for values in ([given], [given, None], [None], []):
        frame = pandas_frame(pa.table({"c": pa.array(values, data_type)}))
        assert str(frame["c"].dtype) == dtype
        for place, expected in enumerate(values):
            actual = frame["c"][place]
            assert actual is None or pandas.isna(actual) if expected is None else actual == value
    assert len(frame) == 0


def test_nan_is_kept_apart_from_null() -> None:
    frame = pandas_frame(pa.table({"d": [math.nan, None, 1.0]}))
    assert frame["d"].isna().tolist() == [False, True, False]


def test_columns_may_share_a_name() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array(["x"])], names=["a", "a"])
    frame = pandas_frame(twice)
    assert frame.columns.tolist() == ["a", "a"]
    assert frame.iloc[0].tolist() == [1, "x"]
    assert len(pandas_frame(pa.table({}))) == 0


def test_options_convert_decimals_and_dates_for_charts() -> None:
    rows = pa.table(
        {
            "amount": pa.array([decimal.Decimal("1.10"), None], pa.decimal128(10, 2)),
            "wide": pa.array([decimal.Decimal(10) ** 60, None], pa.decimal256(70, 2)),
            "day": pa.array([datetime.date(2026, 11, 20), None], pa.date32()),
            "id": pa.array([1, None], pa.int32()),
        }
    )
    frame = pandas_frame(rows, decimals="float", dates="datetime64")
    assert list(map(str, frame.dtypes)) == ["Float64", "Float64", "datetime64[us]", "Int32"]
    assert frame["amount"].tolist()[0] == 1.1 and frame.isna().iloc[1].all()
    assert frame["day"][0] == datetime.datetime(2026, 11, 20)
    for each in ({"decimals": "floats"}, {"dates": "text"}):
        with pytest.raises(InvalidValueError, match=f"`{next(iter(each))}` can't be"):
            pandas_frame(rows, **each)


@pytest.mark.parametrize(
    ("zone", "clocks"),
    [
        ("Asia/Tokyo", ["1500-06-01 21:18:59", "1887-06-01 21:18:59", "1900-06-01 21:00:00"]),
        ("America/St_Johns", ["1500-06-01 08:29:08", "1887-06-01 08:29:08", "1900-06-01 08:29:08"]),
        ("UTC", ["1500-06-01 12:00:00", "1887-06-01 12:00:00", "1900-06-01 12:00:00"]),
    ],
)
@pytest.mark.parametrize("unit", ["us", "ms"])
def test_clocks_before_standard_time_are_those_of_the_zone(
    zone: str, clocks: list[str], unit: str
) -> None:
    noons = [
        datetime.datetime(year, 6, 1, 12, tzinfo=datetime.UTC) for year in (1500, 1887, 1900, 2020)
    ]
    old = pa.table({"t": pa.array([*noons, None], pa.timestamp(unit, zone))})
    frame = pandas_frame(old)
    assert [str(clock) for clock in frame["t"].dt.tz_localize(None)[:3]] == clocks
    assert str(frame["t"].dtype) == f"datetime64[{unit}, {zone}]"
    assert pa.Table.from_pandas(frame)["t"].cast(old["t"].type) == old["t"]


def test_recent_clocks_have_the_same_dtype_as_in_pandas() -> None:
    recent = pa.array([datetime.datetime(2020, 6, 1, tzinfo=datetime.UTC)])
    recent = recent.cast(pa.timestamp("us", "Asia/Tokyo"))
    frame = pandas_frame(pa.table({"t": recent}))
    assert frame["t"].dtype == recent.to_pandas().dtype


def test_times_beyond_pythons_calendar_stay_as_they_are() -> None:
    far = pa.array([-(10**17), 10**18], pa.timestamp("us", "Asia/Tokyo"))
    frame = pandas_frame(pa.table({"t": far}))
    assert frame["t"].astype("int64").tolist() == [-(10**17), 10**18]


def test_only_dates_beyond_pythons_years_are_texts() -> None:
    days = pa.array([3_663_478, 0, None], pa.int32()).cast(pa.date32())
    frame = pandas_frame(pa.table({"day": days}))
    assert frame["day"].tolist() == ["12000-04-06", datetime.date(1970, 1, 1), None]
    near = pandas_frame(pa.table({"day": days.slice(1)}))
    assert near["day"].tolist() == [datetime.date(1970, 1, 1), None]


@pytest.mark.parametrize(
    ("kind", "far", "near"),
    [
        (pa.date32(), "12000-04-06", datetime.date(1970, 1, 2)),
        (pa.timestamp("us"), "11983-08-23 09:46:40", datetime.datetime(1970, 1, 1, 0, 0, 0, 1)),
    ],
)
def test_nested_values_beyond_pythons_years_are_texts(
    kind: pa.DataType, far: str, near: Any
) -> None:
    numbers = [3_663_478 if kind == pa.date32() else 316_000_000_000_000_000, 1, None]
    values = pa.array(numbers, pa.int32() if kind == pa.date32() else pa.int64()).view(kind)
    lists = pa.ListArray.from_arrays([0, 2, 3], values)
    maps = pa.MapArray.from_arrays([0, 1, 3], pa.array(["a", "b", "c"]), values)
    structs = pa.StructArray.from_arrays([values, pa.array([0.1, 1, 2], pa.float32())], ["v", "f"])
    assert python_values(values) == [far, near, None]
    assert python_values(lists) == [[far, near], [None]]
    assert python_values(maps) == [{"a": far}, {"b": near, "c": None}]
    assert python_values(structs)[:2] == [{"v": far, "f": 0.1}, {"v": near, "f": 1.0}]
