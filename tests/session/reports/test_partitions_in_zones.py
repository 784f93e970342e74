"""Partitions of times are named in the session's zone by every view, and the SQL beside a view
gives the same names: the session's zone, the process's (`TZ`) and UTC are three."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from paimon_magics import Session
from paimon_magics.errors import UnconfirmedError, UnknownNameError
from paimon_magics.session.opening import connect
from paimon_widgets.layout_view import LayoutView
from tests.session.reports.test_view_queries import check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EARLIER, LATER = "2026-11-01 01:30:00-04:00", "2026-11-01 01:30:00-05:00"
KEYED = "'primary-key' = 'k,at,x', 'bucket' = '1', 'partition.legacy-name' = 'false'"
TABLES = f"""
CREATE TABLE instants (k STRING, at TIMESTAMP) PARTITIONED BY (at);
INSERT INTO instants VALUES ('1', TIMESTAMP'2026-07-01 04:00:00.25Z'), ('2', TIMESTAMP'{LATER}'),
  ('tea', TIMESTAMP'{EARLIER}'), ('4', NULL);
INSERT OVERWRITE instants PARTITION (at = TIMESTAMP'{LATER}') VALUES ('5'), ('6');
CREATE TABLE clocks (k INT, at TIMESTAMP_NTZ, d DATE, x STRING) PARTITIONED BY (at, d, x);
INSERT INTO clocks VALUES (1, TIMESTAMP_NTZ'2026-03-08 02:30:00', DATE'2026-07-01', 'a, b'),
  (2, TIMESTAMP_NTZ'2026-11-01 01:30:00.25', NULL, 'c/d+ %é'), (3, NULL, DATE'1969-12-31', 'null');
INSERT INTO clocks VALUES (4, NULL, NULL, NULL);
CREATE TABLE keyed (k INT NOT NULL, v INT, at TIMESTAMP NOT NULL, x INT NOT NULL)
  PARTITIONED BY (at, x) TBLPROPERTIES ({KEYED});
INSERT INTO keyed VALUES (1, 1, TIMESTAMP'2026-07-01 04:00:00Z', 1);
INSERT INTO keyed VALUES (1, 2, TIMESTAMP'2026-07-01 04:00:00Z', 1),
  (2, 1, TIMESTAMP'{LATER}', 2);
CREATE TABLE tracked (k INT) TBLPROPERTIES ('row-tracking.enabled' = 'true');
INSERT INTO tracked VALUES (1);
CREATE TABLE orc (k INT, at TIMESTAMP_NTZ) PARTITIONED BY (at)
  TBLPROPERTIES ('file.format' = 'orc');
INSERT INTO orc VALUES (1, TIMESTAMP_NTZ'2026-11-01 01:30:00')
"""
NAMES = {  # by zone: the partitions as every view names them
    "America/New_York": {
        "instants": [
            "at=2026-07-01 00:00:00.25",
            f"at={EARLIER}",
            f"at={LATER}",
            "at=__DEFAULT_PARTITION__",
        ],
        "keyed": ["at=2026-07-01 00:00:00/x=1", f"at={LATER}/x=2"],
    },
    "Asia/Kolkata": {
        "instants": [
            "at=2026-07-01 09:30:00.25",
            "at=2026-11-01 11:00:00",
            "at=2026-11-01 12:00:00",
            "at=__DEFAULT_PARTITION__",
        ],
        "keyed": ["at=2026-07-01 09:30:00/x=1", "at=2026-11-01 12:00:00/x=2"],
    },
}
CLOCKS = [
    "at=2026-03-08 02:30:00/d=2026-07-01/x=a, b",
    "at=2026-11-01 01:30:00.25/d=__DEFAULT_PARTITION__/x=c/d+ %é",
    "at=__DEFAULT_PARTITION__/d=1969-12-31/x=null",
    "at=__DEFAULT_PARTITION__/d=__DEFAULT_PARTITION__/x=__DEFAULT_PARTITION__",
]


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TZ", "Europe/Berlin")
        time.tzset()
        with connect(
            tmp_path_factory.mktemp("lake"), coordinator="in-process", spark=spark
        ) as session:
            session.run("SET spark.sql.session.timeZone = America/New_York")
            session.run(TABLES)
            yield session
        spark.conf.unset("spark.sql.session.timeZone")
    time.tzset()


@pytest.fixture(params=NAMES)
def zone(lake: Session, request: pytest.FixtureRequest) -> str:
    lake.run(f"SET spark.sql.session.timeZone = {request.param}")
    return str(request.param)


def names_of(rows: Any) -> list[str]:
    return sorted({str(each) for each in rows.column("partition").to_pylist()})


def test_every_view_names_partitions_in_session_zone(lake: Session, zone: str) -> None:
    for name, wanted in {**NAMES[zone], "clocks": CLOCKS}.items():
        assert names_of(lake.layout(name).data) == sorted(wanted)
        assert names_of(lake.health(name).partitions) == sorted(wanted)
        assert names_of(lake.reports.partitions(name).data) == sorted(wanted)
        files = lake.reports.files(name)
        assert names_of(files.data) == sorted(wanted)
        for line in (lake.layout(name).summary(), files.summary):
            assert line.endswith(f"; `at` in {zone}") != (name == "clocks"), line
    assert f"`at` in {zone}" in lake.reports.profile("instants").notes


def test_view_sql_names_partitions_like_the_view(lake: Session, zone: str) -> None:
    for name in ("instants", "clocks", "keyed"):
        files = lake.reports.files(name)
        check(lake, files.sql, files.data, None, name)
    layout, partitions = lake.layout("instants"), lake.reports.partitions("keyed")
    check(lake, layout.sql, layout.data, None, "layout")
    check(lake, partitions.sql, partitions.data, None, "partitions")


def test_diff_and_its_sql_name_partitions_alike(lake: Session) -> None:
    lake.run("SET spark.sql.session.timeZone = America/New_York")
    report = lake.reports.diff("instants", "1", "2")
    for section in report.sections:
        check(lake, section.sql, section.rows, section.in_query, section.heading)
        if "partition" in section.rows.column_names:
            assert names_of(section.rows) == [f"at={LATER}"]


def test_partition_name_shown_by_view_selects_its_files(lake: Session, zone: str) -> None:
    for table, names in {**NAMES[zone], "clocks": CLOCKS}.items():
        listed = lake.run(f"SHOW PARTITIONS {table}").data.column("partition").to_pylist()
        assert len(listed) == len(names)
        for name in (*names, *listed):
            actual = lake.reports.files(table, name).data
            assert actual.num_rows == (2 if table == "keyed" and name.endswith("1") else 1), name
    actual = lake.reports.files("instants", names_of(lake.layout("instants").data)[1])
    check(lake, actual.sql, actual.data, None, "one partition")
    with pytest.raises(UnknownNameError, match="no files in a partition"):
        lake.reports.files("instants", "at=2026-07-01 04:00:00.25")


def test_shown_partition_values_can_be_pasted_into_statements(lake: Session, zone: str) -> None:
    for table, names in NAMES[zone].items():
        for name in names[:-1]:
            at = name.partition("/")[0].removeprefix("at=")
            actual = lake.run(f"SELECT DISTINCT at FROM {table} WHERE at = '{at}'").data
            assert actual.num_rows == 1, name
            taken = lake.preview(f"TRUNCATE TABLE {table} PARTITION (at = '{at}')").data
            assert taken.num_rows == 1, name


def test_confirmations_name_partitions_in_session_zone(lake: Session, zone: str) -> None:
    with pytest.raises(UnconfirmedError, match="'tea'") as raised:
        lake.check_confirmed("ALTER TABLE instants ALTER COLUMN k TYPE INT")
    assert NAMES[zone]["instants"][1].replace(":", "%3A") in raised.value.message


def test_file_views_show_creation_times_in_session_zone(lake: Session, zone: str) -> None:
    now = datetime.datetime.now(datetime.UTC)
    for name in ("instants", "keyed", "tracked", "orc"):  # the native writer stamps them otherwise
        report = lake.reports.files(name)
        assert report.data.schema.field("creation_time").type.tz == zone
        for made in report.data.column("creation_time").to_pylist():
            assert abs(now - made) < datetime.timedelta(minutes=30), name
    check(lake, report.sql, report.data, None, "orc")
    view = LayoutView(lake.layout("keyed"))
    answer = view._files({"partition": NAMES[zone]["keyed"][0], "bucket": 0})
    assert answer["titles"][-1] == f"created ({zone})"
    # One INSERT's files may be of two seconds.
    made = lake.layout("keyed").files.column("creation_time").to_pylist()
    known = {f"{each.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M:%S}" for each in made}
    shown = {row[-1] for row in answer["rows"]}
    assert shown and shown <= known
