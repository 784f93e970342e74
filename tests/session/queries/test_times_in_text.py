"""One way to read times in texts: options of reads, functions of changes, `%paimon diff`."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paimon_magics import Session, connect
from paimon_magics.errors import InvalidValueError, UnknownNameError, UnsupportedStatementError
from paimon_magics.tables.snapshots.time_travel import moment_ms
from tests.session.rows import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON_MS = 1_769_828_400_000  # 2026-01-31 12:00 in Tokyo


@pytest.mark.parametrize(
    ("text", "after_noon_ms"),
    [
        ("2026-01-31", -43_200_000),
        ("2026-01-31 12:00", 0),
        ("2026-1-31 12:0", 0),
        ("2026-01-31T12:00:01", 1_000),
        ("2026-01-31 12:00:01.0029", 1_002),
        ("2026-01-31 03:00Z", 0),
        ("2026-01-31 03:00:00.5Z", 500),
        ("2026-01-31 12:00:00.250+09:00", 250),
        ("2026-01-30 23:30:00-03:30", 0),
    ],
)
def test_time_is_read_to_the_minute_second_or_fraction_with_or_without_offset(
    text: str, after_noon_ms: int
) -> None:
    assert moment_ms(text, "Asia/Tokyo") - NOON_MS == after_noon_ms


@pytest.mark.parametrize(
    "text", ["1", "noon", "2026-01-31 12", "2026-01-31 12:30.5", "2026-01-31 25:00", "2026-02-30",
             "2026-01-31 12:00 Tokyo", "2026-01-31 12:00+19:00"]
)  # fmt: skip
def test_other_text_is_no_time(text: str) -> None:
    with pytest.raises(InvalidValueError, match="is not a time") as raised:
        moment_ms(text, "Asia/Tokyo")
    assert "'2026-01-31 23:59'" in raised.value.hint


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder: Path = tmp_path_factory.mktemp("lake")
    with connect(folder, coordinator="in-process", spark=spark) as session:
        session.run("CREATE TABLE t (id INT)")
        for id in (1, 2):
            session.run(f"INSERT INTO t VALUES ({id})")
        yield session


def commit_ms(lake: Session) -> list[int]:
    found = rows(lake, "SELECT commit_time FROM t$snapshots ORDER BY snapshot_id")
    return [int(time.astimezone().timestamp() * 1000) for (time,) in found]


CHANGES = "SELECT id FROM paimon_incremental_between_timestamp('t', {}, {}) ORDER BY id"
LATER = "'2999-12-31 23:59'"


@pytest.mark.spark
@pytest.mark.parametrize("start", ["'2020-01-01 00:00'", "'2020-01-01'", "1", "'1'", "0"])
@pytest.mark.parametrize("end", [LATER, "32503679999000", "'32503679999000'"])
def test_changes_take_minutes_and_milliseconds_in_any_mixture(
    lake: Session, start: str, end: str
) -> None:
    assert rows(lake, CHANGES.format(start, end)) == [(1,), (2,)]


@pytest.mark.spark
@pytest.mark.parametrize("bounds", [("'1'", "'1'"), ("1", "2"), ("'2020-01-01'", "2")])
def test_numbers_of_snapshots_as_times_are_refused(lake: Session, bounds: tuple[str, str]) -> None:
    with pytest.raises(InvalidValueError, match="counts milliseconds") as raised:
        rows(lake, CHANGES.format(*bounds))
    assert "paimon_incremental_query" in raised.value.hint


@pytest.mark.spark
def test_minutes_are_taken_by_read_options_and_diff(lake: Session) -> None:
    option = f"SELECT count(*) FROM t WITH ('scan.timestamp' = {LATER})"
    assert rows(lake, option) == [(2,)]
    assert lake.reports.diff("t", "2020-01-01 00:00", LATER.strip("'")) is not None


@pytest.mark.spark
def test_refused_time_is_told_with_the_milliseconds_that_decide(lake: Session) -> None:
    (first,) = rows(lake, "SELECT commit_time FROM t$snapshots WHERE snapshot_id = 1")[0]
    before = first - datetime.timedelta(milliseconds=1)
    with pytest.raises(UnknownNameError) as raised:
        rows(lake, f"SELECT * FROM t TIMESTAMP AS OF TIMESTAMP_NTZ '{before}'")
    asked, found = raised.value.message.partition("; its first snapshot is from ")[::2]
    assert asked.split("before ")[1] < found
    assert len(found.split()[1].rstrip(".")) > len("16:47:24")


@pytest.mark.spark
def test_call_without_preview_is_not_told_to_remove_nothing(lake: Session) -> None:
    with pytest.raises(UnsupportedStatementError) as raised:
        lake.preview("CALL sys.rollback('t', '1')")
    assert "`CALL sys.rollback` has no preview" in raised.value.message
    assert "asks first" in raised.value.hint and "diff" in raised.value.hint
