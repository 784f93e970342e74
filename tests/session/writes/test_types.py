"""Every type of Paimon's: what a statement says is what we, pypaimon and Java read back.

Each case is a type with SQL expressions and the Python values that must be stored for them.
"""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import InvalidValueError
from paimon_magics.statements.statement import TableName
from tests.oracle.java_reader import JavaPaimon
from tests.sampling import only_in_soak

pytestmark = [pytest.mark.spark, pytest.mark.java]

D = datetime.date
T = datetime.datetime
UTC = datetime.UTC

Cases = list[tuple[str, Any]]

ATOMIC: dict[str, Cases] = {
    "BOOLEAN": [("true", True), ("false", False)],
    "TINYINT": [("127", 127), ("-128", -128), ("0", 0)],
    "SMALLINT": [("32767", 32767), ("-32768", -32768)],
    "INT": [("2147483647", 2**31 - 1), ("-2147483648", -(2**31))],
    "BIGINT": [("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63))],
    "FLOAT": [
        ("CAST('NaN' AS FLOAT)", math.nan),
        ("CAST('-Infinity' AS FLOAT)", -math.inf),
        ("CAST('-0.0' AS FLOAT)", -0.0),
        ("CAST('1.4E-45' AS FLOAT)", 2**-149),
        ("CAST('3.4028235E38' AS FLOAT)", 3.4028234663852886e38),
    ],
    "DOUBLE": [
        ("CAST('NaN' AS DOUBLE)", math.nan),
        ("CAST('Infinity' AS DOUBLE)", math.inf),
        ("CAST('-0.0' AS DOUBLE)", -0.0),
        ("CAST('4.9E-324' AS DOUBLE)", 5e-324),
        ("CAST('1.7976931348623157E308' AS DOUBLE)", 1.7976931348623157e308),
    ],
    "DECIMAL(5, 2)": [("-999.99", Decimal("-999.99")), ("0.01", Decimal("0.01"))],
    "DECIMAL(18, 0)": [("999999999999999999", Decimal(10**18 - 1))],
    "DECIMAL(19, 19)": [("0.0000000000000000001BD", Decimal("1e-19"))],
    "DECIMAL(38, 18)": [
        (f"{sign}99999999999999999999.999999999999999999BD", Decimal(f"{sign}{'9' * 38}e-18"))
        for sign in ("", "-")
    ],
    "CHAR(5)": [("'ab'", "ab   "), ("'äöüßé'", "äöüßé"), ("''", "     "), ("'x        '", "x    ")],
    "VARCHAR(5)": [("'ab'", "ab"), ("''", ""), ("'😀😀😀😀😀'", "😀" * 5), ("'ab   '", "ab   ")],
    "STRING": [
        ("''", ""),
        ("'it''s \"quoted\"'", 'it\'s "quoted"'),
        ("'\\u0000\\t\\n'", "\0\t\n"),
        ("repeat('long ', 1000)", "long " * 1000),
    ],
    "BINARY(3)": [("X'00FF80'", b"\x00\xff\x80")],
    "VARBINARY(4)": [("X'00FF'", b"\x00\xff"), ("X''", b"")],
    "BYTES": [("X''", b""), ("X'00'", b"\0"), ("CAST(repeat('ab', 500) AS BINARY)", b"ab" * 500)],
    "DATE": [
        ("DATE'1970-01-01'", D(1970, 1, 1)),
        ("DATE'1969-12-31'", D(1969, 12, 31)),
        ("DATE'0001-01-01'", D(1, 1, 1)),
        ("DATE'1582-10-10'", D(1582, 10, 10)),  # a day that the Julian calendar did not have
        ("DATE'9999-12-31'", D(9999, 12, 31)),
    ],
    # Digits that the type has no room for are cut downwards, before 1970 too.
    "TIMESTAMP_NTZ(0)": [
        ("TIMESTAMP_NTZ'1969-12-31 23:59:59.999999'", T(1969, 12, 31, 23, 59, 59)),
        ("TIMESTAMP_NTZ'2026-11-21 12:34:56.7'", T(2026, 11, 21, 12, 34, 56)),
    ],
    "TIMESTAMP_NTZ(3)": [
        ("TIMESTAMP_NTZ'1969-12-31 23:59:59.999999'", T(1969, 12, 31, 23, 59, 59, 999_000)),
        ("TIMESTAMP_NTZ'1901-02-03 04:05:06.0001'", T(1901, 2, 3, 4, 5, 6)),
    ],
    "TIMESTAMP_NTZ": [
        ("TIMESTAMP_NTZ'1969-12-31 23:59:59.999999'", T(1969, 12, 31, 23, 59, 59, 999_999)),
        ("TIMESTAMP_NTZ'0001-01-01 00:00:00.000001'", T(1, 1, 1, 0, 0, 0, 1)),
        ("TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'", T(9999, 12, 31, 23, 59, 59, 999_999)),
        ("TIMESTAMP_NTZ'2026-03-08 02:30:00'", T(2026, 3, 8, 2, 30)),  # skipped in New York
    ],
    "TIMESTAMP_NTZ(9)": [
        ("TIMESTAMP_NTZ'1969-12-31 23:59:59.999999'", T(1969, 12, 31, 23, 59, 59, 999_999)),
        ("TIMESTAMP_NTZ'1700-01-01 00:00:00.000001'", T(1700, 1, 1, 0, 0, 0, 1)),
    ],
    "TIMESTAMP_LTZ(0)": [
        ("TIMESTAMP'1969-12-31 23:59:59.5 UTC'", T(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ],
    "TIMESTAMP_LTZ(3)": [
        (
            "TIMESTAMP'1969-12-31 23:59:59.999999 UTC'",
            T(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
        ),
    ],
    "TIMESTAMP": [
        (
            "TIMESTAMP'1969-12-31 23:59:59.999999 UTC'",
            T(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        ),
        ("TIMESTAMP'1601-01-01 00:00:00.000001 UTC'", T(1601, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        # The hour that New York had twice; without an offset it is the first.
        ("TIMESTAMP'2026-11-01 01:30:00'", T(2026, 11, 1, 5, 30, tzinfo=UTC)),
        ("TIMESTAMP'2026-11-01 01:30:00-05:00'", T(2026, 11, 1, 6, 30, tzinfo=UTC)),
    ],
    "TIMESTAMP_LTZ(9)": [
        ("TIMESTAMP'1969-12-31 23:59:59.999999 UTC'", T(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
    ],
}

NESTED: dict[str, Cases] = {
    "ARRAY<INT>": [
        ("array(1, NULL, -3)", [1, None, -3]),
        ("CAST(array() AS ARRAY<INT>)", []),
        ("CAST(array(NULL) AS ARRAY<INT>)", [None]),
    ],
    "ARRAY<STRING NOT NULL>": [("array('a', '')", ["a", ""])],
    "ARRAY<DECIMAL(38, 18)>": [("array(1.5, NULL)", [Decimal("1.5"), None])],
    "ARRAY<TIMESTAMP_NTZ(3)>": [
        (
            "array(TIMESTAMP_NTZ'1969-12-31 23:59:59.999999', NULL)",
            [T(1969, 12, 31, 23, 59, 59, 999_000), None],
        ),
    ],
    "ARRAY<TIMESTAMP_LTZ(0)>": [
        ("array(TIMESTAMP'1969-12-31 23:59:59.5 UTC')", [T(1969, 12, 31, 23, 59, 59, tzinfo=UTC)]),
    ],
    "ARRAY<ARRAY<BINARY(2)>>": [
        ("array(array(X'0102', NULL), NULL, array())", [[b"\1\2", None], None, []]),
    ],
    "MAP<STRING, INT>": [
        ("map('a', 1, '', NULL)", [("a", 1), ("", None)]),
        ("CAST(map() AS MAP<STRING, INT>)", []),
    ],
    "MAP<DATE, ARRAY<STRING>>": [
        ("map(DATE'1969-12-31', array('x', NULL))", [(D(1969, 12, 31), ["x", None])]),
    ],
    "STRUCT<a: INT, b: STRING>": [
        ("named_struct('a', 1, 'b', 'x')", {"a": 1, "b": "x"}),
        ("named_struct('a', NULL, 'b', NULL)", {"a": None, "b": None}),
    ],
    "STRUCT<at: TIMESTAMP, `odd name`: STRUCT<list: ARRAY<MAP<STRING, DECIMAL(20, 3)>>>>": [
        (
            "named_struct('at', TIMESTAMP'1950-06-01 00:00:00.000001 UTC', 'odd name', "
            "named_struct('list', array(map('k', 0.001BD), NULL, map('l', NULL))))",
            {
                "at": T(1950, 6, 1, 0, 0, 0, 1, tzinfo=UTC),
                "odd name": {"list": [[("k", Decimal("0.001"))], None, [("l", None)]]},
            },
        ),
        (
            "named_struct('at', NULL, 'odd name', named_struct('list', NULL))",
            {"at": None, "odd name": {"list": None}},
        ),
        ("named_struct('at', NULL, 'odd name', NULL)", {"at": None, "odd name": None}),
    ],
    "ARRAY<STRUCT<x: DOUBLE, y: MAP<INT, STRUCT<z: BOOLEAN>>>>": [
        (
            "array(named_struct('x', CAST('NaN' AS DOUBLE), 'y', map(1, named_struct('z', true), "
            "2, NULL)), NULL)",
            [{"x": math.nan, "y": [(1, {"z": True}), (2, None)]}, None],
        ),
    ],
}


@pytest.fixture(autouse=True)
def new_york(session: Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A session whose zone is not UTC, and has summer time; the JVM's and this process's zones are
    others still."""
    zones = session.spark._jvm.java.util.TimeZone  # type: ignore[union-attr]
    jvm_zone = zones.getDefault()
    before = session.spark.conf.get("spark.sql.session.timeZone")
    session.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    zones.setDefault(zones.getTimeZone("Asia/Kolkata"))
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
    zones.setDefault(jvm_zone)
    session.spark.conf.set("spark.sql.session.timeZone", before)


def rows_of(cases: dict[str, Cases]) -> list[list[tuple[str, Any]]]:
    """Rows of (SQL, value) that begin with a key; the last one is NULL but for the key."""
    count = max(map(len, cases.values())) + 1
    columns = [[*values, *[("NULL", None)] * (count - len(values))] for values in cases.values()]
    return [[(str(key), key), *row] for key, row in enumerate(zip(*columns, strict=True))]


def exact(value: Any) -> Any:
    """A value in a form in which equal means the same: NaN, -0.0, instants, maps without order."""
    match value:
        case float():
            return value.hex()
        case datetime.datetime():
            plain = value.to_pydatetime() if hasattr(value, "to_pydatetime") else value
            return plain.astimezone(UTC) if plain.tzinfo is not None else plain
        case dict():
            return {key: exact(item) for key, item in value.items()}
        case list() if value and all(isinstance(item, tuple) for item in value):
            return dict((key, exact(item)) for key, item in value)
        case list():
            return [exact(item) for item in value]
        case _:
            return value


def by_key(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(map(exact, row)) for row in rows), key=lambda row: row[0])


def read_by_everyone(
    session: Session, java: JavaPaimon, warehouse: Path, name: str
) -> dict[str, list[tuple[Any, ...]]]:
    """The table's rows as our session, plain pypaimon and Java read them."""
    ours = session.run(f"SELECT * FROM {name}").to_arrow().to_pylist()
    builder = session.catalog.load(TableName(name, "default")).paimon.new_read_builder()
    theirs = builder.new_read().to_arrow(builder.new_scan().plan().splits()).to_pylist()
    return {
        "session": by_key([tuple(row.values()) for row in ours]),
        "pypaimon": by_key([tuple(row.values()) for row in theirs]),
        "java": by_key(java.rows(warehouse, f"default.{name}")),
    }


@pytest.fixture
def session(spark: SparkSession, warehouse: Path) -> Iterator[Session]:
    """A session that cuts digits of a second, as a query's are cut."""
    with paimon_magics.connect(warehouse, spark=spark, store_assignment="ansi") as opened:
        yield opened


# Each type by both is what the table with a primary key below holds.
@pytest.mark.parametrize(
    ("form", "cases"),
    [
        pytest.param("VALUES", NESTED, id="VALUES-nested"),
        pytest.param("SELECT", ATOMIC, id="SELECT-atomic", marks=pytest.mark.cluster),
        pytest.param("VALUES", ATOMIC, id="VALUES-atomic", marks=pytest.mark.soak),
        pytest.param(
            "SELECT", NESTED, id="SELECT-nested", marks=[pytest.mark.cluster, pytest.mark.soak]
        ),
    ],
)
def test_an_append_table_holds_every_type(
    session: Session,
    java_paimon: JavaPaimon,
    warehouse: Path,
    cases: dict[str, Cases],
    form: str,
) -> None:
    rows = rows_of(cases)
    columns = ", ".join(f"c{i} {text}" for i, text in enumerate(cases))
    session.run(f"CREATE TABLE t (k INT, {columns})")
    values = ", ".join(f"({', '.join(sql for sql, _ in row)})" for row in rows)
    source = f"VALUES {values}" if form == "VALUES" else f"SELECT * FROM (VALUES {values})"
    session.run(f"INSERT INTO t {source}")
    expected = by_key([tuple(value for _, value in row) for row in rows])
    for reader, found in read_by_everyone(session, java_paimon, warehouse, "t").items():
        assert found == expected, reader


@pytest.mark.parametrize("cases", [ATOMIC, NESTED], ids=["atomic", "nested"])
def test_a_primary_key_table_holds_every_type_merged_or_not(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, cases: dict[str, Cases]
) -> None:
    rows = rows_of(cases)
    columns = ", ".join(f"c{i} {text}" for i, text in enumerate(cases))
    session.run(
        f"CREATE TABLE t (k INT NOT NULL, {columns}) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2')"
    )
    values = [f"({', '.join(sql for sql, _ in row)})" for row in rows]
    expected = by_key([tuple(value for _, value in row) for row in rows])
    session.run(f"INSERT INTO t VALUES {', '.join(values)}")
    for reader, found in read_by_everyone(session, java_paimon, warehouse, "t").items():
        assert found == expected, reader
    # The values of each key go one row up, by a job; then back: every reader has to merge.
    keys = [str(key) for key in range(len(rows))]
    moved = [
        f"({key}, {row.split(', ', 1)[1]}"
        for key, row in zip([*keys[1:], "0"], values, strict=True)
    ]
    session.run(f"INSERT INTO t SELECT * FROM (VALUES {', '.join(moved)})")
    session.run(f"INSERT INTO t SELECT * FROM (VALUES {', '.join(values)})")
    for reader, found in read_by_everyone(session, java_paimon, warehouse, "t").items():
        assert found == expected, reader


@pytest.mark.parametrize("cases", only_in_soak({"atomic": ATOMIC, "nested": NESTED}, ["atomic"]))
def test_insert_select_copies_a_table_of_every_type(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, cases: dict[str, Cases]
) -> None:
    rows = rows_of(cases)
    columns = ", ".join(f"c{i} {text}" for i, text in enumerate(cases))
    options = "'primary-key' = 'k', 'bucket' = '3'"
    session.run(
        f"CREATE TABLE source (k INT NOT NULL, {columns}) TBLPROPERTIES ({options}); "
        f"CREATE TABLE t (k INT NOT NULL, {columns})"
    )
    values = ", ".join(f"({', '.join(sql for sql, _ in row)})" for row in rows)
    session.run(f"INSERT INTO source VALUES {values}; INSERT INTO t SELECT * FROM source")
    expected = by_key([tuple(value for _, value in row) for row in rows])
    for reader, found in read_by_everyone(session, java_paimon, warehouse, "t").items():
        assert found == expected, reader


@pytest.mark.parametrize(
    ("text", "good", "stored", "bad", "place"),
    [
        ("ARRAY<INT NOT NULL>", "array(1)", [1], "array(1, NULL)", "an element of column `c`"),
        (
            "STRUCT<a: INT NOT NULL, b: INT>",
            "named_struct('a', 1, 'b', NULL)",
            {"a": 1, "b": None},
            "named_struct('a', NULL, 'b', 1)",
            "`a` of column `c`",
        ),
        (
            "MAP<STRING, INT NOT NULL>",
            "map('a', 1)",
            [("a", 1)],
            "map('a', NULL)",
            "a value of column `c`",
        ),
        ("ARRAY<VARCHAR(2)>", "array('ab  ', NULL)", ["ab", None], "array('abc')", "VARCHAR(2)"),
        ("ARRAY<CHAR(3)>", "array('ab', NULL)", ["ab ", None], "array('abcd')", "CHAR(3)"),
        (
            "MAP<CHAR(2), STRUCT<x: ARRAY<VARCHAR(1)>>>",
            "map('a', named_struct('x', array('b')), 'c', NULL)",
            [("a ", {"x": ["b"]}), ("c ", None)],
            "map('a', named_struct('x', array('bb')))",
            "an element of `x` of a value of column `c`",
        ),
    ],
)
@pytest.mark.parametrize("form", ["VALUES {}", "SELECT * FROM (VALUES {})"])
def test_invalid_nested_value_is_refused_with_its_place(
    session: Session,
    java_paimon: JavaPaimon,
    warehouse: Path,
    text: str,
    good: str,
    stored: Any,
    bad: str,
    place: str,
    form: str,
) -> None:
    session.run(f"CREATE TABLE t (k INT, c {text})")
    with pytest.raises(InvalidValueError) as caught:
        session.run(f"INSERT INTO t {form.format(f'(0, {good}), (1, {bad})')}")
    assert place.lower() in caught.value.message.lower()
    session.run(f"INSERT INTO t {form.format(f'(1, {good}), (2, NULL)')}")
    rows = read_by_everyone(session, java_paimon, warehouse, "t")
    for reader, found in rows.items():
        assert found == by_key([(1, stored), (2, None)]), reader
