"""Columns whose type was changed: older files are read as by Java."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from paimon_magics import Session
from paimon_magics.columnar.casts import can_cast
from paimon_magics.errors import JobError, UnsupportedStatementError
from paimon_magics.planning.schemas.type_changes import can_retype
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable
from tests.oracle.java_reader import JavaPaimon

pytestmark = [pytest.mark.spark, pytest.mark.java]

T = datetime.datetime
MOMENTS = [
    T(1969, 12, 31, 23, 59, 59, 999_999),
    T(1970, 1, 1),
    T(2026, 11, 21, 12, 34, 56, 780_000),
    T(1901, 2, 3, 4, 5, 6, 1),
]
INTEGERS = {
    "TINYINT": [127, -128, 0, 1],
    "SMALLINT": [32767, -32768, 0, 200],
    "INT": [2**31 - 1, -(2**31), 0, 70_000],
    "BIGINT": [2**53 + 1, -(2**40), 0, 5_000_000_000],
}
FLOATS = [1.5, -2.5, math.nan, 3e9, -1e20, 0.1, 1e-5, -0.0, 123456789.0, math.inf]
VALUES: dict[str, list[Any]] = {
    **INTEGERS,
    "FLOAT": [1.5, -2.5, math.nan, 3e9, -1e20, 0.10000000149011612, 1e-5, -0.0, math.inf],
    "DOUBLE": FLOATS,
    "DECIMAL(5, 2)": [Decimal("-999.99"), Decimal("0.01"), Decimal("2.50"), Decimal("127.99")],
    "DECIMAL(20, 3)": [Decimal("99999999999999999.999"), Decimal("-0.005"), Decimal("300.500")],
    "DECIMAL(38, 0)": [Decimal("9" * 38), Decimal(-5)],
    "BOOLEAN": [True, False],
    "CHAR(4)": ["ab  ", "äöü😀"],
    "VARCHAR(6)": ["abcdef", "", "ünïcö"],
    "STRING": ["a longer text", "", "ünïcödé 😀"],
    "BINARY(3)": [b"abc", b"\0\1\2"],
    "VARBINARY(4)": [b"abcd", b""],
    "BYTES": [b"some bytes", b""],
    "DATE": [datetime.date(1969, 12, 31), datetime.date(2026, 11, 21), datetime.date(1600, 2, 29)],
    "TIMESTAMP_NTZ(0)": [value.replace(microsecond=0) for value in MOMENTS],
    "TIMESTAMP_NTZ(3)": [value.replace(microsecond=value.microsecond // 1000 * 1000)
                         for value in MOMENTS],
    "TIMESTAMP_NTZ(6)": MOMENTS,
    "TIMESTAMP_NTZ(9)": MOMENTS,
    "TIMESTAMP_LTZ(3)": [T(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=datetime.UTC)],
    "TIMESTAMP_LTZ(6)": [moment.replace(tzinfo=datetime.UTC) for moment in MOMENTS],
}  # fmt: skip
TEXTS: dict[str, list[str]] = {
    **{name: ["12", "-12", "+5", "7.99", ".5", "-0"] for name in INTEGERS},
    **{name: ["1.5", " -2 ", "1e30", "NaN", "0.1", "-Infinity"] for name in ("FLOAT", "DOUBLE")},
    **{name: ["1.005", "-2", "1e2", "99999"] for name in ("DECIMAL(5, 2)", "DECIMAL(20, 3)")},
    "BOOLEAN": ["TRUE", "f", "Yes", "0", "n"],
    "DATE": ["2026-11-21", "2026-1-2 10:00:00", "2026-3", "12", "-1"],
}


def shown(value: Any, target: str) -> Any:
    """A value of Java's as Spark shows it: it pads the texts of CHAR columns when it reads them."""
    return value.ljust(4) if target == "CHAR(4)" and value is not None else value


def type_of(text: str) -> AtomicType:
    statement = parse_statement(f"CREATE TABLE t (c {text})")
    assert isinstance(statement, CreateTable)
    result = statement.columns[0].type
    assert isinstance(result, AtomicType)
    return result


def one_of(text: str, *beginnings: str) -> bool:
    return text.startswith(beginnings)


def cases() -> Iterator[tuple[str, str, list[Any]]]:
    for source, values in VALUES.items():
        for target in VALUES:
            first, second = type_of(source), type_of(target)
            if first == second or not can_retype(first, second, allow_explicit=True):
                continue
            if not can_cast(first, second):
                continue
            taken = values
            if source == "STRING" and target in TEXTS:
                taken = TEXTS[target]
            elif source == "STRING" and target.startswith("DECIMAL"):
                taken = TEXTS["DECIMAL(5, 2)"]
            elif source in ("CHAR(4)", "VARCHAR(6)") and one_of(target, *INTEGERS, *TEXTS, "DEC"):
                continue  # their texts are no numbers
            if source in INTEGERS and target.startswith("TIMESTAMP"):
                taken = [0, -1, 1_767_225_600]
            if target == "DATE" and source.startswith("TIMESTAMP"):
                # Before 1970, Java 2.0 gives the day after; later versions give the day itself.
                taken = [value for value in taken if value.year >= 1970]
            if target.endswith("(9)"):  # nanoseconds in 64 bits begin in 1677
                taken = [value for value in taken if getattr(value, "year", 2000) > 1677]
            if source in ("FLOAT", "DOUBLE") and target.startswith("DECIMAL"):
                taken = [value for value in values if math.isfinite(value)]
            yield source, target, taken


def java_name(text: str) -> str:
    return text.replace("_NTZ", "")


def exact(value: Any) -> Any:
    return value.hex() if isinstance(value, float) else value


def test_every_cast_matches_java(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    every = list(cases())
    columns = ", ".join(f"c{place} {source}" for place, (source, _, _) in enumerate(every))
    session.run(f"CREATE TABLE t (k INT, {columns})")
    height = max(len(values) for _, _, values in every)
    rows = [
        (row, *(values[row] if row < len(values) else None for _, _, values in every))
        for row in range(height)
    ]
    java_paimon.write(warehouse, "default.t", rows)
    types = {f"c{place}": java_name(target) for place, (_, target, _) in enumerate(every)}
    java_paimon.retype(warehouse, "default.t", types)
    expected = sorted(java_paimon.rows(warehouse, "default.t"), key=lambda row: row[0])
    actual = session.run("SELECT * FROM t ORDER BY k").to_arrow().to_pylist()
    wrong = {}
    for place, (source, target, values) in enumerate(every):
        ours = [exact(row[f"c{place}"]) for row in actual]
        theirs = [exact(shown(row[place + 1], target)) for row in expected]
        if ours != theirs:
            wrong[f"{source} -> {target}"] = [
                (value, each, other)
                for value, each, other in zip(values, ours, theirs, strict=False)
                if each != other
            ]
    assert len(every) > 100
    assert wrong == {}, "\n".join(f"{key}: {value}" for key, value in wrong.items())


def test_casts_of_nested_values_match_java(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    session.run(
        "CREATE TABLE t (k INT, a ARRAY<DOUBLE>, s STRUCT<x: BIGINT, y: STRING>, "
        "m MAP<STRING, STRUCT<z: INT>>)"
    )
    rows = [
        (1, [1.5, None, -2.5], {"x": 2**40 + 7, "y": "a"}, [("k", {"z": 5}), ("l", None)]),
        (2, None, {"x": None, "y": None}, []),
        (3, [], None, None),
    ]
    java_paimon.write(warehouse, "default.t", rows)
    types = {"a.element": "STRING", "s.x": "INT", "m.value.z": "DOUBLE"}
    java_paimon.retype(warehouse, "default.t", types)
    actual = session.run("SELECT * FROM t ORDER BY k").to_arrow().to_pylist()
    theirs = java_paimon.rows(warehouse, "default.t")
    ours = [(*list(row.values())[:3], sorted(row["m"] or (), key=repr)) for row in actual]
    assert ours == [(*row[:3], sorted(row[3] or (), key=repr)) for row in sorted(theirs)]


def test_error_for_a_non_numeric_text_names_its_column(session: Session) -> None:
    session.run("CREATE TABLE t (k INT, c STRING)")
    session.run("INSERT INTO t VALUES (1, '12'), (2, 'twelve')")
    session.run("ALTER TABLE t ALTER COLUMN c TYPE INT")
    with pytest.raises(JobError, match=r"`c` changed from STRING to INT.*'twelve'"):
        session.run("SELECT * FROM t").to_arrow()


def test_zone_dependent_cast_is_refused(session: Session) -> None:
    session.run("CREATE TABLE t (k INT, c TIMESTAMP)")
    session.run("INSERT INTO t VALUES (1, TIMESTAMP'2026-01-01 00:00:00')")
    session.run("ALTER TABLE t ALTER COLUMN c TYPE STRING")
    with pytest.raises(UnsupportedStatementError, match="`c` is of another type"):
        session.run("SELECT * FROM t")
