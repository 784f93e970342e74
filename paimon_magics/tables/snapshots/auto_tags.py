"""Names of the tags that Paimon creates automatically: formatted times (`TagPeriodHandler`)."""

from __future__ import annotations

import datetime
from collections.abc import Callable

__all__ = ["auto_tag_pattern", "auto_tag_time"]

_PERIODS = {
    "daily": ("%Y-%m-%d", "%Y%m%d", "%Y%m%d"),
    "hourly": ("%Y-%m-%d %H", "%Y%m%d %H", "%Y%m%d%H"),
    "two-hours": ("%Y-%m-%d %H", "%Y%m%d %H", "%Y%m%d%H"),
}
_FORMATTERS = ("with_dashes", "without_dashes", "without_dashes_and_spaces")


def auto_tag_pattern(option: Callable[[str], str | None]) -> str | None:
    """The `strftime` pattern for the names of a table's automatic tags; None if it has none.

    `option` gives the value of a table option.
    """
    patterns = _PERIODS.get((option("tag.creation-period") or "").lower())
    formatter = (option("tag.period-formatter") or "with_dashes").lower()
    if patterns is None or formatter not in _FORMATTERS:
        return None
    return patterns[_FORMATTERS.index(formatter)]


def auto_tag_time(name: str, pattern: str) -> datetime.datetime | None:
    """The time in a tag's name; None for a name of another form."""
    try:
        found = datetime.datetime.strptime(name, pattern)
    except ValueError:
        return None
    return found if found.strftime(pattern) == name else None
