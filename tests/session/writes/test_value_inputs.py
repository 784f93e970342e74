"""Python's values reach a column exactly, or are refused by row and column, at every door."""

from __future__ import annotations

import datetime
import math
from collections import namedtuple
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row

from paimon_magics import Session
from paimon_magics.errors import InvalidValueError
from paimon_magics.session.parameters import bind
from paimon_magics.session.python_frames import arrow_of
from paimon_magics.session.value_inputs import inferred_array

DAY, AT, UTC = datetime.date, datetime.datetime, datetime.UTC
Place = namedtuple("Place", "b a")
NANOSECONDS = pd.Timestamp("2026-01-02 03:04:05.000000001")

# Values of one column, and what the error says of them.
REFUSED: list[tuple[list[Any], str]] = [
    ([DAY(2026, 1, 2), AT(2026, 1, 2, 3)], "date (row 1: datetime.date(2026, 1, 2)), datetime"),
    ([AT(2026, 1, 2), AT(2026, 1, 2, tzinfo=UTC)], "datetime with a zone (row 2"),
    ([None, NANOSECONDS], "of row 2: its nanoseconds would be cut off"),
    ([np.datetime64("2026-01-02T00:00:00.000000001")], "of row 1: its nanoseconds"),
    ([pd.Timedelta(1, "ns")], "of row 1: its nanoseconds"),
    (
        [AT(2026, 10, 25, 1, 15), AT(2026, 10, 25, 1, 15, fold=1)],
        "of row 2: it is the second of two",
    ),
    ([[{"x": AT(2026, 10, 25, 1, 15, fold=1)}]], "of row 1: it is the second of two"),
    ([np.datetime64("12000-01-01", "s")], "its year is beyond 9999"),
    ([True, 1.5], "bool (row 1: True), float (row 2: 1.5)"),
    ([1, True], "int (row 1: 1), bool (row 2: True)"),
    (["a", b"a"], "str (row 1: 'a'), bytes (row 2: b'a')"),
    (["a", 1], "no common type"),
    ([datetime.time(1, tzinfo=UTC)], "its zone would be lost"),
    ([Decimal("NaN")], "a DECIMAL has no such value"),
    ([Decimal("1.5"), 2.5], "no common type"),
    ([1, 2**70], "1180591620717411303424 of row 2: it has more than the 64 bits"),
    ([2**53 + 1, 0.5], "no common type"),
    ([[1], [True]], "column `c[]` have no common type: int (row 1: 1), bool (row 2: True)"),
    ([[DAY(2026, 1, 2), AT(2026, 1, 2, 3)]], "column `c[]`"),
    ([{"x": 1}, {"x": "a"}], "column `c.x`"),
    ([{1: 2}], "Row 1 in column `c` has the key 1, which is not a string"),
    (["a", "b\ud800"], "'b\\ud800' of row 2: it has half of a character (U+D800)"),
    ([["a"], ["\udfff"]], "of row 2: it has half of a character (U+DFFF)"),
    ([{"x": "\ud800"}], "of row 1: it has half of a character"),
    ([{"\ud800": 1}], "Row 1 in column `c` has the key '\\ud800' with half of a character"),
    ([object()], "no common type"),
]

EXACT: list[tuple[list[Any], pa.DataType, list[Any]]] = [
    ([1, 2.5], pa.float64(), [1.0, 2.5]),
    ([1, Decimal("2.5")], pa.decimal128(2, 1), [Decimal("1.0"), Decimal("2.5")]),
    ([np.int8(1), 2], pa.int64(), [1, 2]),
    ([np.True_, None, pd.NA], pa.bool_(), [True, None, None]),
    ([pd.NaT, AT(2026, 1, 2)], pa.timestamp("us"), [None, AT(2026, 1, 2)]),
    ([pd.Timestamp("2026-01-02")], pa.timestamp("us"), [AT(2026, 1, 2)]),
    ([np.datetime64("2026-01-02")], pa.date32(), [DAY(2026, 1, 2)]),
    (["a", math.nan], pa.string(), ["a", None]),
    ([Decimal("1"), math.nan], pa.decimal128(1), [Decimal("1"), None]),
    ([memoryview(b"a"), bytearray(b"b")], pa.binary(), [b"a", b"b"]),
    ([Row(x=1, y="a")], pa.struct({"x": pa.int64(), "y": pa.string()}), [{"x": 1, "y": "a"}]),
    ([np.array([1, 2]), (3,)], pa.list_(pa.int64()), [[1, 2], [3]]),
    ([None], pa.null(), [None]),
]


@pytest.mark.parametrize(("values", "said"), REFUSED, ids=range(len(REFUSED)))
def test_values_without_an_exact_type_are_refused_by_row(values: list[Any], said: str) -> None:
    rows = [{"c": value} for value in values]
    for convert in (lambda: inferred_array(values, "c"), lambda: arrow_of(rows)):
        with pytest.raises(InvalidValueError) as error:
            convert()
        assert said in error.value.message and "`c" in error.value.message
        assert "Nothing was written" in error.value.hint
    if pd.isna(values[0]) is True:
        return  # pandas takes such a Decimal for a missing value
    with pytest.raises(InvalidValueError, match="`c"):
        arrow_of(pd.DataFrame({"c": pd.Series(values, dtype=object)}))


@pytest.mark.parametrize(("values", "kind", "stored"), EXACT, ids=range(len(EXACT)))
def test_values_of_a_common_type_are_kept_exactly(
    values: list[Any], kind: pa.DataType, stored: list[Any]
) -> None:
    result = inferred_array(values, "c")
    assert result.type == kind and result.to_pylist() == stored


def test_nan_is_a_number_in_rows_and_missing_in_a_pandas_frame() -> None:
    (number, missing) = arrow_of([{"c": math.nan}, {"c": None}])["c"].to_pylist()
    assert math.isnan(number) and missing is None
    assert arrow_of(pd.DataFrame({"c": [1.0, math.nan]}))["c"].to_pylist() == [1.0, None]


def test_a_category_of_mixed_values_is_refused() -> None:
    series = pd.Series([DAY(2026, 1, 2), AT(2026, 1, 2, 3)], dtype=object).astype("category")
    with pytest.raises(InvalidValueError, match="column `c` have no common type"):
        arrow_of(pd.DataFrame({"c": series}))


BOUND: list[tuple[Any, str | object]] = [
    (2**70, Decimal(2**70)),
    ([1, 2.5], [1.0, 2.5]),
    ((1, 2), [1, 2]),
    (np.int64(3), 3),
    (pd.NA, None),
    (10**38, "which no DECIMAL of 38 digits holds"),
    (Decimal("NaN"), "which no DECIMAL of 38 digits holds"),
    (Decimal("1e-39"), "which no DECIMAL of 38 digits holds"),
    (NANOSECONDS, "its nanoseconds would be cut off"),
    (np.datetime64("12000-01-01", "s"), "its year is beyond 9999"),
    (datetime.time(1, tzinfo=UTC), "its zone would be lost"),
    ([], "an empty list, which has no type"),
    ([1, None], "a list with None in it"),
    ([1, "a"], "integer (1) and text ('a')"),
    ([1, Decimal("2.5")], "different numbers of digits"),
    ([True, 1.5], "boolean (True) and float (1.5)"),
    ({"a": 1}, "a dict, which can't be bound"),
]


@pytest.mark.parametrize(("value", "expected"), BOUND, ids=range(len(BOUND)))
def test_a_parameter_is_bound_exactly_or_refused(value: Any, expected: str | object) -> None:
    def convert() -> object:
        return bind(["p"], {"p": value}, "SELECT :p", "UTC")["p"]

    if not isinstance(expected, str):
        assert convert() == expected
        return
    with pytest.raises(InvalidValueError) as error:
        convert()
    assert expected in error.value.message and "`:p`" in error.value.message and error.value.hint
    assert ":name" not in error.value.hint


@pytest.mark.spark
def test_bound_numbers_are_the_same_in_spark(session: Session) -> None:
    values = {"a": 2**70, "b": [1, 2.5], "c": [1, 2**40]}
    (row,) = session.run("SELECT :a AS a, :b AS b, :c AS c", values).to_pylist()
    assert row == {"a": Decimal(2**70), "b": [1.0, 2.5], "c": [1, 2**40]}


Insert = Callable[[Session, str, Any], object]
DOORS: dict[str, Insert] = {
    "insert": lambda s, name, rows: s.insert(name, rows, wait="visible"),
    "write": lambda s, name, rows: s.write(rows, name),
    "merge": lambda s, name, rows: (
        s.merge(rows, name, on="t.a = s.a").when_not_matched_insert().run()
    ),
}


@pytest.mark.spark
@pytest.mark.parametrize("log", ["true", "false"])
@pytest.mark.parametrize("door", DOORS)
def test_named_rows_are_written_by_column_name(coordinated: Session, door: str, log: str) -> None:
    session = coordinated
    session.run("DROP TABLE IF EXISTS t")
    session.run(f"CREATE TABLE t (a INT, b INT) TBLPROPERTIES ('auto_batch_load' = '{log}')")
    for rows in ([Place(1, 2)], [Row(b=3, a=4)], [{"b": 5, "a": 6}]):
        DOORS[door](session, "t", rows)
    session.write(session.run("SELECT 7 AS b, 8 AS a").dataframe.collect(), "t")
    result = session.run("SELECT a, b FROM t ORDER BY a").to_arrow().to_pylist()
    assert [tuple(row.values()) for row in result] == [(2, 1), (4, 3), (6, 5), (8, 7)]


MISFITS: list[tuple[str, Any, str]] = [
    ("c STRING", [(b"x",)], "b'x' of row 1 does not fit"),
    ("c BINARY", [("x",)], "'x' of row 1 does not fit"),
    ("c ARRAY<STRING>", [("ab",)], "'ab' of row 1 does not fit"),
    ("c MAP<INT, INT>", [([(1, 2), (1, 3)],)], "the key 1 comes twice"),
    ("c DATE", [(5,)], "5 of row 1 does not fit"),
    ("c INT", [(True,)], "True of row 1 does not fit"),
    ("c TIMESTAMP", [(NANOSECONDS,)], "its nanoseconds would be cut off"),
    ("c TIMESTAMP", [(np.datetime64("12000-01-01", "s"),)], "its year is beyond 9999"),
    ("c INT", [{}], "The rows have no columns"),
    ("c INT", [{1: 2}], "has the key 1"),
    ("c INT, d INT", [(1, 2), Row(d=1, c=2)], "Row 2 is not a tuple of 2 values"),
    ("c INT", [Row("x", "x")(1, 2)], "no names of their own"),
    ("c DATE", pa.table({"c": [AT(2026, 1, 2, 3)]}), "time of day"),
    ("c INT", pd.DataFrame({"c": pd.Series([1, "x"], dtype=object)}), "no common type"),
    ("c INT", pd.DataFrame([[1, 2]], columns=["c", "c"]), "several columns named `c`"),
]


@pytest.mark.spark
@pytest.mark.parametrize("log", ["true", "false"])
def test_values_not_fitting_are_refused_before_anything_is_stored(
    coordinated: Session, log: str
) -> None:
    session = coordinated
    session.run("DROP TABLE IF EXISTS t")
    for columns, rows, said in MISFITS:
        session.run(f"CREATE TABLE t ({columns}) TBLPROPERTIES ('auto_batch_load' = '{log}')")
        with pytest.raises(InvalidValueError) as error:
            session.insert("t", rows)
        assert said in str(error.value), (columns, str(error.value))
        if log == "true":
            session.flush("t")
        assert session.run("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 0}]
        session.run("DROP TABLE t")


@pytest.mark.spark
def test_merge_stores_python_rows_exactly_or_refuses_them(session: Session) -> None:
    session.run("CREATE TABLE t (id INT, v INT, w INT) TBLPROPERTIES ('primary-key' = 'id')")
    session.run("INSERT INTO t VALUES (1, 1, 1)")
    rows = [{"id": 1, "v": 2, "w": 2}, {"id": 2, "v": 1.5, "w": 3}]
    merge = session.merge(rows, "t", on="id").when_not_matched_insert()
    for ask in (merge.run, merge.preview):
        with pytest.raises(InvalidValueError, match=r"`v` is INT, but row 2 has 1\.5"):
            ask()
    assigned = session.merge(rows, "t", on="id").when_matched_update({"w": "s.`v`"})
    with pytest.raises(InvalidValueError, match=r"`w` is INT, but row 2 has 1\.5"):
        assigned.run()
    computed = session.merge(rows, "t", on="id").when_matched_update({"w": "round(s.v)"}).run()
    assert computed.rows_updated == 1
    assert session.run("SELECT * FROM t").to_pylist() == [{"id": 1, "v": 1, "w": 2}]


@pytest.mark.spark
def test_duplicate_column_names_are_refused_instead_of_lost(session: Session) -> None:
    twice = session.run("SELECT 1 AS a, 2 AS a")
    for convert in (twice.to_pylist, twice.to_polars):
        with pytest.raises(InvalidValueError, match="several columns named `a`") as error:
            convert()
        assert "AS a_id" in error.value.hint
    assert list(twice.to_pandas().columns) == ["a", "a"]


FAR = "TIMESTAMP_NTZ '+12000-01-01 00:00:00', DATE '+12000-01-01'"


@pytest.mark.spark
@pytest.mark.parametrize("source", [f"VALUES ({FAR})", f"SELECT {FAR} FROM range(2)"])
def test_years_beyond_python_range_are_stored(session: Session, source: str) -> None:
    session.run("CREATE TABLE t (at TIMESTAMP_NTZ, day DATE)")
    session.run(f"INSERT INTO t {source}")
    session.write(pd.DataFrame({"at": np.array(["12000-01-01"], dtype="datetime64[s]")}), "t")
    result = session.run("SELECT DISTINCT CAST(at AS STRING) AS at FROM t WHERE at > '9999-12-31'")
    assert result.to_pylist() == [{"at": "+12000-01-01 00:00:00"}]
    assert session.run("SELECT at FROM t WHERE day > DATE '2026-01-01'").to_arrow().num_rows > 0
    assert session.run("SELECT at FROM t WHERE day < DATE '2026-01-01'").to_arrow().num_rows == 0
