"""Moments in messages, converted to the session's zone.

A committer or a coordinator in another process knows no session, so its messages write a moment as
`2026-11-20 08:00:00 UTC`. Before a message leaves a session, its moments are converted to the zone
that the user's cells show.
"""

from __future__ import annotations

import datetime
import re

from paimon_magics.columnar.time_zones import UTC, clock_text, rules_of
from paimon_magics.errors import PaimonMagicsError

__all__ = ["moments_in_zone", "tell_moments"]

# A moment between quotes is a user's value and stays.
_MOMENT = re.compile(r"(?<!['\"`\w])(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC\b(?!['\"`])")


def moments_in_zone(text: str, zone: str) -> str:
    """Return the text with its moments in `zone`, each followed by the zone's name."""
    rules = rules_of(zone)

    def told(found: re.Match[str]) -> str:
        try:
            moment = datetime.datetime.fromisoformat(f"{found[1]}+00:00").astimezone(rules)
        except (ValueError, OverflowError):
            return found[0]
        return f"{clock_text(moment)} {zone}"

    return text if zone == UTC else _MOMENT.sub(told, text)


def tell_moments(error: PaimonMagicsError, zone: str) -> None:
    """Convert the moments in an error that leaves a session to the session's zone."""
    error.message = moments_in_zone(error.message, zone)
    error.hint = moments_in_zone(error.hint, zone)
    error.args = (error.message, *error.args[1:])
