"""TIME columns, which Spark's DDL can't make: the milliseconds of a day, and nothing outside."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory
from pypaimon.schema.schema import Schema

from paimon_magics import Session
from paimon_magics.errors import InvalidValueError
from tests.oracle.java_reader import JavaPaimon

pytestmark = [pytest.mark.spark, pytest.mark.java]

AT = datetime.time


@pytest.fixture(params=["append", "primary key"])
def table(session: Session, warehouse: Path, request: pytest.FixtureRequest) -> str:
    """A table `t` with a time, and times in an array."""
    times = pa.time32("ms")
    schema = pa.schema([pa.field("k", pa.int32(), False), ("at", times), ("all", pa.list_(times))])
    keyed = request.param == "primary key"
    catalog = CatalogFactory.create({"warehouse": str(warehouse)})
    catalog.create_database("default", True)
    catalog.create_table(
        "default.t",
        Schema.from_pyarrow_schema(
            schema, primary_keys=["k"] if keyed else None, options={"bucket": "1"} if keyed else {}
        ),
        False,
    )
    return "t"


def test_times_are_written_from_numbers_and_spark_times_and_frames(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, table: str
) -> None:
    session.run(f"INSERT INTO {table} VALUES (1, 0, array(86399999, NULL)), (2, NULL, NULL)")
    session.run(f"INSERT INTO {table} SELECT 3, TIME'01:02:03.004', array() FROM range(1)")
    for key, kind in ((4, pa.time32("s")), (5, pa.time32("ms")), (6, pa.time64("us"))):
        frame = pa.table({"at": pa.array([AT(23, 0, 7)], kind), "k": pa.array([key], pa.int32())})
        session.write(frame, table)
    expected = [
        (1, AT(0), [AT(23, 59, 59, 999000), None]),
        (2, None, None),
        (3, AT(1, 2, 3, 4000), []),
        *((key, AT(23, 0, 7), None) for key in (4, 5, 6)),
    ]
    assert sorted(java_paimon.rows(warehouse, "default.t")) == expected
    read = session.run(f"SELECT k, `at` FROM {table} WHERE k IN (1, 3) ORDER BY k").to_arrow()
    assert read["at"].to_pylist() == [0, 3723004]


@pytest.mark.parametrize(
    "source",
    [
        "VALUES (1, 86400000, NULL)",
        "VALUES (1, -1, NULL)",
        "VALUES (1, 0, array(86400000))",
        "SELECT CAST(id AS INT), -1, NULL FROM range(1)",
    ],
)
def test_number_outside_a_day_is_refused_as_time(
    session: Session, warehouse: Path, table: str, source: str
) -> None:
    with pytest.raises(InvalidValueError, match="TIME, milliseconds of a day, but a value is"):
        session.run(f"INSERT INTO {table} {source}")
    assert not list(warehouse.glob("default.db/t/**/*.parquet"))
