"""Metadata system tables against the rows that Paimon's connector for Spark gave for them."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_magics.statements.clauses.names import table_name_of
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.system_tables.registry import METADATA_TABLES, metadata_table
from tests.recorded_reads import RecordedRead, assert_same_rows, recorded_reads

READS = [read for read in recorded_reads() if read.system_table in METADATA_TABLES]
SPARK_NAMES = {
    pa.string(): "string",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.bool_(): "boolean",
    pa.timestamp("us"): "timestamp_ntz",
    pa.list_(pa.string()): "array<string>",
}


@pytest.fixture(autouse=True)
def recorded_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process's time zone is that of the JVM at the recording."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def read_here(warehouse: Path, read: RecordedRead) -> pa.Table:
    name = table_name_of(read.table.split("."))
    assert name is not None
    found = metadata_table(Catalog.open({"warehouse": str(warehouse)}), name)
    return found if read.select is None else found.select(list(read.select))


def test_recordings_cover_every_metadata_table() -> None:
    assert {read.system_table for read in READS} == set(METADATA_TABLES)
    assert len(READS) == 78


@pytest.mark.parametrize("read", READS, ids=lambda read: read.id)
def test_rows_and_types_match_the_recording(recorded_warehouse: Path, read: RecordedRead) -> None:
    actual = read_here(recorded_warehouse, read)
    if read.columns is not None:
        types = [column.split(" ", 1)[1] for column in read.columns]
        named = [SPARK_NAMES.get(field.type) for field in actual.schema]
        assert [n for n in named if n is not None] == [
            t for t, n in zip(types, named, strict=True) if n is not None
        ]
    if read.system_table == "branches":  # a file's time, which unpacking sets
        assert read.rows is not None
        assert sorted(actual["branch_name"].to_pylist()) == sorted(row[0] for row in read.rows)
        assert all(isinstance(at, datetime.datetime) for at in actual["create_time"].to_pylist())
    else:
        assert_same_rows(read, actual)


def test_times_are_wall_clock_times_of_this_process(
    recorded_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Catalog.open({"warehouse": str(recorded_warehouse)})
    name = table_name_of(["c1", "ap$snapshots"])
    assert name is not None
    utc = metadata_table(catalog, name)["commit_time"].to_pylist()
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    there = metadata_table(catalog, name)["commit_time"].to_pylist()
    assert [b - a for a, b in zip(utc, there, strict=True)] == [datetime.timedelta(hours=5.5)]
