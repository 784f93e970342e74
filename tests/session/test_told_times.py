"""Moments in messages of committers and coordinators are told in the session's zone."""

from __future__ import annotations

import pytest

from paimon_magics.errors import CommitConflictError
from paimon_magics.session.times import moments_in_zone, tell_moments

MADE = "Since then, snapshot 7 (APPEND by ada at {}) added rows."


@pytest.mark.parametrize(
    ("zone", "told"),
    [
        ("UTC", "2026-11-01 06:30:00 UTC"),
        ("Asia/Kolkata", "2026-11-01 12:00:00 Asia/Kolkata"),
        ("America/New_York", "2026-11-01 01:30:00-05:00 America/New_York"),
    ],
)
def test_a_moment_of_utc_is_told_in_the_zone(zone: str, told: str) -> None:
    text = MADE.format("2026-11-01 06:30:00 UTC")
    assert moments_in_zone(text, zone) == MADE.format(told)


@pytest.mark.parametrize(
    "text", ["The value '2026-11-01 06:30:00 UTC' is no DATE.", "`2026-11-01 06:30:00 UTC`", "UTC"]
)
def test_a_value_of_somebodys_stays_as_it_is(text: str) -> None:
    assert moments_in_zone(text, "Asia/Kolkata") == text


def test_an_error_tells_its_moments_in_the_zone_in_all_its_texts() -> None:
    error = CommitConflictError(MADE.format("2026-11-01 06:30:00 UTC"), hint="Run it again.")
    tell_moments(error, "Asia/Kolkata")
    for text in (error.text(), str(error), repr(error)):
        assert "2026-11-01 12:00:00 Asia/Kolkata" in text and "UTC" not in text
