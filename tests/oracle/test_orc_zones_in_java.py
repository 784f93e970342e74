"""TIMESTAMP_LTZ of ORC files that Java wrote in some zone: it is what Java reads in this machine's
zone, and what was written where an option names the writer's zone."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from paimon_magics import Session
from paimon_magics.errors import InvalidTableError
from tests.oracle.java_reader import JavaPaimon
from tests.session.queries.small_reads import settings

pytestmark = [pytest.mark.spark, pytest.mark.java]

UTC = datetime.UTC
MOMENTS = [
    datetime.datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC),
    datetime.datetime(2026, 7, 31, 23, 30, tzinfo=UTC),
    datetime.datetime(1969, 12, 31, 20, tzinfo=UTC),
    None,
]
ZONES = ["Asia/Tokyo", "Europe/Berlin", "UTC"]


class Zones:
    """Sets the zone of this process and of the JVM."""

    def __init__(self, spark: SparkSession, patch: pytest.MonkeyPatch) -> None:
        self._zones: Any = spark._jvm.java.util.TimeZone  # type: ignore[union-attr]
        self._patch = patch

    def set(self, name: str) -> None:
        self._zones.setDefault(self._zones.getTimeZone(name))
        self._patch.setenv("TZ", name)
        time.tzset()


@pytest.fixture
def zones(spark: SparkSession) -> Iterator[Zones]:
    with pytest.MonkeyPatch.context() as patch:
        changed = Zones(spark, patch)
        before = changed._zones.getDefault()
        yield changed
        changed._zones.setDefault(before)
    time.tzset()


@pytest.mark.parametrize("columns", ["k INT, at TIMESTAMP_LTZ(3)", "k INT, at TIMESTAMP_LTZ(6)"])
@pytest.mark.parametrize("writer", ZONES)
def test_instants_without_a_zone_in_the_file_match_java(
    session: Session,
    java_paimon: JavaPaimon,
    warehouse: Path,
    zones: Zones,
    writer: str,
    columns: str,
) -> None:
    session.run(f"CREATE TABLE t ({columns}) TBLPROPERTIES ('file.format' = 'orc')")
    zones.set(writer)
    java_paimon.write(warehouse, "default.t", list(enumerate(MOMENTS)))

    def ours(limit: int) -> list[Any]:
        with settings(session, local_rows_max=limit):
            rows = session.run("SELECT k, at FROM t").to_pylist()
        return [row["at"] for row in sorted(rows, key=lambda row: int(row["k"]))]

    for reader in ZONES:
        zones.set(reader)
        theirs = sorted(java_paimon.rows(warehouse, "default.t"))
        assert ours(100) == [row[1] for row in theirs], reader
        assert ours(0) == [row[1] for row in theirs], reader
        notes = "".join(session.run("SELECT at FROM t").notes)
        assert (f"read as if written in {reader}, this" in notes) == (reader != "UTC")
        assert session.run("SELECT k FROM t").notes == ()
    session.run(f"ALTER TABLE t SET TBLPROPERTIES ('orc.timestamp-ltz.writer-zone' = '{writer}')")
    assert ours(100) == MOMENTS
    session.run("ALTER TABLE t SET TBLPROPERTIES ('orc.timestamp-ltz.writer-zone' = 'Tokio')")
    with pytest.raises(InvalidTableError, match="'Tokio', which is not a time zone"):
        ours(100)


@pytest.mark.parametrize("writer", ZONES)
def test_zone_named_in_the_file_is_used(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, zones: Zones, writer: str
) -> None:
    session.run(
        "CREATE TABLE t (k INT, at TIMESTAMP_LTZ(3), clock TIMESTAMP_NTZ) "
        "TBLPROPERTIES ('file.format' = 'orc')"
    )
    zones.set(writer)
    clock = datetime.datetime(2026, 1, 2, 3)
    java_paimon.write(warehouse, "default.t", [(k, at, clock) for k, at in enumerate(MOMENTS)])
    for reader in ZONES:
        zones.set(reader)
        rows = session.run("SELECT * FROM t ORDER BY k").to_pylist()
        assert [(row["at"], row["clock"]) for row in rows] == [(at, clock) for at in MOMENTS]
