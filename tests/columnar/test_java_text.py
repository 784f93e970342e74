"""Values as Java prints them; the texts are those that Java 17 and later give."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from paimon_magics.columnar.java_text import (
    braced,
    bracketed,
    cast_text,
    java_float,
    java_text,
    stored_type,
    texts_map,
)
from paimon_magics.statements.data_types import ArrayType, AtomicType

MOMENT = datetime.datetime(2024, 2, 29, 12, 30)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-1.25e10, "-1.25E10"),
        (123456789.125, "1.23456789125E8"),
        (1 / 3, "0.3333333333333333"),
        (5e-324, "4.9E-324"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_doubles_are_printed_as_in_java(value: float, text: str) -> None:
    assert java_float(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1.1, "1.1"), (1e10, "1.0E10"), (16777216.0, "1.6777216E7"), (0.5, "0.5")]
)
def test_floats_are_printed_as_in_java(value: float, text: str) -> None:
    assert java_float(value, single=True) == text


@pytest.mark.parametrize(
    ("value", "data_type", "text"),
    [
        (True, pa.bool_(), "true"),
        (-5, pa.int8(), "-5"),
        ("ünï", pa.string(), "ünï"),
        (b"\x01\xff", pa.binary(), "0x01ff"),
        (Decimal("0.000000001"), pa.decimal128(38, 9), "0.000000001"),
        (Decimal("-1.50"), pa.decimal128(9, 2), "-1.50"),
        (datetime.date(1960, 1, 1), pa.date32(), "-3653"),
        (datetime.time(0, 0, 1), pa.time32("ms"), "1000"),
        (MOMENT, pa.timestamp("ms"), "2024-02-29T12:30"),
        (MOMENT.replace(second=1), pa.timestamp("us"), "2024-02-29T12:30:01"),
        (MOMENT.replace(microsecond=120000), pa.timestamp("us"), "2024-02-29T12:30:00.120"),
        (MOMENT.replace(microsecond=123456), pa.timestamp("us"), "2024-02-29T12:30:00.123456"),
        (MOMENT.replace(microsecond=1000), pa.timestamp("ns"), "2024-02-29T12:30:00.001"),
        (MOMENT.replace(microsecond=10), pa.timestamp("ns"), "2024-02-29T12:30:00.000010"),
        (None, pa.null(), None),
        (None, pa.timestamp("us"), None),
        (None, pa.float64(), None),
    ],
)
def test_values_are_printed_as_in_java(
    value: Any, data_type: pa.DataType, text: str | None
) -> None:
    assert java_text(pa.array([value], type=data_type)).to_pylist() == [text]


@pytest.mark.parametrize(
    ("value", "name", "parameters", "text"),
    [
        (datetime.date(2024, 1, 2), "DATE", (), "2024-01-02"),
        (MOMENT, "TIMESTAMP", (0,), "2024-02-29 12:30:00"),
        (MOMENT, "TIMESTAMP", (3,), "2024-02-29 12:30:00.000"),
        (MOMENT.replace(microsecond=5), "TIMESTAMP", (6,), "2024-02-29 12:30:00.000005"),
        (datetime.time(1, 2, 3, 4000), "TIME", (3,), "01:02:03.004"),
        (b"abc", "BYTES", (), "abc"),
        (7, "INT", (), "7"),
        (1e10, "DOUBLE", (), "1.0E10"),
    ],
)
def test_values_are_cast_to_text_as_in_paimon(
    value: Any, name: str, parameters: tuple[int, ...], text: str
) -> None:
    data_type = AtomicType(name, parameters)
    values = pa.array([value, None], type=stored_type(data_type))
    assert cast_text(values, data_type).to_pylist() == [text, None]


def test_rows_are_printed_with_null_for_missing_values() -> None:
    k, v = pa.array(["1", "2"]), pa.array(["a", None])
    assert bracketed([k, v]).to_pylist() == ["[1, a]", "[2, null]"]
    assert braced([k]).to_pylist() == ["{1}", "{2}"]
    assert texts_map({"v": v, "k": k}).to_pylist() == ["{k=1, v=a}", "{k=2, v=null}"]


def test_types_without_statistics_have_no_stored_type() -> None:
    assert stored_type(ArrayType(AtomicType("INT"))) == pa.null()
    assert stored_type(None) == pa.null()
