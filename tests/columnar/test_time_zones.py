"""Spark's names of zones, as Arrow and Python have them."""

from __future__ import annotations

import datetime
import time

import pyarrow as pa
import pytest

from paimon_magics.columnar.time_zones import (
    arrow_zone,
    in_zone,
    is_ambiguous,
    process_zone,
    rules_of,
)


@pytest.mark.parametrize(
    ("spark", "arrow"),
    [
        *((name, "UTC") for name in ("UTC", "Etc/UTC", "GMT", "Z", "+00:00", "UTC+0", "Zulu")),
        *((name, "+02:00") for name in ("+2", "+02", "+02:00", "+0200", "GMT+2", "UTC+02:00")),
        ("-9:30", "-09:30"),
        ("+05:30", "+05:30"),
        ("PST", "America/Los_Angeles"),
        ("EST", "-05:00"),
        ("Europe/Berlin", "Europe/Berlin"),
        ("Mars/Olympus", "UTC"),
    ],
)
def test_spellings_of_a_zone_map_to_the_arrow_name(spark: str, arrow: str) -> None:
    assert arrow_zone(spark) == arrow
    noon = datetime.datetime(2026, 1, 1, 12, tzinfo=rules_of(spark))
    assert noon.utcoffset() is not None


def test_nested_instants_keep_their_moment_in_another_zone() -> None:
    utc = pa.timestamp("us", "UTC")
    values = pa.array(
        [[("x", {"a": [0, None]})], None],
        pa.map_(pa.string(), pa.struct([("a", pa.large_list(utc)), ("n", pa.timestamp("us"))])),
    )
    rows = pa.table({"m": values, "n": pa.array([0, 1], pa.timestamp("us"))}).slice(0, 2)
    actual = in_zone(rows, "Europe/Berlin")
    assert actual.schema.field("n") == rows.schema.field("n")
    assert "tz=Europe/Berlin" in str(actual.schema.field("m").type)
    assert in_zone(actual, "UTC") == rows
    assert in_zone(rows, "UTC") is rows


def test_only_the_repeated_hour_is_ambiguous() -> None:
    berlin = rules_of("Europe/Berlin")
    instants = [datetime.datetime(2026, 10, 25, hour, 30, tzinfo=datetime.UTC) for hour in range(4)]
    actual = [is_ambiguous(each.astimezone(berlin)) for each in (instants[0] - datetime.timedelta(
        hours=1), *instants)]  # fmt: skip
    assert actual == [False, True, True, False, False]
    assert not is_ambiguous(datetime.datetime(2026, 10, 25, 2, 30))


@pytest.mark.parametrize(
    ("environment", "zone"),
    [("Europe/Berlin", "Europe/Berlin"), (":Asia/Kolkata", "Asia/Kolkata"), ("EST5", "-05:00")],
)
def test_process_zone_comes_from_its_environment(
    monkeypatch: pytest.MonkeyPatch, environment: str, zone: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", environment)
        time.tzset()
        actual = process_zone()
    time.tzset()
    assert actual == zone
