"""Bind parameters: the values of `:name` in a statement, checked before Spark gets them."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from paimon_magics.errors import InvalidValueError, UnknownNameError, likely_meant, value_text
from paimon_magics.session.given_times import instant

__all__ = ["bind"]

# Types that Spark makes literals of, besides its own columns and numpy's arrays.
_BOUND_AS_THEY_ARE = (
    *(bool, int, float, decimal.Decimal, str, bytes, bytearray),
    *(datetime.date, datetime.time, datetime.timedelta, list, type(None)),
)
_GREGORIAN_FROM = (1582, 10, 15)
_FOUR_DIGITS_FROM = 1000
_MISSING = ("NAType", "NaTType")


def bind(
    names: Sequence[str], values: Mapping[str, object], statement: str, zone: str
) -> dict[str, object]:
    """Return the values of `names` as Spark binds them. A `datetime` without a zone is a wall clock
    time of the session's `zone` (Spark alone would take the zone of this process).

    Raises UnknownNameError for a missing value, InvalidValueError for one that Spark can't bind (a
    DataFrame, a dict, a function, …) or would shift.
    """
    bound: dict[str, object] = {}
    for name in names:
        if name not in values:
            visible = [key for key in values if not key.startswith("_")]
            raise UnknownNameError(
                f"The parameter `:{name}` has no value.",
                hint=_hint(name, visible),
                statement=statement,
                position=_position(statement, name),
            )
        value = _plain(values[name])
        if not isinstance(value, _BOUND_AS_THEY_ARE) and type(value).__name__ not in (
            "Column",
            "ndarray",
        ):
            raise InvalidValueError(
                f"The parameter `:{name}` is {value_text(value)}, not a value.",
                hint="Bind numbers, texts, dates or lists; read a DataFrame through a temporary "
                "view.",
                statement=statement,
                position=_position(statement, name),
            )
        if _is_shifted(value):
            raise InvalidValueError(
                f"The parameter `:{name}` is {value}; PySpark uses another calendar for such early "
                "days, and would bind another day.",
                hint=f"Pass a text, and cast it in the statement: CAST(:{name} AS TIMESTAMP).",
                statement=statement,
                position=_position(statement, name),
            )
        bound[name] = _in_zone(value, zone)
    return bound


def _in_zone(value: object, zone: str) -> object:
    match value:
        case datetime.datetime():
            moment = instant(value, zone)
            with suppress(OverflowError):  # beyond the first or last year
                return moment.astimezone(datetime.UTC)
            return moment
        case list():
            return [_in_zone(one, zone) for one in value]
    return value


def _is_shifted(value: Any) -> bool:
    """Whether PySpark would hand the JVM another moment or fail: it uses Java's old date classes,
    which are Julian before 1582-10-15, and writes years without leading zeros."""
    if isinstance(value, datetime.datetime):
        return (value.year, value.month, value.day) < _GREGORIAN_FROM
    if not isinstance(value, datetime.date):
        return False
    # Dates are passed as text, which fails only for the days that the change of calendars skipped.
    left_out = (1582, 10, 4) < (value.year, value.month, value.day) < _GREGORIAN_FROM
    return left_out or value.year < _FOUR_DIGITS_FROM


def _plain(value: object) -> object:
    """Convert numpy's scalars, pandas' missing values and tuples to Python's own values."""
    if type(value).__name__ in _MISSING:
        return None
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        number: Any = value
        if type(value).__name__ in ("datetime64", "timedelta64"):
            # For nanoseconds, pandas' default unit, `item` would give a plain number.
            number = number.astype(f"{type(value).__name__}[us]")
        return number.item()
    return list(value) if isinstance(value, tuple) else value


def _hint(name: str, visible: Sequence[str]) -> str:
    advice = f"Define `{name}` first, or pass it among the parameters."
    return f"{likely_meant(name, visible)} {advice}".lstrip()


def _position(statement: str, name: str) -> int | None:
    found = re.search(rf"(?<![:\w]):{re.escape(name)}\b", statement)
    return found.start() if found else None
