"""Clocks follow Java's rules of a zone where Python's database has others."""

from __future__ import annotations

import datetime
import pickle

import pyarrow as pa
import pytest

from paimon_magics.columnar import time_zones
from paimon_magics.columnar.time_zones import JavaRules, java_rules
from paimon_magics.session.outcome import pandas_frame

# As Java writes them. Tokyo never had these offsets, so that no database has the same.
TEXT = (
    "[Transition[Overlap at 1888-01-01T00:18:59+09:18:59 to +09:00], "
    "Transition[Gap at 1910-05-01T00:00+09:00 to +09:30], "
    "Transition[Overlap at 1910-10-01T00:30+09:30 to Z], "
    "Transition[Gap at 1948-05-02T00:00Z to +10:00], "
    "Transition[Overlap at 1948-09-12T01:00+10:00 to +09:00]]"
)
ZONE = "Asia/Tokyo"
UTC = datetime.UTC


@pytest.fixture
def tokyo() -> JavaRules:
    rules = java_rules(ZONE, TEXT)
    assert rules is not None
    return rules


@pytest.mark.parametrize(
    ("clock", "moment", "second"),
    [
        ("1850-01-01 00:00:00", "1849-12-31 14:41:01", None),
        ("1888-01-01 00:10:00", "1887-12-31 14:51:01", "1887-12-31 15:10:00"),  # occurs twice
        ("1910-05-01 00:10:00", "1910-04-30 15:10:00", "1910-04-30 14:40:00"),  # never occurs
        ("1930-01-01 00:00:00", "1930-01-01 00:00:00", None),
        ("1949-07-01 00:00:00", "1949-06-30 14:00:00", None),  # Python's rules, with summer time
        ("2026-07-01 12:00:00", "2026-07-01 03:00:00", None),
    ],
)
def test_clocks_and_moments_are_those_of_java(
    tokyo: JavaRules, clock: str, moment: str, second: str | None
) -> None:
    local = datetime.datetime.fromisoformat(clock).replace(tzinfo=tokyo)
    for fold, expected in enumerate((moment, second or moment)):
        found = local.replace(fold=fold).astimezone(UTC)
        assert str(found.replace(tzinfo=None)) == expected
        if "never" not in clock and clock != "1910-05-01 00:10:00":
            back = found.astimezone(tokyo)
            assert str(back.replace(tzinfo=None)) == clock
            assert back.fold == (fold if second else 0)


def test_zone_with_the_same_rules_stays_pythons() -> None:
    assert java_rules("UTC", "[]") is None
    assert java_rules(ZONE, "[Transition[Overlap at 1888-01-01T00:18:59+09:18:59 to +09:00]]") is (
        None
    )


def test_other_processes_and_libraries_take_the_zone(
    tokyo: JavaRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = datetime.datetime(1930, 1, 1, tzinfo=UTC).astimezone(tokyo)
    copied = pickle.loads(pickle.dumps(moment))
    assert str(copied) == "1930-01-01 00:00:00+00:00" == str(moment)
    monkeypatch.setitem(time_zones._JAVA_RULES, ZONE, tokyo)
    rows = pa.table({"t": pa.array([datetime.datetime(1930, 1, 1, tzinfo=UTC), None])})
    rows = rows.cast(pa.schema([("t", pa.timestamp("us", ZONE))]))
    frame = pandas_frame(rows)
    assert str(frame["t"].dtype) == f"datetime64[us, {ZONE}]"
    assert str(frame["t"].dt.tz_localize(None)[0]) == "1930-01-01 00:00:00"
    assert pa.Table.from_pandas(frame)["t"].cast(rows["t"].type) == rows["t"]
