"""JSON values of columns: which values each Paimon type accepts, and how they become Arrow values.

The validator checks requests by these rules, and the flusher reads the log by the same rules, so
all accepted values can be written. The forms:

    BOOLEAN true · integers 7 · FLOAT, DOUBLE 1.5, "NaN", "Infinity", "-Infinity"
    DECIMAL "1.50", or a number that is exact · CHAR, VARCHAR, STRING "text"
    BINARY, VARBINARY, BYTES base64 · DATE "2026-11-21" · TIME "10:30:00.5"
    TIMESTAMP "2026-11-21 10:30:00.5" · TIMESTAMP_LTZ the same with Z or +01:00 at its end
    ARRAY […] · MAP {"key": …}, or [[key, value], …] · ROW {"field": …}, or […]

CHAR and VARCHAR follow Spark: excess trailing spaces are cut, other excess characters are refused,
and CHAR is padded. Fractional digits of a second beyond the column's precision are refused, unless
they are zeros.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from functools import partial
from typing import Any

from paimon_magics.coordinator.protocol.json_text import EXACT_DIGITS, LongNumber
from paimon_magics.planning.formatting import shortened
from paimon_magics.planning.schemas.defaults import default_text
from paimon_magics.statements.data_types import (
    INTEGER_BITS,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    VectorType,
    as_nullable,
)

Reader = Callable[[Any], Any]
"""Returns the value for Arrow. Raises ValueError, which names the expected form and the given
value.
"""

_FLOAT_MAX = 3.4028235677973366e38  # smaller numbers round to a finite float
_DOUBLES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NAMES = {repr(number): name for name, number in _DOUBLES.items()}
_EXACTLY = Context(prec=100)
# Python's Decimal also takes spaces, underscores, and the digits of all scripts.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME = re.compile(r"(\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?")
_TIMESTAMP = re.compile(
    r"(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?(Z|[+-]\d{2}:\d{2})?"
)
_EPOCH = datetime.datetime(1970, 1, 1)
# The years 1 to 9999, in seconds since the epoch: what SQL has, and all engines read.
CALENDAR_SECONDS = (-719_162 * 86_400, 2_932_897 * 86_400)
_NS = 10**9
# The timestamps that 64 bits of nanoseconds can hold, in whole seconds.
_NS_SECONDS_MAX = 2**63 // _NS - 1
_SHOWN_MAX = 60


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """Checks and reads the values of one column.

    `read` converts one value; it is None if values need no conversion. `is_plain` returns whether
    all values of a sequence are certainly valid, so that `check` need not look at each.
    """

    nullable: bool
    check: Reader
    read: Reader | None
    is_plain: Callable[[Sequence[Any]], bool]


def column_reader(data_type: DataType) -> ColumnReader | None:
    """The reader for a type; None for a type whose values have no JSON form."""
    reader = _reader(data_type)
    if reader is None:
        return None
    name = data_type.name if isinstance(data_type, AtomicType) else ""
    null: set[type] = {type(None)} if data_type.nullable else set()
    plain: Callable[[Sequence[Any]], bool]
    match name:
        case "BOOLEAN":
            plain = partial(_all_of, {bool} | null)
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
            plain = partial(_all_integers, 2 ** (INTEGER_BITS[name] - 1))
        case "STRING":
            plain = partial(_all_of, {str} | null)
        case "DOUBLE":
            plain = partial(_all_finite, {float, LongNumber} | null)
        case _:
            plain = _never
    as_they_are = name in ("BOOLEAN", "STRING", *INTEGER_BITS)
    return ColumnReader(data_type.nullable, reader, None if as_they_are else reader, plain)


def default_value(data_type: DataType, stored: str) -> Any:
    """The value of a column's stored default, in its JSON form.

    Raises ValueError for defaults that can't be read without an engine.
    """
    text = default_text(stored)
    name = data_type.name if isinstance(data_type, AtomicType) else ""
    match name:
        case "BOOLEAN":
            return text.lower() == "true"
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
            return int(text)
        case "FLOAT" | "DOUBLE":
            number = float(text)
            return number if math.isfinite(number) else _NAMES[repr(number)]
        case "BYTES" | "BINARY" | "VARBINARY":
            return base64.b64encode(text.encode()).decode()
        case "DECIMAL" | "STRING" | "CHAR" | "VARCHAR" | "DATE":
            return text
        case "TIMESTAMP":
            match = re.fullmatch(r"(\S+)(?:[ T](\d{2}:\d{2})(:\d{2})?(\.\d{1,9})?)?", text)
            if match is None:
                raise ValueError(f"its default {stored} is not a timestamp")
            return f"{match[1]} {match[2] or '00:00'}{match[3] or ':00'}{match[4] or ''}"
        case _:
            raise ValueError(f"its default {stored} needs an engine that reads it")


def _never(_: Sequence[Any]) -> bool:
    return False


def _all_of(types: set[type], values: Sequence[Any]) -> bool:
    return types.issuperset(map(type, values))


def _all_finite(types: set[type], values: Sequence[Any]) -> bool:
    return _all_of(types, values) and math.inf not in values and -math.inf not in values


def _all_integers(half: int, values: Sequence[Any]) -> bool:
    return bool(set(map(type, values)) == {int} and max(values) < half and min(values) >= -half)


def _reader(data_type: DataType) -> Reader | None:
    """The reader of a type's values, which accepts NULL where the type allows it."""
    inner = _reader_of_values(data_type)
    if inner is None:
        return None
    return partial(_nullable if data_type.nullable else _not_null, inner)


def _nullable(inner: Reader, value: Any) -> Any:
    return None if value is None else inner(value)


def _not_null(inner: Reader, value: Any) -> Any:
    if value is None:
        raise ValueError("NULL is not allowed here")
    return inner(value)


def _reader_of_values(data_type: DataType) -> Reader | None:
    match data_type:
        case AtomicType():
            return _atomic(data_type.name, data_type.parameters)
        case ArrayType(element=element):
            element_reader = _reader(element)
            return None if element_reader is None else partial(_array, element_reader)
        case MapType(key=key, value=value):
            keys, values = _reader(as_nullable(key, False)), _reader(value)
            return None if keys is None or values is None else partial(_map, keys, values)
        case RowType(fields=fields):
            readers = [(field.name, _reader(field.type)) for field in fields]
            known = [(name, reader) for name, reader in readers if reader is not None]
            return partial(_row, known) if len(known) == len(readers) else None
        case MultisetType() | VectorType():
            return None


def _atomic(name: str, parameters: tuple[int, ...]) -> Reader | None:
    match name:
        case "BOOLEAN":
            return _boolean
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
            return partial(_integer, name, 2 ** (INTEGER_BITS[name] - 1))
        case "FLOAT" | "DOUBLE":
            return partial(_float, name == "FLOAT")
        case "DECIMAL":
            return partial(_decimal, *parameters)
        case "STRING":
            return _text
        case "CHAR" | "VARCHAR":
            return partial(_bounded_text, name == "CHAR", *parameters)
        case "BYTES":
            return partial(_binary, None, False)
        case "BINARY" | "VARBINARY":
            return partial(_binary, parameters[0], name == "BINARY")
        case "DATE":
            return _date
        case "TIME":
            return partial(_time, *parameters)
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            return partial(_timestamp, parameters[0], name == "TIMESTAMP_LTZ")
        case _:
            return None


def _boolean(value: Any) -> Any:
    if type(value) is not bool:
        raise _expected("true or false", value)
    return value


def _integer(name: str, half: int, value: Any) -> Any:
    if type(value) is not int:
        raise _expected("a whole number", value)
    if not -half <= value < half:
        raise ValueError(f"{value} does not fit into {name}")
    return value


def _float(is_single: bool, value: Any) -> Any:
    if type(value) is str and value in _DOUBLES:
        return _DOUBLES[value]
    if type(value) is not int and not isinstance(value, float):
        raise _expected("a number", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number) or (is_single and abs(number) >= _FLOAT_MAX):
        shown = "a number beyond 1.8e308" if repr(value).endswith("inf") else _shown(value)
        raise ValueError(f"{shown} does not fit into {'FLOAT' if is_single else 'DOUBLE'}")
    return number


def _decimal(precision: int, scale: int, value: Any) -> Any:
    is_float = isinstance(value, float)
    if type(value) not in (str, int) and not is_float:
        raise _expected("a number, or its digits as text", value)
    if type(value) is str and not _NUMBER.fullmatch(value):
        raise _expected("the digits of a number", value)
    try:
        number = Decimal(repr(value) if is_float else value)
    except InvalidOperation:
        raise _expected("the digits of a number", value) from None
    if not number.is_finite():
        raise _expected("a number", value)
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    stripped = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    if is_float and len(digits) - stripped > EXACT_DIGITS:
        raise ValueError(
            f"{_shown(value)} has more digits than a JSON number keeps: send it as text"
        )
    if number == 0:
        return Decimal(0)
    if -(exponent + stripped) > scale or len(digits) + exponent > precision - scale:
        raise ValueError(f"{_shown(value)} does not fit into DECIMAL({precision}, {scale})")
    return number.quantize(Decimal(1).scaleb(-scale), context=_EXACTLY)


def _text(value: Any) -> Any:
    if type(value) is not str:
        raise _expected("a text", value)
    return value


def _bounded_text(padded: bool, length: int, value: Any) -> Any:
    text: str = _text(value)
    if len(text) > length:
        text = text[:length] + text[length:].rstrip(" ")
        if len(text) > length:
            kind = "CHAR" if padded else "VARCHAR"
            raise ValueError(f"{_shown(value)} is longer than {kind}({length})")
    return text.ljust(length) if padded else text


def _binary(length: int | None, exact: bool, value: Any) -> Any:
    if type(value) is not str:
        raise _expected("bytes in base64", value)
    try:
        content = base64.b64decode(value, validate=True)
    except binascii.Error:
        raise _expected("bytes in base64", value) from None
    if length is not None and (len(content) > length or (exact and len(content) != length)):
        raise ValueError(
            f"{len(content)} bytes where {'exactly' if exact else 'at most'} {length} are expected"
        )
    return content


def _date(value: Any) -> Any:
    if type(value) is not str or not _DATE.fullmatch(value):
        raise _expected('a date as "2026-11-21"', value)
    try:
        return datetime.date.fromisoformat(value)
    except ValueError:
        raise _expected("a day of the calendar", value) from None


def _time(precision: int, value: Any) -> Any:
    match = _TIME.fullmatch(value) if type(value) is str else None
    if match is None:
        raise _expected('a time as "10:30:00.5"', value)
    seconds = _seconds_of_day(match[1], value)
    return seconds * 1000 + int(_fraction(match[2], min(precision, 3), value)[:3])


def _timestamp(precision: int, is_zoned: bool, value: Any) -> Any:
    """The number of Arrow's units since the epoch."""
    match = _TIMESTAMP.fullmatch(value) if type(value) is str else None
    if match is None or (match[4] is not None) != is_zoned:
        form = '"2026-11-21T10:30:00.5Z", with its zone' if is_zoned else '"2026-11-21 10:30:00.5"'
        raise _expected(f"a timestamp as {form}", value)
    seconds = _seconds_of_day(match[2], value)
    seconds += (_date(match[1]) - _EPOCH.date()).days * 86_400
    if is_zoned and match[4] != "Z":
        hours, minutes = int(match[4][1:3]), int(match[4][4:6])
        if hours > 18 or minutes > 59:
            raise _expected("a zone between -18:00 and +18:00", value)
        offset = hours * 3600 + minutes * 60
        seconds -= offset if match[4][0] == "+" else -offset
        if not CALENDAR_SECONDS[0] <= seconds < CALENDAR_SECONDS[1]:
            raise _expected("a time of the calendar, in UTC too", value)
    digits = 0 if precision == 0 else 3 if precision <= 3 else 6 if precision <= 6 else 9
    if digits == 9 and not -_NS_SECONDS_MAX < seconds < _NS_SECONDS_MAX:
        raise ValueError(f"{value} does not fit into a timestamp of nanoseconds")
    fraction = _fraction(match[3], precision, value)
    return seconds * 10**digits + int(fraction[:digits] or 0)


def _fraction(digits: str | None, precision: int, value: Any) -> str:
    """The nine fractional digits of a second. Raises ValueError for a digit beyond `precision` that
    is not 0.
    """
    fraction = (digits or "").ljust(9, "0")
    if fraction[precision:].strip("0"):
        limit = f"{precision} digits" if precision else "no digits"
        raise ValueError(f"{_shown(value)} where the column keeps {limit} of a second")
    return fraction


def _seconds_of_day(text: str, value: Any) -> int:
    hours, minutes, seconds = (int(part) for part in text.split(":"))
    if hours > 23 or minutes > 59 or seconds > 59:
        raise _expected("a time of the day", value)
    return hours * 3600 + minutes * 60 + seconds


def _array(element_reader: Reader, value: Any) -> Any:
    if type(value) is not list:
        raise _expected("a list", value)
    return [element_reader(element) for element in value]


def _map(keys: Reader, values: Reader, value: Any) -> Any:
    if type(value) is dict:
        pairs: Any = value.items()
    elif type(value) is list and all(type(pair) is list and len(pair) == 2 for pair in value):
        pairs = value
    else:
        raise _expected("an object, or a list of [key, value]", value)
    read = [(keys(key), values(item)) for key, item in pairs]
    if len({key for key, _ in read if not isinstance(key, list | dict)}) < len(read):
        raise _expected("keys that differ", value)
    return read


def _row(fields: Sequence[tuple[str, Reader]], value: Any) -> Any:
    if type(value) is dict:
        unknown = set(value) - {name for name, _ in fields}
        if unknown:
            raise ValueError(f"the row has no field `{min(unknown)}`")
        return {name: reader(value.get(name)) for name, reader in fields}
    if type(value) is not list or len(value) != len(fields):
        raise _expected(f"an object, or a list of {len(fields)} values", value)
    return {name: reader(item) for (name, reader), item in zip(fields, value, strict=True)}


def _expected(what: str, value: Any) -> ValueError:
    return ValueError(f"{_shown(value)} where {what} is expected")


def _shown(value: Any) -> str:
    text = repr(value) if type(value) is not str else f'"{value}"'
    return shortened(text, _SHOWN_MAX)
