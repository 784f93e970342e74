"""Values that are given as they are, are stored as they are, or refused by row and column."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import InvalidValueError, SetupError

pytestmark = pytest.mark.spark

COLUMNS = """
    i INT, l BIGINT, d DECIMAL(10, 2), f FLOAT, x DOUBLE, b BOOLEAN, day DATE, t TIMESTAMP_LTZ(3),
    n TIMESTAMP_NTZ(0), a ARRAY<INT>, s STRUCT<y: STRING, z: DECIMAL(4, 1)>, m MAP<STRING, BIGINT>
"""
D = decimal.Decimal

# column, literal, what is told of it; None where it is stored
LITERALS: list[tuple[str, str, str | None]] = [
    ("i", "5.99", "Column `i` is INT, but row 2 has 5.99: its fraction would be cut off."),
    ("i", "5.00", None),
    ("i", "2 * 3.6", "row 2 has 7.2"),
    ("i", "2 * 3.5", None),
    ("i", ":given", "row 2 has 5.7"),
    ("l", "-0.5D", "row 2 has -0.5"),
    ("l", "1e3", None),
    ("d", "1.239", "is DECIMAL(10, 2), but row 2 has 1.239: it would be rounded to 2 digits"),
    ("d", "1.230", None),
    ("d", "'1.239'", "row 2 has '1.239'"),
    ("d", "0.1D + 0.2D", None),
    ("d", "1.239D", "row 2 has 1.239"),
    ("d", "CAST(1.1 AS FLOAT)", None),
    ("f", "1.1", None),
    ("f", "1.1D", None),
    ("f", "16777217", "row 2 has 16777217: it would be rounded"),
    ("f", "1e300D", "row 2 has 1.0E300"),
    ("x", "9007199254740993", "row 2 has 9007199254740993"),
    ("x", "9007199254740992", None),
    ("x", "3.14159265358979323846", None),
    ("x", "12345678901234567891.5", "row 2 has 12345678901234567891.5"),
    ("b", "5", "row 2 has 5: it would become true"),
    ("b", "1", None),
    ("day", "TIMESTAMP '2020-01-01 10:00:00'", "its time of day would be cut off"),
    ("day", "'2020-01-01 10:00:00'", "row 2 has '2020-01-01 10:00:00'"),
    ("day", "TIMESTAMP '2020-01-01 00:00:00'", None),
    ("t", "TIMESTAMP '1960-01-01 10:00:00.123456'", "its second would be cut to 3 digits"),
    ("t", "TIMESTAMP '1960-01-01 10:00:00.123'", None),
    ("n", "TIMESTAMP_NTZ '2020-01-01 10:00:00.5'", "its second would be cut to 0 digits"),
    ("a", "array(1.0, 2.5)", "[1.0, 2.5]: part of it would be cut off"),
    ("a", "array(1.0, NULL)", None),
    ("s", "named_struct('y', 'a', 'z', 1.25)", "{a, 1.25}"),
    ("s", "named_struct('y', 'a', 'z', 1.5)", None),
    ("m", "map('a', 1.5)", "{a -> 1.5}"),
]

FRAMES: list[tuple[Any, str | None]] = [
    (pd.DataFrame({"i": [1.0, None, 5.7]}), "Column `i` is INT, but row 3 has 5.7"),
    (pd.DataFrame({"i": [1.0, None], "d": [0.1 + 0.2, 19.99 * 3]}), None),
    (pa.table({"d": pa.array([D("1.50"), D("1.239")])}), "row 2 has 1.239"),
    (pa.table({"x": pa.array([2**53 + 1])}), "row 1 has 9007199254740993"),
    (pa.table({"t": pa.array([1_001], pa.timestamp("us", "UTC"))}), "cut to 3 digits"),
    (
        pa.table({"n": pa.array([1], pa.timestamp("ns"))}),
        "Column `n` has a value that a timestamp of microseconds would cut",
    ),
    (pa.table({"a": pa.array([[1.0], [1.5]])}), "row 2 has [1.5]"),
]

ROWS: list[tuple[dict[str, Any], str | None]] = [
    ({"i": 5.7}, "Column `i` takes INT; 5.7 of row 2 does not fit: something in it would be cut"),
    ({"i": 5.0, "f": 1.1, "d": D("1.50")}, None),
    ({"i": D("5.5")}, "Decimal('5.5') of row 2"),
    ({"d": D("1.239")}, "of row 2 does not fit."),
    ({"x": 2**53 + 1}, "of row 2 does not fit"),
    ({"f": 1e300}, "1e+300 of row 2"),
    ({"day": datetime.datetime(2020, 1, 1, 5)}, "of row 2 does not fit"),
    ({"t": datetime.datetime(2020, 1, 1, 0, 0, 0, 123456)}, "of row 2 does not fit"),
    ({"a": [1, 2.5]}, "[1, 2.5] of row 2"),
    ({"s": {"y": "a", "z": D("1.25")}}, "of row 2 does not fit"),
    ({"s": {"y": "a", "zz": 1}}, "of row 2 does not fit: something in it would be cut"),
    ({"m": {"a": 1.5}}, "{'a': 1.5} of row 2"),
]


@pytest.fixture(scope="module")
def values(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAIMON_COORDINATOR", "in-process")
        warehouse = tmp_path_factory.mktemp("values")
        with paimon_magics.connect(warehouse, spark=spark) as opened:
            opened.run(f"CREATE TABLE v ({COLUMNS})")
            yield opened


def count(session: Session) -> int:
    snapshots = session.run("SELECT max(total_record_count) AS n FROM v$snapshots").to_arrow()
    return snapshots["n"].to_pylist()[0] or 0


def test_literal_is_stored_exactly_or_refused_by_row_and_column(values: Session) -> None:
    before, stored = count(values), 0
    for column, literal, said in LITERALS:
        text = f"INSERT INTO v ({column}) VALUES (NULL), ({literal})"
        try:
            values.run(text, {"given": 5.7} if ":given" in literal else None)
        except InvalidValueError as error:
            assert said is not None and said in error.message, (literal, str(error))
            assert "store_assignment='ansi'" in error.hint
            assert column not in "ild" or "as CAST(" in error.hint
        else:
            assert said is None, literal
            stored += 2
    assert count(values) == before + stored


def test_frame_is_stored_exactly_or_refused_by_row_and_column(values: Session) -> None:
    for frame, said in FRAMES:
        try:
            values.write(frame, "v")
        except InvalidValueError as error:
            assert said is not None and said in error.message, (frame, str(error))
        else:
            assert said is None, frame


def test_inserted_rows_are_stored_exactly_or_refused(values: Session) -> None:
    for row, said in ROWS:
        try:
            values.insert("v", [{"l": 1}, row])
        except InvalidValueError as error:
            assert said is not None and said in error.message, (row, str(error))
        else:
            assert said is None, row


def test_lossy_partition_value_is_refused(values: Session) -> None:
    values.run("CREATE TABLE p (v INT, n INT) PARTITIONED BY (n); INSERT INTO p VALUES (1, 5)")
    for text in (
        "INSERT OVERWRITE p PARTITION (n = 5.7) SELECT 2",
        "INSERT INTO p PARTITION (n = 5.7) VALUES (2)",
        "TRUNCATE TABLE p PARTITION (n = 5.7)",
        "ALTER TABLE p DROP PARTITION (n = 5.7)",
    ):
        with pytest.raises(InvalidValueError, match=r"INT, but PARTITION has 5\.7: its frac"):
            values.run(text)
    assert values.run("SELECT v FROM p").to_arrow()["v"].to_pylist() == [1]


def test_query_values_are_cast_by_sparks_store_policy(values: Session, spark: SparkSession) -> None:
    values.run("INSERT OVERWRITE v (i, d) SELECT 5.99, 1.239")
    values.write(spark.sql("SELECT 5.7 AS i, 1.239 AS d"), "v")
    actual = values.run("SELECT i, d FROM v").to_arrow().to_pylist()
    assert actual == [{"i": 5, "d": D("1.24")}] * 2
    spark.conf.set("spark.sql.storeAssignmentPolicy", "STRICT")
    try:
        with pytest.raises(InvalidValueError, match=r"`c` is DECIMAL\(3,2\), and .* is STRICT"):
            values.run("INSERT INTO v (i) SELECT 5.99 AS c")
        values.run("INSERT INTO v (l) SELECT 5")
    finally:
        spark.conf.unset("spark.sql.storeAssignmentPolicy")


def test_ansi_setting_casts_given_values_as_spark_does(
    values: Session, spark: SparkSession
) -> None:
    warehouse = Path(values.warehouse)
    values.close()
    with pytest.raises(SetupError, match="`store_assignment` can't be 'ANSI'"):
        paimon_magics.connect(warehouse, spark=spark, store_assignment="ANSI")
    with paimon_magics.connect(warehouse, spark=spark, store_assignment="ansi") as ansi:
        ansi.run("INSERT OVERWRITE v (i, d) VALUES (5.99, 1.239)")
        ansi.write(pd.DataFrame({"i": [5.7], "d": [1.239]}), "v")
        actual = ansi.run("SELECT i, d FROM v").to_arrow().to_pylist()
    assert actual == [{"i": 5, "d": D("1.24")}] * 2
