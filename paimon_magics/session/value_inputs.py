"""Values that a Python program gives, as Arrow columns: each is stored exactly, or refused.

Arrow's own conversion cuts nanoseconds, drops zones and times of day, and reads strings as bytes.
So each value has a *kind* here, which decides with which others it may share a column, and which
types take it.

| kind | Python's types |
| --- | --- |
| boolean | `bool` |
| integer | `int` |
| float | `float` |
| decimal | `decimal.Decimal` |
| text | `str` |
| bytes | `bytes`, `bytearray`, `memoryview` |
| date | `datetime.date` |
| datetime, datetime with a zone | `datetime.datetime`, pandas' `Timestamp` |
| time | `datetime.time` |
| duration | `datetime.timedelta` |
| list | `list`, `tuple`, arrays of numpy |
| row | dictionaries, `Row` of PySpark, named tuples |

Scalars of numpy have the kinds of Python's own. None, NaT and NA are NULL.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.formatting import shortened
from paimon_magics.statements.lexing.tokens import half_character

MISSING = "missing"
_SHOWN_MAX = 40
BIGINT = range(-(2**63), 2**63)
_FLOAT_MAX = 3.4028234663852886e38
_FRACTION_UNITS = {"s": 1_000_000, "ms": 1_000}
_NUMBERS = frozenset({"integer", "float", "decimal"})
# Kinds that have a common type which holds all values of both, or refuses one.
_TOGETHER = (frozenset({"integer", "float"}), frozenset({"integer", "decimal"}))
_SECOND = "it is the second of two equal times (fold=1), which a column without zones can't tell"
_WITH_ZONE = "Give it its zone: value.replace(tzinfo=zoneinfo.ZoneInfo('Europe/Lisbon'))."
_ALWAYS_EXACT = {bool, float, str, bytes, datetime.date}
_NANOSECONDS = "its nanoseconds would be cut off"
_ZONE = "its zone would be lost: a time of day has none"
_CONVERT = "Convert the value first, for example to a string."
REPLACE_HALF = "Replace such halves by `?`: text.encode('utf-8', 'replace').decode()."
_CUT = "something in it would be cut off"
_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    ((bool, np.bool_), "boolean"),
    ((int, np.integer), "integer"),
    ((float, np.floating), "float"),
    (decimal.Decimal, "decimal"),
    (str, "text"),
    ((bytes, bytearray, memoryview), "bytes"),
    ((datetime.datetime, np.datetime64), "datetime"),
    (datetime.date, "date"),
    (datetime.time, "time"),
    ((datetime.timedelta, np.timedelta64), "duration"),
    (Mapping, "row"),
    ((list, tuple, np.ndarray), "list"),
)


_EXACT_TYPES = {
    kind: name
    for types, name in _KINDS
    for kind in (types if isinstance(types, tuple) else (types,))
    if kind is not Mapping
} | {type(None): MISSING, dict: "row"}


class CutValueError(ValueError):
    """A value that no column can hold in full, such as a time with nanoseconds."""


class HalfCharacterError(CutValueError):
    """A text with a lone surrogate, which UTF-8 can't hold."""


def kind_of(value: object) -> str:
    """The kind of a value, or its type's name for a value that has none."""
    kind = _kind_of_type(type(value))
    return "datetime with a zone" if kind == "datetime" and _has_zone(value) else kind


def _kind_of_type(kind: type) -> str:
    known = _EXACT_TYPES.get(kind)
    if known is not None:
        return known
    if kind is type(None) or kind.__name__ in ("NAType", "NaTType"):
        return MISSING
    if issubclass(kind, tuple) and (hasattr(kind, "_fields") or kind.__name__ == "Row"):
        return "row"
    return next((name for types, name in _KINDS if issubclass(kind, types)), kind.__name__)


def _has_zone(value: Any) -> bool:
    return getattr(value, "tzinfo", None) is not None


def plain(value: Any) -> Any:
    """The value as Python's own: scalars of numpy, rows as dictionaries, None for missing values.

    Raises CutValueError for a value that no column can hold in full.
    """
    match _kind_of_type(type(value)):
        case "missing":
            return None
        case "integer" | "float" | "boolean" if isinstance(value, np.generic):
            return value.item()
        case "datetime":
            return _plain_time(value)
        case "time" if value.tzinfo is not None:
            raise CutValueError(_ZONE)
        case "duration":
            return _plain_duration(value)
        case "list" if isinstance(value, np.ndarray):
            return [plain(part) for part in value]
        case "list":
            parts = map(plain, value)
            return tuple(parts) if isinstance(value, tuple) else list(parts)
        case "text" if half := half_character(value):
            raise HalfCharacterError(f"it has half of a character ({half})")
        case "bytes":
            return bytes(value)
        case "row":
            return {key: plain(part) for key, part in fields_of(value).items()}
        case _:
            return value


def fields_of(row: Any) -> Mapping[Any, Any]:
    """The fields of a row by their names. Raises CutValueError for a name that comes twice."""
    if isinstance(row, Mapping):
        return row
    names: Sequence[str] = getattr(row, "__fields__", None) or getattr(row, "_fields", None) or ()
    if len(set(names)) < len(names) or len(names) != len(row):
        raise CutValueError("its fields have no names of their own")
    return dict(zip(names, row, strict=True))


def _plain_time(value: Any) -> Any:
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            return None
        micros = value.astype("datetime64[us]")
        if micros != value:
            raise CutValueError(_NANOSECONDS)
        # A date of the unit day stays one.
        moment = value.item() if np.datetime_data(value)[0] == "D" else micros.item()
        if not isinstance(moment, datetime.date):
            raise CutValueError("its year is beyond 9999")
        return moment
    if getattr(value, "nanosecond", 0):
        raise CutValueError(_NANOSECONDS)
    return value


def _plain_duration(value: Any) -> Any:
    if not isinstance(value, np.timedelta64):
        if getattr(value, "nanoseconds", 0):
            raise CutValueError(_NANOSECONDS)
        return value
    if np.isnat(value):
        return None
    micros = value.astype("timedelta64[us]")
    if micros != value:
        raise CutValueError(_NANOSECONDS)
    return micros.item()


def inferred_array(values: Sequence[Any], column: str) -> pa.Array:
    """The values as an array of their common type. NaN beside values that are not numbers is NULL,
    as in records of pandas.

    Raises InvalidValueError, which names column and row, for values without a common type, and for
    one that no type holds.
    """
    types = set(map(type, values)) - {type(None)}
    if len(types) == 1 and types <= _ALWAYS_EXACT:
        with suppress(UnicodeEncodeError):  # the row is found below
            return pa.array(values)
    numbers = range(1, len(values) + 1)
    common = _common([_plain_of(value, number, column) for number, value in enumerate(values, 1)])
    for number, value in zip(numbers, common, strict=True):
        if _is_second(value):
            raise refused(value, number, column, _SECOND, _WITH_ZONE)
    _check_kinds(common, numbers, column)
    try:
        return pa.array(common)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise _no_common_type(common, numbers, column) from error


def _is_second(value: Any) -> bool:
    """Whether a time without a zone, or one in a list, struct or map, is the second of two that the
    end of summer time makes equal."""
    match value:
        case datetime.datetime(fold=1, tzinfo=None):
            return True
        case list() | tuple():
            return any(map(_is_second, value))
        case dict():
            return any(map(_is_second, value.values()))
    return False


def _common(values: list[Any]) -> list[Any]:
    """NaN as NULL, where it can't be a number of the column."""
    kinds = set(map(_kind_of_type, set(map(type, values)))) - {MISSING}
    if "float" not in kinds or kinds <= {"float", "integer"}:
        return values
    return [None if isinstance(value, float) and math.isnan(value) else value for value in values]


def _plain_of(value: Any, number: int, column: str) -> Any:
    try:
        return plain(value)
    except CutValueError as error:
        hint = REPLACE_HALF if isinstance(error, HalfCharacterError) else _CONVERT
        raise refused(value, number, column, str(error), hint) from None


def refused(
    value: object, number: int, column: str, why: str, hint: str = _CONVERT
) -> InvalidValueError:
    """The error for a value that no column holds."""
    return InvalidValueError(
        f"Column `{column}` can't store {shown(value)} of row {number}: {why}.",
        hint=f"Nothing was written. {hint}",
    )


def _check_kinds(values: Sequence[Any], numbers: Sequence[int], column: str) -> None:
    """Raise InvalidValueError unless the values, and those inside them, have a common type."""
    kinds = {kind for kind in set(map(kind_of, values)) if kind != MISSING}
    if len(kinds) > 1 and kinds not in _TOGETHER:
        raise _no_common_type(values, numbers, column)
    pairs = [pair for pair in zip(values, numbers, strict=True) if pair[0] is not None]
    for value, number in pairs if kinds & _NUMBERS else ():
        if kinds == {"integer"} and value not in BIGINT:
            raise refused(value, number, column, "it has more than the 64 bits of a BIGINT")
        if isinstance(value, decimal.Decimal) and not value.is_finite():
            raise refused(value, number, column, "a DECIMAL has no such value")
    if kinds == {"list"}:
        inner = [(part, number) for value, number in pairs for part in value]
        _check_kinds([part for part, _ in inner], [n for _, n in inner], f"{column}[]")
    elif kinds == {"row"}:
        for value, number in pairs:
            check_names(value, number, column)
        for name in dict.fromkeys(name for value, _ in pairs for name in value):
            parts = [(value[name], number) for value, number in pairs if name in value]
            _check_kinds([part for part, _ in parts], [n for _, n in parts], f"{column}.{name}")


def check_names(row: Mapping[Any, Any], number: int, column: str = "") -> None:
    """Raise InvalidValueError for a row's key that is not a string, or has half of a character: it
    names no column or field."""
    where = f" in column `{column}`" if column else ""
    for key in row:
        if isinstance(key, str) and (half := half_character(key)):
            raise InvalidValueError(
                f"Row {number}{where} has the key {shown(key)} with half of a character ({half}).",
                hint="Nothing was written. Keys are names of columns or fields: rename it.",
            )
        if not isinstance(key, str):
            raise InvalidValueError(
                f"Row {number}{where} has the key {shown(key)}, which is not a string.",
                hint="Nothing was written. Keys are names of columns or fields: "
                "{str(key): value for key, value in row.items()}.",
            )


def _no_common_type(
    values: Sequence[Any], numbers: Sequence[int], column: str
) -> InvalidValueError:
    first: dict[str, tuple[int, object]] = {}
    for value, number in zip(values, numbers, strict=True):
        if value is not None:
            name = type(value).__name__ + (" with a zone" if "zone" in kind_of(value) else "")
            first.setdefault(name, (number, value))
    kinds = ", ".join(
        f"{kind} (row {number}: {shown(value)})" for kind, (number, value) in first.items()
    )
    return InvalidValueError(
        f"The values of column `{column}` have no common type: {kinds}.",
        hint="Nothing was written. Convert them first, for example all to strings.",
    )


def misfit(value: Any, data_type: pa.DataType) -> str | None:
    """Why a `plain` value can't be stored exactly in a column of Arrow's `data_type`: what would be
    lost, "" for a value of another kind. None for a value that fits."""
    kind = kind_of(value)
    if kind == MISSING:
        return None
    if kind not in _taken(data_type):
        return ""
    if _is_list(data_type):
        return _first(misfit(part, data_type.value_type) for part in value)
    if pa.types.is_map(data_type):
        return _misfit_in_map(value, data_type)
    if pa.types.is_struct(data_type):
        types = {field.name: field.type for field in data_type}
        unknown = [name for name in value if name not in types]
        if unknown:
            return f"{_CUT}, since there is no field `{unknown[0]}`"
        return _first(misfit(part, types[name]) for name, part in value.items())
    return _misfit_of_atom(value, data_type)


def _misfit_in_map(value: Any, data_type: pa.MapType) -> str | None:
    pairs = list(value.items() if isinstance(value, Mapping) else value)
    if any(not isinstance(pair, list | tuple) or len(pair) != 2 for pair in pairs):
        return ""
    keys = [repr(key) for key, _ in pairs]
    if len(set(keys)) < len(keys):
        return f"the key {next(key for key in keys if keys.count(key) > 1)} comes twice"
    return _first(
        misfit(part, kind)
        for pair in pairs
        for part, kind in zip(pair, (data_type.key_type, data_type.item_type), strict=True)
    )


def _first(reasons: Any) -> str | None:
    return next((part for part in reasons if part is not None), None)


def _taken(data_type: pa.DataType) -> Collection[str]:
    """The kinds of values that a type may take."""
    of = pa.types
    for is_type, kinds in (
        (of.is_boolean, ("boolean",)),
        (of.is_integer, _NUMBERS),
        (of.is_floating, _NUMBERS),
        (of.is_decimal, ("integer", "decimal")),
        (of.is_string, ("text",)),
        (of.is_timestamp, ("datetime", "datetime with a zone")),
        (of.is_date, ("date", "datetime")),
        (of.is_time, ("time",)),
        (of.is_map, ("row", "list")),
        (_is_list, ("list",)),
        (of.is_struct, ("row",)),
    ):
        if is_type(data_type):
            return kinds
    return ("bytes",)


def _is_list(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_list(data_type) or pa.types.is_fixed_size_list(data_type))


def _misfit_of_atom(value: Any, data_type: pa.DataType) -> str | None:
    of = pa.types
    match value:
        case float() | decimal.Decimal() if of.is_integer(data_type):
            is_whole = math.isfinite(value) and value == int(value)
            return None if is_whole else _CUT
        case float() if of.is_float32(data_type):
            return _CUT if math.isfinite(value) and abs(value) > _FLOAT_MAX else None
        case decimal.Decimal() if of.is_floating(data_type):
            if not value.is_finite():
                return ""
            return _CUT if value % 1 == 0 and int(float(value)) != int(value) else None
        case datetime.datetime() if of.is_date(data_type):
            return None if value.time() == datetime.time() else _CUT
        case datetime.datetime() | datetime.time():
            unit = _FRACTION_UNITS.get(getattr(data_type, "unit", "us"), 1)
            return _CUT if value.microsecond % unit else None
        case _:
            return None


def shown(value: object) -> str:
    """A value in an error."""
    return shortened(repr(value), _SHOWN_MAX)


# Rows that a Python program gives in a list, as columns by their names.
#
# Dictionaries, `Row`s of PySpark and named tuples have names. Their values go into the columns of
# these names, wherever they stand in a row. Tuples and lists have none.


def columns_of(rows: Sequence[Any]) -> dict[str, list[Any]] | None:
    """The values of each column; a row without one has None. None for rows without names.

    Raises InvalidValueError, which names the row: where some rows have names and others have none,
    and for a name that is not a string or comes twice. Also for rows without any column.
    """
    named = [kind_of(row) == "row" for row in rows]
    if rows and not any(named):
        return None
    if not all(named):
        without = named.index(False)
        raise InvalidValueError(
            f"Row {named.index(True) + 1} has names of columns, but row {without + 1} has none: "
            f"{shown(rows[without])}.",
            hint="Nothing was written. Give dictionaries alone, or tuples alone.",
        )
    by_name = []
    for number, row in enumerate(rows, 1):
        try:
            by_name.append(fields_of(row))
        except CutValueError as error:
            raise InvalidValueError(
                f"Row {number} is {shown(row)}: {error}.",
                hint="Nothing was written. Give each value a name of its own.",
            ) from None
        check_names(by_name[-1], number)
    names = list(dict.fromkeys(name for row in by_name for name in row))
    if not names:
        raise InvalidValueError(
            "The rows have no columns."
            if rows
            else "A list can't be written unless it holds dictionaries: it has no rows, and so no "
            "columns.",
            hint="Give dictionaries with a key for each column.",
        )
    return {name: [row.get(name) for row in by_name] for name in names}
