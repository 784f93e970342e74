"""Bind parameters: the values of `:name` in a statement, checked before Spark gets them."""

from __future__ import annotations

import datetime
import decimal
import math
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from paimon_magics.errors import InvalidValueError, UnknownNameError, likely_meant, value_text
from paimon_magics.planning.formatting import shortened
from paimon_magics.session.times import instant, plain_datetime
from paimon_magics.session.value_inputs import (
    BIGINT,
    REPLACE_HALF,
    CutValueError,
    HalfCharacterError,
    kind_of,
    plain,
    shown,
)
from paimon_magics.statements.clauses.names import text_literal
from paimon_magics.statements.queries.query_text import parameter_ranges

# Types that Spark makes literals of, besides its own columns and numpy's arrays.
_BOUND_AS_THEY_ARE = (
    *(bool, int, float, decimal.Decimal, str, bytes, bytearray),
    *(datetime.date, datetime.time, datetime.timedelta, list, type(None)),
)
_GREGORIAN_FROM = (1582, 10, 15)
_FOUR_DIGITS_FROM = 1000
_TRANSITIONS_FROM = 1900
_DECIMAL_DIGITS_MAX = 38
_INT = range(-(2**31), 2**31)
_AS_TEXT = "Pass a string, and cast it in the statement: CAST(:name AS TIMESTAMP)."
_DATE_AS_TEXT = _AS_TEXT.replace("TIMESTAMP", "DATE")
_AS_DOUBLE = "Bind a float or a string, and cast it in the statement: CAST(:name AS DOUBLE)."
_HINT = "Bind numbers, strings, dates or lists; read a DataFrame through a temporary view."


_SHOWN_MAX = 80


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
        try:
            value = _bindable(values[name])
        except _UnboundError as error:
            raise InvalidValueError(
                f"The parameter `:{name}` is {error}.",
                hint=error.hint.replace(":name", f":{name}"),
                statement=statement,
                position=_position(statement, name),
            ) from None
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
            return [_in_zone(item, zone) for item in value]
    return value


class _UnboundError(Exception):
    """A value that can't be bound; the text goes on after "is"."""

    def __init__(self, text: str, hint: str) -> None:
        super().__init__(text)
        self.hint = hint


def _bindable(value: object) -> object:
    """The value as part that Spark makes a literal of. Raises _UnboundError."""
    if type(value).__name__ == "Column" or type(value).__name__ == "ndarray":
        return value
    try:
        plain_value = plain(value)
    except HalfCharacterError as error:
        raise _UnboundError(f"{shown(value)}: {error}", REPLACE_HALF) from None
    except CutValueError as error:
        raise _UnboundError(f"{shown(value)}: {error}", _AS_TEXT) from None
    if isinstance(plain_value, list | tuple):
        return _array_of([_bindable(part) for part in plain_value])
    if not isinstance(plain_value, _BOUND_AS_THEY_ARE):
        raise _UnboundError(f"{value_text(value)}, which can't be bound", _HINT)
    if _is_shifted(plain_value):
        raise _UnboundError(
            f"{value!s}; PySpark uses another calendar for such early days, and would bind another "
            "day",
            _AS_TEXT if isinstance(plain_value, datetime.datetime) else _DATE_AS_TEXT,
        )
    if isinstance(plain_value, datetime.datetime) and _has_other_offset(plain_value):
        raise _UnboundError(
            f"{value!s}; for days before 1900 PySpark uses today's offset of this machine's zone, "
            "and would bind another moment",
            _AS_TEXT,
        )
    if isinstance(plain_value, int) and plain_value not in BIGINT:
        plain_value = decimal.Decimal(plain_value)  # as SQL reads a whole number of so many digits
    if isinstance(plain_value, decimal.Decimal) and not _fits(plain_value):
        raise _UnboundError(f"{shown(value)}, which no DECIMAL of 38 digits holds", _AS_DOUBLE)
    return plain_value


def _fits(number: decimal.Decimal) -> bool:
    return number.is_finite() and _digits(number)[0] <= _DECIMAL_DIGITS_MAX


def _array_of(values: list[Any]) -> object:
    """The values of a list, which Spark binds where all have value type."""
    if not values:
        raise _UnboundError("an empty list, which has no type", "Write array() in the statement.")
    if any(value is None for value in values):
        raise _UnboundError(
            "a list with None in it, which Spark can't bind",
            "Leave None out, and test for NULL in the statement: … OR column IS NULL.",
        )
    kinds = {kind_of(value) for value in values}
    if kinds == {"integer", "float"}:
        return [float(value) for value in values]
    if kinds == {"integer"} and any(value not in _INT for value in values):
        return np.array(values, np.int64)  # whose elements have value type in Spark
    if kinds == {"integer", "decimal"}:
        values, kinds = [decimal.Decimal(value) for value in values], {"decimal"}
    if len(kinds) > 1:
        first = {kind_of(value): value for value in reversed(values)}
        texts = " and ".join(f"{kind} ({shown(value)})" for kind, value in sorted(first.items()))
        raise _UnboundError(
            f"a list of values without a common type: {texts}", "Convert them to one type first."
        )
    if kinds == {"decimal"} and len({_digits(value) for value in values}) > 1:
        raise _UnboundError(
            "a list of Decimals with different numbers of digits, which Spark can't bind",
            "Bind each of them: … IN (:first, :second).",
        )
    return values


def _digits(number: decimal.Decimal) -> tuple[int, int]:
    """Precision and scale of the DECIMAL that Spark makes of a number."""
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    scale = max(-exponent, 0)
    return max(len(digits) + max(exponent, 0), scale), scale


def _is_shifted(value: Any) -> bool:
    """Whether PySpark would pass the JVM another moment or fail: it uses Java's old date classes,
    which are Julian before 1582-10-15, and writes years without leading zeros."""
    if isinstance(value, datetime.datetime):
        return (value.year, value.month, value.day) < _GREGORIAN_FROM
    if not isinstance(value, datetime.date):
        return False
    # Dates are passed as text, which fails only for the days that the change of calendars skipped.
    left_out = (1582, 10, 4) < (value.year, value.month, value.day) < _GREGORIAN_FROM
    return left_out or value.year < _FOUR_DIGITS_FROM


def _has_other_offset(value: datetime.datetime) -> bool:
    """Whether PySpark would pass the JVM another moment because of the zone: Java's old date
    classes know no transitions before 1900 (`ZoneInfo.UTC1900`), and Spark's correction uses them
    (`RebaseDateTime.rebaseJulianToGregorianMicros`)."""
    if value.year >= _TRANSITIONS_FROM:
        return False
    moment = plain_datetime(value)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return moment.astimezone().utcoffset() != datetime.timedelta(seconds=-time.timezone)


def _hint(name: str, visible: Sequence[str]) -> str:
    advice = f"Define `{name}` first, or pass it among the parameters."
    return f"{likely_meant(name, visible)} {advice}".lstrip()


def _position(statement: str, name: str) -> int | None:
    match = re.search(rf"(?<![:\w]):{re.escape(name)}\b", statement)
    return match.start() if match else None


# A statement with its bind values as literals: to show it, and to run it on its own.


def with_values(text: str, values: Mapping[str, object]) -> str:
    """Return the statement with literals in place of its `:name`s. A name whose value has no
    literal (a Spark column, a numpy array) stays."""
    parts, end = [], 0
    for place, name in parameter_ranges(text):
        shown_value = literal(values.get(name, ...))
        if shown_value is not None:
            parts += [text[end : place.start], shown_value]
            end = place.end
    return "".join([*parts, text[end:]])


def bindings_text(values: Mapping[str, object]) -> str:
    """The values in one line: `:day = '2026-11-20', :n = 3`; "" without values."""
    return ", ".join(
        f":{name} = {shortened(literal(value) or repr(value), _SHOWN_MAX)}"
        for name, value in values.items()
    )


def literal(value: object) -> str | None:
    """Return the SQL literal that equals what Spark makes of a bound value; None if there is
    none."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case int():
            return f"({value})" if value < 0 else str(value)
        case float():
            return f"double('{value}')" if not math.isfinite(value) else f"({value!r}D)"
        case decimal.Decimal() if value.is_finite():
            return f"({value:f}BD)"
        case str():
            return text_literal(value)
        case bytes() | bytearray():
            return f"X'{value.hex()}'"
        case datetime.datetime():
            # Without a zone it is in this process's zone, which may differ from Spark's.
            moment = plain_datetime(value)
            moment = moment if moment.tzinfo is not None else moment.astimezone(datetime.UTC)
            return f"TIMESTAMP'{moment.isoformat(sep=' ')}'"
        case datetime.date():
            return f"DATE'{value.isoformat()}'"
        case list():
            items = [literal(item) for item in value]
            return None if None in items else f"array({', '.join(map(str, items))})"
        case _:
            return None
