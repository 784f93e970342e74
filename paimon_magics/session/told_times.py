"""Moments in messages, told in the session's zone.

Those who make messages (a committer, a coordinator in another process) know no session, and tell a
moment as `2026-11-20 08:00:00 UTC`. What leaves a session tells it as its user's cells do.
"""

from __future__ import annotations

import datetime
import re

from paimon_magics.columnar.time_zones import UTC, clock_text, rules_of
from paimon_magics.errors import PaimonMagicsError

__all__ = ["moments_in_zone", "tell_moments"]

# Not one between quotes: that is somebody's value.
_MOMENT = re.compile(r"(?<!['\"`\w])(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC\b(?!['\"`])")


def moments_in_zone(text: str, zone: str) -> str:
    """The text with its moments in `zone`, which stands behind each of them."""
    rules = rules_of(zone)

    def told(found: re.Match[str]) -> str:
        try:
            moment = datetime.datetime.fromisoformat(f"{found[1]}+00:00").astimezone(rules)
        except (ValueError, OverflowError):
            return found[0]
        return f"{clock_text(moment)} {zone}"

    return text if zone == UTC else _MOMENT.sub(told, text)


def tell_moments(error: PaimonMagicsError, zone: str) -> None:
    """Let an error that leaves a session tell its moments in the session's zone."""
    error.message = moments_in_zone(error.message, zone)
    error.hint = moments_in_zone(error.hint, zone)
    error.args = (error.message, *error.args[1:])
