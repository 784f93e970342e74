"""Rows that Java wrote in each format are read right in any zone, by raw scan and merge read.

The session, the JVM and this process are in three zones, none of them UTC; see `new_york`.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from paimon_magics import Session
from paimon_magics.errors import PaimonMagicsError
from tests.oracle.java_reader import JavaPaimon
from tests.session.writes.test_types import ATOMIC, NESTED, by_key, new_york, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.java]

# Spark and its tasks read all files, however few they are.
SETTINGS = {"local_rows_max": 0}

__all__ = ["new_york"]

TYPES = ATOMIC | NESTED
# What Avro has no form for.
MISSING = ("TIMESTAMP_NTZ(9)", "TIMESTAMP_LTZ(9)", "STRUCT<at: TIMESTAMP, `odd name`")


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_rows_written_by_java_are_read_alike_in_every_zone(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, file_format: str
) -> None:
    cases = {
        text: [case for case in values if _is_near(case[1], file_format)]
        for text, values in TYPES.items()
        if file_format != "avro" or not text.startswith(MISSING)
    }
    columns = ", ".join(f"c{i} {text}" for i, text in enumerate(cases))
    for name, options in (("append", ""), ("keyed", "'primary-key' = 'k', 'bucket' = '1', ")):
        session.run(
            f"CREATE TABLE {name} (k INT NOT NULL, {columns}) "
            f"TBLPROPERTIES ({options}'file.format' = '{file_format}')"
        )
        rows = [tuple(value for _, value in row) for row in rows_of(cases)]
        if name == "keyed":  # two runs that overlap
            later = [*rows[1:], rows[0]]
            moved = [(row[0], *other[1:]) for row, other in zip(rows, later, strict=True)]
            java_paimon.write(warehouse, f"default.{name}", moved)
        java_paimon.write(warehouse, f"default.{name}", rows)
        expected = by_key(java_paimon.rows(warehouse, f"default.{name}"))
        if file_format == "orc":  # whose own CHAR has no trailing blanks; Spark shows them
            chars = [place for place, text in enumerate(cases, 1) if text.startswith("CHAR")]
            expected = [
                tuple(
                    value.ljust(5) if place in chars and value is not None else value
                    for place, value in enumerate(row)
                )
                for row in expected
            ]
        actual = session.run(f"SELECT * FROM {name}").to_arrow().to_pylist()
        ours = by_key([tuple(row.values()) for row in actual])
        wrong = {
            text: ([row[place] for row in ours], [row[place] for row in expected])
            for place, text in enumerate(cases, 1)
            if [row[place] for row in ours] != [row[place] for row in expected]
        }
        assert wrong == {}, "\n".join(f"{name} {text}: {pair}" for text, pair in wrong.items())


def _is_near(value: Any, file_format: str) -> bool:
    """Whether ORC's reader has room for it: 64 bits of nanoseconds."""
    return (
        file_format != "orc" or not isinstance(value, datetime.datetime) or 1678 < value.year < 2262
    )


def test_orc_times_beyond_the_reader_range_are_reported(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    session.run(
        "CREATE TABLE t (k INT, c TIMESTAMP_NTZ, v INT) TBLPROPERTIES ('file.format' = 'orc')"
    )
    java_paimon.write(warehouse, "default.t", [(1, datetime.datetime(9999, 12, 31), 5)])
    assert session.run("SELECT k, v FROM t").to_arrow().to_pylist() == [{"k": 1, "v": 5}]
    with pytest.raises(PaimonMagicsError, match="has times in `c` that are before 1677"):
        session.run("SELECT c FROM t").to_arrow()


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_dates_before_gregorian_calendar_are_read_as_stored(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, file_format: str
) -> None:
    days = [datetime.date(1, 1, 1), datetime.date(1500, 2, 28), datetime.date(1582, 10, 15)]
    session.run(
        f"CREATE TABLE days (d DATE, a ARRAY<DATE>) TBLPROPERTIES ('file.format' = '{file_format}')"
    )
    java_paimon.write(warehouse, "default.days", [(day, [day, None]) for day in days])
    modes = [f"spark.sql.parquet.{kind}RebaseModeInRead" for kind in ("datetime", "int96")]
    before = {mode: session.spark.conf.get(mode) for mode in modes}
    try:
        for mode in modes:
            session.spark.conf.set(mode, "LEGACY")
        actual = session.run("SELECT * FROM days ORDER BY d").to_arrow().to_pylist()
    finally:
        for mode, value in before.items():
            session.spark.conf.set(mode, value)
    assert actual == [{"d": day, "a": [day, None]} for day in days]


def test_zone_dependent_reads_of_tables_views_and_frames_are_noted(
    session: Session,
) -> None:
    session.run("CREATE TABLE o (k INT, t TIMESTAMP) TBLPROPERTIES ('file.format' = 'orc')")
    session.run("CREATE TEMPORARY VIEW v AS SELECT t FROM o WHERE k > 0")
    frame = session.table("o").where("k = 1")
    for outcome in (
        session.run("SELECT t FROM o"),
        session.run("SELECT t FROM v"),
        session.run("SELECT * FROM df", frames={"df": frame}),
    ):
        assert [note for note in outcome.notes if "don't record their writers' time zone" in note]
