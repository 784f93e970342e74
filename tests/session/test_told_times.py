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
