"""Moments in messages of committers and coordinators are told in the session's zone."""

from __future__ import annotations

import pyarrow as pa
import pytest

from paimon_magics.columnar.time_zones import moment_text, moments_in_zone
from paimon_magics.errors import CommitConflictError
from paimon_magics.session.reports.report import Report, Section, report_in_zone
from paimon_magics.session.times import tell_moments, told_in_zone

MADE = "Since then, snapshot 7 (APPEND by ada at {}) added rows."


@pytest.mark.parametrize(
    ("zone", "told"),
    [
        ("UTC", "2026-11-01 06:30:00 UTC"),
        ("Asia/Kolkata", "2026-11-01 12:00:00 Asia/Kolkata"),
        ("America/New_York", "2026-11-01 01:30:00-05:00 America/New_York"),
    ],
)
def test_utc_time_in_message_is_shown_in_session_zone(zone: str, told: str) -> None:
    text = MADE.format("2026-11-01 06:30:00 UTC")
    assert moments_in_zone(text, zone) == MADE.format(told)


@pytest.mark.parametrize(
    "text", ["The value '2026-11-01 06:30:00 UTC' is no DATE.", "`2026-11-01 06:30:00 UTC`", "UTC"]
)
def test_quoted_time_values_stay_unchanged(text: str) -> None:
    assert moments_in_zone(text, "Asia/Kolkata") == text


def test_every_text_of_an_error_shows_times_in_session_zone() -> None:
    error = CommitConflictError(MADE.format("2026-11-01 06:30:00 UTC"), hint="Run it again.")
    tell_moments(error, "Asia/Kolkata")
    for text in (error.text(), str(error), repr(error)):
        assert "2026-11-01 12:00:00 Asia/Kolkata" in text and "UTC" not in text


def test_every_text_of_a_report_shows_times_in_session_zone() -> None:
    at = "2026-11-01 06:30:00 UTC"
    section = Section(MADE.format(at), pa.table({"n": [1]}), "", note=MADE.format(at))
    report = Report("QUEUE", MADE.format(at), (section,), notes=(MADE.format(at),))
    told = str(report_in_zone(report, lambda: "Asia/Kolkata"))
    assert told.count("2026-11-01 12:00:00 Asia/Kolkata") == 4 and "UTC" not in told


def test_zone_is_asked_for_only_if_a_text_has_a_time() -> None:
    def unknown() -> str:
        raise AssertionError("Spark may have ended")

    assert told_in_zone(("3 rows", "WHERE at > '2026-11-01 06:30:00 UTC'"), unknown) == (
        "3 rows",
        "WHERE at > '2026-11-01 06:30:00 UTC'",
    )
    assert told_in_zone((MADE.format("2026-11-01 06:30:00 UTC"),), lambda: "Asia/Kolkata") == (
        MADE.format("2026-11-01 12:00:00 Asia/Kolkata"),
    )


def test_moment_in_hour_that_comes_twice_has_its_offset() -> None:
    assert moment_text(1_793_514_600_000, "America/New_York") == (
        "2026-11-01 01:30:00-05:00 America/New_York"
    )
    assert moment_text(1_793_514_600_999, "UTC") == "2026-11-01 06:30:00 UTC"
