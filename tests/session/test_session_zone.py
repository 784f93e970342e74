"""Instants are those of the session's zone wherever they are shown or handed over: Spark's, with
summer time, while this process is in another one."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from paimon_magics import Session
from paimon_magics.errors import UnknownNameError
from paimon_magics.planning.reads.row_filters import Condition, Order, RowFilter
from paimon_magics.session.opening import connect
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.reports.paging import QueryRows, rows_of
from paimon_magics.statements.statement import TableName
from paimon_widgets.report_view import ReportView, outcome_bundle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

AT, UTC, BERLIN = datetime.datetime, datetime.UTC, ZoneInfo("Europe/Berlin")
TIMES = {  # by key: the instant as SQL, as it is shown, and in UTC
    1: ("2026-07-01 12:00:00", "2026-07-01 12:00:00", AT(2026, 7, 1, 10)),
    2: ("2026-10-25 02:30:00+02:00", "2026-10-25 02:30:00+02:00", AT(2026, 10, 25, 0, 30)),
    3: ("2026-10-25 02:30:00+01:00", "2026-10-25 02:30:00+01:00", AT(2026, 10, 25, 1, 30)),
    4: ("2026-01-01 12:00:00.25", "2026-01-01 12:00:00.25", AT(2026, 1, 1, 11, 0, 0, 250_000)),
    5: ("2026-03-29 03:00:00", "2026-03-29 03:00:00", AT(2026, 3, 29, 1)),
}
CLOCK = "2026-03-29 02:30:00"  # which clocks in Berlin never showed


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with connect(tmp_path_factory.mktemp("lake"), coordinator="in-process", spark=spark) as session:
        session.run("SET spark.sql.session.timeZone = Europe/Berlin")
        session.run(
            "CREATE TABLE t (k INT NOT NULL, at TIMESTAMP, clock TIMESTAMP_NTZ, f FLOAT, d DOUBLE, "
            "a ARRAY<TIMESTAMP>, m MAP<STRING, TIMESTAMP>, s STRUCT<x: TIMESTAMP>) "
            "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1')"
        )
        rows = ", ".join(
            f"({k}, TIMESTAMP'{text}', TIMESTAMP_NTZ'{CLOCK}', 1.{k}F, 1.{k}D, "
            f"array(TIMESTAMP'{text}'), map('x', TIMESTAMP'{text}'), "
            f"named_struct('x', TIMESTAMP'{text}'))"
            for k, (text, _, _) in TIMES.items()
        )
        session.run(f"INSERT INTO t VALUES {rows}")
        yield session
    spark.conf.unset("spark.sql.session.timeZone")


@pytest.fixture(scope="module")
def outcome(lake: Session) -> Outcome:
    result = lake.run("SELECT * FROM t ORDER BY k")
    result.show_at_most(3)
    return result


def column(view: ReportView, name: str) -> list[str]:
    (sheet,) = view.report["sheets"]
    place = [each["name"] for each in sheet["columns"]].index(name)
    return [row[place] for row in sheet["page"]["rows"]]


def test_text_html_and_grid_show_times_in_session_zone(outcome: Outcome) -> None:
    shown = [text for _, text, _ in TIMES.values()][:3]
    text, page = str(outcome), outcome_bundle(outcome)["text/html"]
    view = ReportView(outcome)
    for each in shown:
        assert each in text and each in page
    assert text.endswith("`at`, `a`, `m`, `s` in Europe/Berlin")
    assert "`at`, `a`, `m`, `s` in Europe/Berlin" in page
    assert column(view, "at") == shown
    assert column(view, "a") == [f'["{each}"]' for each in shown]
    assert column(view, "m") == column(view, "s") == [f'{{"x": "{each}"}}' for each in shown]
    assert column(view, "clock") == [CLOCK] * 3
    assert column(view, "f") == column(view, "d") == ["1.1", "1.2", "1.3"]
    types = {each["name"]: each["type"] for each in view.report["sheets"][0]["columns"]}
    assert types["at"] == "TIMESTAMP in Europe/Berlin"
    assert types["m"] == "MAP<STRING, TIMESTAMP> in Europe/Berlin"
    assert types["clock"] == "TIMESTAMP_NTZ"


def test_arrow_pandas_polars_and_python_values_are_in_session_zone(outcome: Outcome) -> None:
    moments = [moment.replace(tzinfo=UTC) for _, _, moment in TIMES.values()]
    local = [str(each.astimezone(BERLIN)) for each in moments]
    arrow = outcome.to_arrow()
    zoned = pa.timestamp("us", "Europe/Berlin")
    assert arrow.schema.field("at").type == zoned
    assert arrow.schema.field("clock").type == pa.timestamp("us")
    assert arrow.schema.field("a").type.value_type == zoned
    assert arrow.schema.field("m").type.item_type == zoned
    assert arrow.schema.field("s").type.field("x").type == zoned
    assert arrow.column("at").to_pylist() == moments
    pandas = outcome.to_pandas()
    assert str(pandas["at"].dtype) == "datetime64[us, Europe/Berlin]"
    assert [str(each) for each in pandas["at"]] == local
    assert [str(each["x"]) for each in pandas["s"]] == local
    polars = outcome.to_polars()
    assert [str(each) for each in polars["at"].to_list()] == local
    for row, moment, text in zip(outcome.to_pylist(), moments, local, strict=True):
        nested = row["at"], row["a"][0], row["m"]["x"], row["s"]["x"]
        assert {str(each) for each in nested} == {text}
        assert {each.astimezone(UTC) for each in nested} == {moment}
        assert row["clock"] == AT.fromisoformat(CLOCK)


LOOKS = [
    *(("at", "=", text, [k]) for k, (_, text, _) in TIMES.items()),
    ("at", "=", "2026-10-25 02:30:00", [2]),  # the first one, as Spark reads it
    ("at", "=", "2026-07-01T10:00:00Z", [1]),
    ("at", ">", "2026-10-25 02:30:00+02:00", [3]),
    ("clock", "=", CLOCK, [1, 2, 3, 4, 5]),
    ("f", "=", "1.1", [1]),
    ("f", ">", "1.4", [5]),
    ("d", "=", "1.1", [1]),
    ("f", "<", "inf", [1, 2, 3, 4, 5]),
]


def test_filter_sql_returns_the_rows_of_the_grid(lake: Session, outcome: Outcome) -> None:
    there = rows_of(outcome)
    assert isinstance(there, QueryRows)
    here = rows_of(lake.run("SELECT * FROM t ORDER BY k"))
    wrong = []
    for name, operator, typed, keys in LOOKS:
        row_filter = RowFilter((Order("k"),), (Condition(name, operator, typed),))
        pasted = lake.run(there.sql(row_filter)).data
        pages = (here.page(row_filter, 0, 20).rows, there.page(row_filter, 0, 20).rows, pasted)
        actual = [rows.column("k").to_pylist() for rows in pages]
        if actual != [keys] * 3:
            wrong.append((name, operator, typed, actual))
    assert wrong == []


def test_bound_times_are_read_in_session_zone(lake: Session) -> None:
    noon = AT(2026, 7, 1, 12)

    def keys(condition: str, **values: Any) -> list[int]:
        actual = lake.run(f"SELECT k FROM t WHERE {condition} ORDER BY k", values)
        assert lake.run(actual.sql).data == actual.data
        return [row["k"] for row in actual.to_pylist()]

    assert keys("at = :at", at=noon) == [1]
    assert keys("at = :at", at=noon.replace(tzinfo=BERLIN)) == [1]
    assert keys("at = :at", at=AT(2026, 7, 1, 10, tzinfo=UTC)) == [1]
    assert keys("at = :at", at=AT(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1)) == [3]
    assert keys("array_contains(:some, at)", some=[noon]) == [1]


def test_python_times_are_inserted_in_session_zone(lake: Session) -> None:
    import pandas

    lake.run("CREATE TABLE given (k INT, at TIMESTAMP, clock TIMESTAMP_NTZ, a ARRAY<TIMESTAMP>)")
    noon, aware = AT(2026, 7, 1, 12), AT(2026, 7, 1, 10, tzinfo=UTC)
    for place, moment in enumerate((noon, aware)):
        rows = [(place, moment, moment, [moment])]
        lake.insert("given", rows)
        frame = pandas.DataFrame({"k": [place + 10], "at": [moment], "clock": [moment]})
        lake.insert("given", frame)
        lake.write(frame.assign(k=place + 20), "given")
    actual = lake.run("SELECT DISTINCT at, clock, coalesce(a[0], at) AS a FROM given").to_pylist()
    assert [(str(each["at"]), each["clock"], str(each["a"])) for each in actual] == [
        ("2026-07-01 12:00:00+02:00", noon, "2026-07-01 12:00:00+02:00")
    ]


def test_views_show_times_in_session_zone(lake: Session) -> None:
    stored = lake.catalog.load(TableName("t", "default")).paimon
    commit = stored.snapshot_manager().get_latest_snapshot().time_millis
    made = AT.fromtimestamp(commit / 1000, BERLIN)
    for view in (lake.reports.snapshots("t"), lake.history("t")):
        assert str(view.data.schema.field("commit_time").type.tz) == "Europe/Berlin"
        assert view.data.column("commit_time")[0].as_py() == made
    types = [each["type"] for each in ReportView(lake.reports.snapshots("t")).report["sheets"][0][
        "columns"] if each["name"] == "commit_time"]  # fmt: skip
    assert types == ["TIMESTAMP in Europe/Berlin"]
    for name in ("t", "t$audit_log", "t$binlog"):
        assert "`at`, `a`, `m`, `s` in Europe/Berlin" in str(lake.reports.changes(name))
    lowest = {row["column"]: row["min"] for row in lake.reports.profile("t").data.to_pylist()}
    assert (lowest["at"], lowest["clock"]) == ("2026-01-01 12:00:00.25", CLOCK)
    shown = f"{made:%Y-%m-%d %H:%M:%S}.{made.microsecond // 1000:03} Europe/Berlin"
    assert shown in told(lake, "2026-01-01 00:00:00")
    at = made.replace(tzinfo=None) + datetime.timedelta(seconds=1)
    rows = lake.run(f"SELECT k FROM t TIMESTAMP AS OF '{at}'").data
    assert rows.num_rows == len(TIMES)
    assert lake.run("SELECT k FROM t TIMESTAMP AS OF :at", {"at": at}).data.num_rows == len(TIMES)
    assert lake.reports.diff("t", f"{at:%Y-%m-%d %H:%M:%S.%f}", "1").data.num_rows == 0


def told(lake: Session, at: str) -> str:
    with pytest.raises(UnknownNameError) as raised:
        lake.run(f"SELECT k FROM t TIMESTAMP AS OF '{at}'").page()
    return raised.value.text()


def test_timestamp_partitions_are_named_in_session_zone(lake: Session) -> None:
    lake.run("CREATE TABLE p (k INT, at TIMESTAMP) PARTITIONED BY (at)")
    lake.run(
        "INSERT INTO p VALUES (1, TIMESTAMP'2026-07-01 00:00:00'), "
        "(2, TIMESTAMP'2026-10-25 02:30:00+01:00'), (3, TIMESTAMP'2026-10-25 02:30:00+02:00')"
    )
    names = lake.run("SHOW PARTITIONS p").data.column("partition").to_pylist()
    assert [name.replace("%3A", ":") for name in names] == [
        "at=2026-07-01 00:00:00",
        "at=2026-10-25 02:30:00+01:00",
        "at=2026-10-25 02:30:00+02:00",
    ]
    taken = lake.preview("TRUNCATE TABLE p PARTITION (at = '2026-07-01 00:00:00')").data
    assert taken.column("partition").to_pylist() == ["at=2026-07-01 00%3A00%3A00"]


@pytest.mark.parametrize(
    ("zone", "name", "noon"),
    [
        ("America/Los_Angeles", "America/Los_Angeles", "2026-07-01 03:00:00"),
        ("+05:30", "+05:30", "2026-07-01 15:30:00"),
        ("GMT+2", "+02:00", "2026-07-01 12:00:00"),
        ("Etc/UTC", "UTC", "2026-07-01 10:00:00"),
    ],
)
def test_results_follow_the_zone_changed_by_set(
    lake: Session, zone: str, name: str, noon: str
) -> None:
    before = lake.run("SELECT at FROM t WHERE k = 1")
    try:
        lake.run(f"SET spark.sql.session.timeZone = {zone}")
        actual = lake.run("SELECT at, CAST(at AS STRING) AS text FROM t WHERE k = 1")
        assert str(actual).splitlines()[2].split("  ") == [noon, noon]
        assert str(actual).endswith(f"`at` in {name}")
        assert actual.to_arrow().schema.field("at").type.tz == name
        assert str(actual.to_pandas()["at"][0])[:19] == noon
        moment = AT(2026, 7, 1, 10, tzinfo=UTC)
        assert actual.to_polars()["at"].to_list() == [moment]
        assert "2026-07-01 12:00:00" in str(before), "it shows what it was asked for, as it was"
    finally:
        lake.run("SET spark.sql.session.timeZone = Europe/Berlin")
