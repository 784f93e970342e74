"""Parses option values as Paimon's `Options` does.

Follows `OptionsUtils.convertValue`, `MemorySize.parse` and `TimeUtils.parseDuration` of Paimon. For
text that can't be parsed, every function raises InvalidTableError with the option, the text and an
example.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from zoneinfo import ZoneInfo

from paimon_magics.errors import InvalidTableError, InvalidValueError, nearest
from paimon_magics.planning.formatting import shortened

TAG_DAYS_MAX = 1_000_000
"""How long a tag may be kept, in days. Java and Python may not have the day of a later end."""


_INT = (-(2**31), 2**31 - 1)
_LONG = (-(2**63), 2**63 - 1)
_DIGITS_MAX = 100
_SHOWN_MAX = 100

_BYTES_OF_UNIT: dict[str, int] = {
    unit: int(1024**power)
    for power, units in enumerate(
        (
            ("", "b", "bytes"),
            ("k", "kb", "kibibytes"),
            ("m", "mb", "mebibytes"),
            ("g", "gb", "gibibytes"),
            ("t", "tb", "tebibytes"),
        )
    )
    for unit in units
}

_MS_OF_UNIT: dict[str, float] = {
    unit: ms
    for ms, units in (
        (86_400_000.0, ("d", "day", "days")),
        (3_600_000.0, ("h", "hour", "hours")),
        (60_000.0, ("m", "min", "minute", "minutes")),
        (1_000.0, ("s", "sec", "secs", "second", "seconds")),
        (1.0, ("", "ms", "milli", "millis", "millisecond", "milliseconds")),
        (0.001, ("µs", "micro", "micros", "microsecond", "microseconds")),
        (0.000001, ("ns", "nano", "nanos", "nanosecond", "nanoseconds")),
    )
    for unit in units
}

_TAG_PERIOD_DAYS_MAX = 36_500
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?[+-](\d{1,2})(?::?([0-5]\d))?")
_NUMBER_AND_UNIT = re.compile(r"\s*(\d+)\s*(.*?)\s*", re.DOTALL)


def boolean_value(key: str, text: str) -> bool:
    """`true` or `false`, in any case."""
    match text.upper():
        case "TRUE":
            return True
        case "FALSE":
            return False
    raise _unreadable(key, text, "true or false")


def integer_value(key: str, text: str, *, bits: int = 32) -> int:
    """A whole number of 32 or 64 bits."""
    low, high = _INT if bits == 32 else _LONG
    if re.fullmatch(r"[+-]?[0-9]+", text) and low <= _number(text) <= high:
        return int(text)
    raise _unreadable(key, text, f"a whole number between {low} and {high}")


def positive_value(key: str, text: str) -> int:
    """A whole number of 64 bits above 0."""
    if re.fullmatch(r"\+?[0-9]+", text) and 0 < _number(text) <= _LONG[1]:
        return int(text)
    raise _unreadable(key, text, "a whole number above 0")


def double_value(key: str, text: str) -> float:
    """A decimal number."""
    try:
        return float(text)
    except ValueError:
        raise _unreadable(key, text, "a number such as 0.5") from None


def memory_size_bytes(key: str, text: str) -> int:
    """A size such as `128 mb`, in bytes (also the default unit). Units are powers of 1024."""
    match = _NUMBER_AND_UNIT.fullmatch(text)
    multiplier = _BYTES_OF_UNIT.get(match[2].lower()) if match else None
    if match is None or multiplier is None or _number(match[1]) * multiplier > _LONG[1]:
        raise _unreadable(key, text, "a size such as '128 mb' (units b, kb, mb, gb, tb)")
    return int(match[1]) * multiplier


def duration_ms(key: str, text: str) -> float:
    """A duration such as `10 s` or `1 h`, in milliseconds (also the default unit)."""
    match = _NUMBER_AND_UNIT.fullmatch(text)
    multiplier = _MS_OF_UNIT.get(match[2].lower()) if match else None
    if match is None or multiplier is None or _number(match[1]) > _LONG[1]:
        raise _unreadable(key, text, "a duration such as '10 s' (units ms, s, min, h, d)")
    return int(match[1]) * multiplier


def retention_ms(key: str, text: str) -> float:
    """How long a tag is kept, in milliseconds."""
    retained_ms = duration_ms(key, text)
    if retained_ms > TAG_DAYS_MAX * _MS_OF_UNIT["d"]:
        raise _unreadable(key, text, f"at most {TAG_DAYS_MAX} d")
    return retained_ms


def tag_period_ms(key: str, text: str) -> float:
    """The period of automatic tags, in milliseconds: longer than 0 and at most a hundred years."""
    period_ms = duration_ms(key, text)
    if not 0 < period_ms <= _TAG_PERIOD_DAYS_MAX * _MS_OF_UNIT["d"]:
        raise _unreadable(key, text, f"longer than 0 ms, and at most {_TAG_PERIOD_DAYS_MAX} d")
    return period_ms


def zone_value(key: str, text: str) -> str:
    """A time zone as Java's `ZoneId` takes them: a region, or an offset of at most 18 hours."""
    offset = _OFFSET.fullmatch(text)
    if text == "Z" or (offset is not None and int(offset[1]) * 60 + int(offset[2] or 0) <= 18 * 60):
        return text
    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError):  # ZoneInfoNotFoundError is a KeyError
        raise _unreadable(key, text, "a time zone such as 'Asia/Tokyo' or '+08:00'") from None
    return text


def choice_value(key: str, text: str, choices: Sequence[str]) -> str:
    """The one of `choices` that `text` names, in any case; returned as Paimon spells it."""
    choice = {each.lower(): each for each in choices}.get(text.lower())
    if choice is None:
        raise InvalidTableError(
            f"The option '{key}' can't be '{text}'.",
            hint=nearest(text, choices, what=f"values of '{key}'"),
        )
    return choice


def _number(digits: str) -> float:
    """The whole number of digits with a sign; an infinite one for more digits than any option has,
    which Python may refuse to read."""
    return int(digits) if len(digits.lstrip("+-0")) <= _DIGITS_MAX else math.inf


def _unreadable(key: str, text: str, wanted: str) -> InvalidTableError:
    return InvalidTableError(
        f"The option '{key}' can't be '{shortened(text, _SHOWN_MAX)}'.",
        hint=f"Its value must be {wanted}.",
    )


def option_pairs(text: str, example: str) -> Iterator[tuple[str, str]]:
    """The options that a procedure's parameter `options` lists. Raises InvalidValueError."""
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = pair.partition("=")
        if not equals:
            raise InvalidValueError(
                f"`options` has '{pair}', which is not an option with its value.",
                hint=f"Write options => '{example}'.",
            )
        yield key.strip(), value.strip()
