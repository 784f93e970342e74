"""Moments before standard time, and in zones with odd rules, are those of Spark everywhere.

The answers are recorded from Spark: what it makes of a wall-clock time, in microseconds since 1970,
and how it writes that moment.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator

import pandas as pd
import pyarrow as pa
import pytest

import paimon_magics

pytestmark = pytest.mark.spark

RECORDED = {
    "Asia/Tokyo": [
        ("1850-01-01 00:00:30", -3786859109000000, "1850-01-01 00:00:30"),
        ("1887-12-31 15:00:00", -2587745939000000, "1887-12-31 15:00:00"),
        ("1887-12-31 23:59:59.123456", -2587713539876544, "1887-12-31 23:59:59.123456"),
        ("1948-05-02 00:30:00", -683800200000000, "1948-05-02 01:30:00"),  # skipped
    ],
    "America/St_Johns": [
        ("1850-01-01 00:00:30", -3786812918000000, "1850-01-01 00:00:30"),
        ("1884-01-01 00:00:00", -2713897748000000, "1884-01-01 00:00:00"),
        ("1935-03-30 00:00:30", -1096921718000000, "1935-03-30 00:01:22"),  # skipped
        ("1935-03-30 00:01:52", -1096921688000000, "1935-03-30 00:01:52"),
    ],
    "Asia/Kolkata": [
        ("1850-01-01 00:00:30", -3786846778000000, "1850-01-01 00:00:30"),
        ("1906-01-01 00:00:00", -2019705670000000, "1906-01-01 00:08:50"),  # skipped
        ("1941-10-01 00:30:00", -891579600000000, "1941-10-01 01:30:00"),  # skipped
        ("1945-10-14 23:30:00", -764146800000000, "1945-10-14 23:30:00"),  # the first of two
    ],
    "Pacific/Apia": [
        ("1892-07-04 12:00:00", -2445467584000000, "1892-07-04 12:00:00"),  # the first of two
        ("2011-12-29 23:59:59", 1325239199000000, "2011-12-29 23:59:59"),
        ("2011-12-30 12:00:00", 1325282400000000, "2011-12-31 12:00:00"),  # a day that never was
    ],
}
ORC = ", 'orc.timestamp-ltz.legacy.type' = 'false'"


@pytest.fixture
def zoned(session: paimon_magics.Session) -> Iterator[paimon_magics.Session]:
    before = session.spark.conf.get("spark.sql.session.timeZone")
    yield session
    session.run(f"SET spark.sql.session.timeZone = {before}")


def make(session: paimon_magics.Session, name: str, file_format: str) -> None:
    session.run(
        f"CREATE TABLE {name} (id INT, at TIMESTAMP) TBLPROPERTIES "
        f"('file.format' = '{file_format}', 'primary-key' = 'id', 'bucket' = '1'{ORC})"
    )


def check_shown(
    session: paimon_magics.Session, query: str, micros: list[int], texts: list[str]
) -> None:
    """Every way out of a result has the moments and clocks."""
    outcome = session.run(query)
    moments = outcome.to_arrow()["at"]
    assert moments.cast(pa.int64()).to_pylist() == micros
    assert [str(row["at"].replace(tzinfo=None)) for row in outcome.to_pylist()] == texts
    frame = outcome.to_pandas()["at"]
    assert frame.astype("int64").tolist() == micros
    assert [str(clock) for clock in frame.dt.tz_localize(None).dt.to_pydatetime()] == texts
    for page in (str(outcome), outcome._repr_html_()):
        assert [text for text in texts if text not in page] == []


@pytest.mark.parametrize("zone", RECORDED)
def test_old_moments_are_read_and_shown_as_spark_does(
    zoned: paimon_magics.Session, zone: str
) -> None:
    zoned.run(f"SET spark.sql.session.timeZone = {zone}")
    for file_format in ("parquet", "orc", "avro"):
        # Fractions of a second before 1970 are refused in ORC files.
        recorded = [row for row in RECORDED[zone] if file_format != "orc" or "." not in row[0]]
        clocks, micros, texts = map(list, zip(*recorded, strict=True))
        values = ", ".join(f"({id}, TIMESTAMP'{clock}')" for id, clock in enumerate(clocks))
        name = f"in_{file_format}"
        make(zoned, name, file_format)
        zoned.run(f"INSERT INTO {name} VALUES {values}")
        check_shown(zoned, f"SELECT at FROM {name} ORDER BY id", micros, texts)
        spark = zoned.run(
            f"SELECT unix_micros(at) AS u, CAST(at AS STRING) AS c FROM {name} ORDER BY id"
        ).to_arrow()
        assert spark["u"].to_pylist() == micros and spark["c"].to_pylist() == texts
        for id, clock in enumerate(clocks):
            rows = zoned.run(f"SELECT id FROM {name} WHERE at = TIMESTAMP'{clock}'").to_arrow()
            assert rows["id"].to_pylist() == [id]


@pytest.mark.parametrize("zone", [*RECORDED, "Europe/Amsterdam", "Europe/Oslo"])
def test_python_values_become_the_moments_of_sparks_literals(
    zoned: paimon_magics.Session, zone: str
) -> None:
    """Java and the machine can have other rules before 1970, as for Amsterdam."""
    zoned.run(f"SET spark.sql.session.timeZone = {zone}")
    clocks = [clock for clock, _, _ in RECORDED.get(zone, ())]
    clocks += [
        f"{year}-{month}-15 00:10:00" for year in (1895, 1930, 1946) for month in ("01", "07")
    ]
    literals = ", ".join(f"TIMESTAMP'{clock}'" for clock in clocks)
    found = zoned.run(
        "SELECT unix_micros(at) AS u, CAST(at AS STRING) AS c "
        f"FROM (SELECT explode(array({literals})) AS at)"
    ).to_arrow()
    micros, texts = found["u"].to_pylist(), found["c"].to_pylist()
    given = [datetime.datetime.fromisoformat(clock) for clock in clocks]
    make(zoned, "t", "parquet")
    zoned.write([{"id": id, "at": clock} for id, clock in enumerate(given)], "t")
    check_shown(zoned, "SELECT at FROM t ORDER BY id", micros, texts)
    zoned.run("TRUNCATE TABLE t")
    frame = pd.DataFrame({"id": range(len(given)), "at": pd.Series(given, dtype="datetime64[us]")})
    zoned.insert("t", frame.astype({"id": "int32"}))
    check_shown(zoned, "SELECT at FROM t ORDER BY id", micros, texts)
    # What leaves a session and comes back is the same.
    zoned.write(zoned.run("SELECT * FROM t").to_pandas(), "t")
    check_shown(zoned, "SELECT at FROM t ORDER BY id", micros, texts)


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP"])
def test_keys_beyond_the_year_9999_are_read_and_changed(
    session: paimon_magics.Session, kind: str
) -> None:
    far = f"{kind} '+12000-01-01'"
    session.run(
        f"CREATE TABLE far (k {kind} NOT NULL, v INT) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1');"
        f"INSERT INTO far VALUES ({far}, 1), ({kind} '2020-01-01', 1);"
        f"INSERT INTO far VALUES ({far}, 2);"
        f"UPDATE far SET v = v + 1 WHERE k = {far};"
        f"MERGE INTO far USING (SELECT {far} AS k) s ON far.k = s.k "
        "WHEN MATCHED THEN UPDATE SET v = v + 1;"
        "CALL sys.compact('far')"
    )
    (row,) = session.run("SELECT * FROM far WHERE k > DATE '2021-01-01'").to_pylist()
    assert str(row["k"]).startswith("12000-01-01") and row["v"] == 4
    session.run(f"DELETE FROM far WHERE k = {far}")
    assert [row["v"] for row in session.run("SELECT v FROM far").to_pylist()] == [1]
