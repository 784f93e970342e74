"""Casts the values of files that are older than a change of a column's type, as Paimon does.

Source: `CastExecutors` and its rules. Casts between an instant and any other type depend on the
time zone of the reading machine, as do casts of texts to times; they have no rules here.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.java_text import cast_text, java_float
from paimon_magics.errors import JobError
from paimon_magics.planning.formatting import shortened
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import INTEGER_BITS, AtomicType, family_of


@dataclass(frozen=True, slots=True)
class _Cast:
    """The types of stored and wanted values, and the Arrow type of the wanted ones."""

    stored: AtomicType
    wanted: AtomicType
    target: pa.DataType


_ONLY_TO_STRING = ("date", "time", "timestamp")
_SHOWN_MAX = 60


_DAY_MS = 86_400_000


# Casts between numbers of seconds, dates, times of day and timestamps without a zone.
#
# Source: Paimon's `CastExecutors` and `DateTimeUtils`.


def _masked(values: npt.NDArray[Any], like: pa.Array) -> pa.Array:
    """The values as an array, NULL where `like` is."""
    return pa.array(values, mask=np.asarray(like.is_null()) if like.null_count else None)


def _seconds_to_timestamp(array: pa.Array, cast: _Cast) -> pa.Array:
    """Seconds since 1970 as a timestamp."""
    return array.cast(pa.int64()).view(pa.timestamp("s")).cast(cast.target)


def _timestamp_to_seconds(array: pa.Array, cast: _Cast) -> pa.Array:
    """Milliseconds since 1970 divided by 1000, toward zero. A number that does not fit the wanted
    type keeps its low bits."""
    millis = np.asarray(pc.fill_null(_millis(array), 0))
    seconds = np.sign(millis) * (np.abs(millis) // 1000)
    return pc.cast(_masked(seconds, array), cast.target, safe=False)


def _millis(array: pa.Array) -> pa.Array:
    """Whole milliseconds since 1970, rounded down."""
    per_milli = {"s": None, "ms": 1, "us": 1000, "ns": 1_000_000}[array.type.unit]
    plain = array.view(pa.int64())
    if per_milli is None:
        return pc.multiply(plain, 1000)
    values = np.floor_divide(np.asarray(pc.fill_null(plain, 0)), per_milli)
    return _masked(values, array)


def _timestamp_to_date(array: pa.Array, cast: _Cast) -> pa.Array:
    """The date of a timestamp."""
    days = np.floor_divide(np.asarray(pc.fill_null(_millis(array), 0)), _DAY_MS)
    return _masked(days.astype(np.int32), array).view(cast.target)


def _timestamp_to_time(array: pa.Array, cast: _Cast) -> pa.Array:
    """The time of day of a timestamp."""
    millis = np.mod(np.asarray(pc.fill_null(_millis(array), 0)), _DAY_MS)
    return _masked(millis.astype(np.int32), array).view(pa.time32("ms")).cast(cast.target)


def _timestamp_to_timestamp(array: pa.Array, cast: _Cast) -> pa.Array:
    """Cut the digits beyond the wanted precision: toward zero for 3 digits and fewer, downwards
    for more, as in `DateTimeUtils.truncate`."""
    (digits,) = cast.wanted.parameters
    if digits >= cast.stored.parameters[0]:
        return pc.cast(array, cast.target, safe=False)
    if digits <= 3:
        millis = np.asarray(pc.fill_null(_millis(array), 0))
        unit = 10 ** (3 - digits)
        # Only values with more digits than the type are cut at all.
        cut = np.sign(millis) * (np.abs(millis) // unit) * unit
        rounded = _masked(cut, array).view(pa.timestamp("ms"))
        return rounded.cast(pa.timestamp("ms", array.type.tz)).cast(cast.target)
    per_second = {"us": 6, "ns": 9}[array.type.unit]
    values = np.asarray(pc.fill_null(array.view(pa.int64()), 0))
    unit = 10 ** max(per_second - digits, 0)
    cut = np.floor_divide(values, unit) * unit
    return pc.cast(_masked(cut, array).view(array.type), cast.target, safe=False)


def _date_to_timestamp(array: pa.Array, cast: _Cast) -> pa.Array:
    """The start of a day."""
    days = array.view(pa.int32()).cast(pa.int64())
    return pc.multiply(days, _DAY_MS // 1000).view(pa.timestamp("s")).cast(cast.target)


def _time_to_timestamp(array: pa.Array, cast: _Cast) -> pa.Array:
    """A time of day on 1970-01-01."""
    millis = array.cast(pa.time32("ms")).view(pa.int32()).cast(pa.int64())
    return millis.view(pa.timestamp("ms")).cast(cast.target)


class UnreadableValueError(JobError):
    """A stored value that can't be cast to its column's current type. `value` is its text, `column`
    the column's name."""

    def __init__(self, value: str, column: str, stored: AtomicType, wanted: AtomicType) -> None:
        self.value, self.column, self.stored, self.wanted = value, column, stored, wanted
        error = self.of_file("an older file", "…")
        super().__init__(error.message, hint=error.hint)

    def of_file(self, path: str, table: str) -> JobError:
        """The same error with the path of the value's file; `table` is the table's name in SQL."""
        from paimon_magics.statements.types.type_text import to_spark_sql

        stored, wanted = to_spark_sql(self.stored), to_spark_sql(self.wanted)
        return JobError(
            f"The column `{self.column}` changed from {stored} to {wanted}, but {path} has a value "
            f"that can't be read as {wanted}: {self.value}.",
            hint="Change the type back to read the rows again: "
            f"ALTER TABLE {table} ALTER COLUMN {quoted(self.column)} TYPE {stored}. Or read them "
            "with VERSION AS OF a snapshot from before the change.",
        )


def can_cast(stored: AtomicType, wanted: AtomicType) -> bool:
    """Whether `cast_values` can cast as Paimon does, independently of the machine's time zone."""
    if _same(stored, wanted):
        return True
    families = family_of(stored), family_of(wanted)
    if families[0] in _ONLY_TO_STRING and families[1] == "text":
        return wanted.name == "STRING"
    return families in _RULES


def cast_values(
    array: pa.Array, stored: AtomicType, wanted: AtomicType, target: pa.DataType, column: str
) -> pa.Array:
    """`array` cast from the type `stored` to `wanted`, whose Arrow type is `target`.

    A decimal that does not fit becomes NULL. Raises UnreadableValueError for a value that can't be
    cast, such as a text that is not a number; Paimon also fails there.
    """
    if _same(stored, wanted):
        return array
    try:
        return _RULES[family_of(stored), family_of(wanted)](array, _Cast(stored, wanted, target))
    except (ValueError, ArithmeticError) as error:
        raise UnreadableValueError(str(error), column, stored, wanted) from error


def _same(stored: AtomicType, wanted: AtomicType) -> bool:
    return (stored.name, stored.parameters) == (wanted.name, wanted.parameters)


def _each(array: pa.Array, target: pa.DataType, change: Callable[[Any], object]) -> pa.Array:
    """Apply `change` to every value, calling it once for each distinct value."""
    if not len(array):
        return pa.array([], type=target)
    encoded = array.dictionary_encode()
    values = []
    for value in encoded.dictionary.to_pylist():
        try:
            values.append(change(value))
        except (ValueError, LookupError, ArithmeticError) as error:
            raise ValueError(shortened(repr(value), _SHOWN_MAX)) from error
    return pa.array(values, type=target).take(encoded.indices)


def _unsafe(array: pa.Array, cast: _Cast) -> pa.Array:
    return pc.cast(array, cast.target, safe=False)  # Java's narrowing keeps the low bits, too


def _truncated(array: pa.Array, cast: _Cast) -> pa.Array:
    """Java's narrowing of floating-point numbers to integers: toward zero, NaN to 0, and numbers
    out of range to the nearest INT or BIGINT. Smaller types take the low bits of that INT."""
    values = np.nan_to_num(
        np.asarray(pc.fill_null(array, 0.0)).astype(np.float64),
        nan=0.0,
        posinf=1e300,
        neginf=-1e300,
    )
    bits = 64 if cast.wanted.name == "BIGINT" else 32
    least, greatest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    whole: npt.NDArray[np.int64] = np.where(
        values >= float(2 ** (bits - 1)), greatest, np.where(values <= float(least), least, 0)
    ).astype(np.int64)
    inside = (values < float(2 ** (bits - 1))) & (values > float(least))
    whole[inside] = np.trunc(values[inside]).astype(np.int64)
    return pc.cast(_masked(whole, array), cast.target, safe=False)


def _fitting(value: decimal.Decimal, wanted: AtomicType) -> decimal.Decimal | None:
    """The value rounded half-up; None if it does not fit. Java: `Decimal.fromBigDecimal`."""
    precision, scale = wanted.parameters
    with decimal.localcontext() as context:
        context.prec = 400
        rounded = value.quantize(decimal.Decimal(1).scaleb(-scale), decimal.ROUND_HALF_UP)
        return rounded if abs(rounded) < decimal.Decimal(10) ** (precision - scale) else None


def _to_decimal(array: pa.Array, cast: _Cast) -> pa.Array:
    precision, scale = cast.wanted.parameters
    if cast.stored.name == "DECIMAL":
        before, digits = cast.stored.parameters
        if scale >= digits and precision - scale >= before - digits:
            return array.cast(cast.target)
    single = cast.stored.name == "FLOAT"

    def change(value: Any) -> decimal.Decimal | None:
        match value:
            case float():
                # A FLOAT becomes a DOUBLE first, and the digits of that count.
                text = java_float(float(np.float32(value)) if single else value)
                if text in ("NaN", "Infinity", "-Infinity"):
                    raise ValueError(text)
                return _fitting(decimal.Decimal(text), cast.wanted)
            case str():
                return _fitting(_number(value), cast.wanted)
            case _:
                return _fitting(
                    decimal.Decimal(int(value) if value is True else value), cast.wanted
                )

    return _each(array, cast.target, change)


def _number(text: str) -> decimal.Decimal:
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text, re.ASCII):
        raise ValueError(f"'{text}' is not a number")
    return decimal.Decimal(text)


def _from_decimal(array: pa.Array, cast: _Cast) -> pa.Array:
    if family_of(cast.wanted) == "integer":
        bits = cast.target.bit_width

        def low_bits(value: decimal.Decimal) -> int:
            half = 1 << int(bits - 1)
            return (int(value) + half) % (2 * half) - half

        return _each(array, cast.target, low_bits)
    precision, scale = cast.stored.parameters

    def nearest(value: decimal.Decimal) -> float:
        # Up to 18 digits Java divides; for more it parses the text.
        return int(value.scaleb(scale)) / 10.0**scale if precision <= 18 else float(value)

    return pc.cast(_each(array, pa.float64(), nearest), cast.target, safe=False)


def _from_boolean(array: pa.Array, cast: _Cast) -> pa.Array:
    return pc.cast(array.cast(pa.int8()), cast.target, safe=False)


def _to_boolean(array: pa.Array, cast: _Cast) -> pa.Array:
    return pc.not_equal(array, pa.scalar(0, array.type))


def _to_text(array: pa.Array, cast: _Cast) -> pa.Array:
    return _shaped_text(cast_text(array, cast.stored).cast(cast.target), cast.wanted)


def _text_to_text(array: pa.Array, cast: _Cast) -> pa.Array:
    return _shaped_text(array.cast(cast.target), cast.wanted)


def _shaped_text(texts: pa.Array, wanted: AtomicType) -> pa.Array:
    """Texts cut to the length of CHAR or VARCHAR, and padded for CHAR.

    Java: `BinaryStringUtils.toCharacterString`.
    """
    if wanted.name == "STRING":
        return texts
    (length,) = wanted.parameters
    cut = pc.utf8_slice_codeunits(texts, 0, length)
    return pc.utf8_rpad(cut, length, " ") if wanted.name == "CHAR" else cut


def _to_binary(array: pa.Array, cast: _Cast) -> pa.Array:
    """Bytes cut to the length of BINARY or VARBINARY, and padded for BINARY.

    Java: `BinaryStringUtils.toBinaryString`.
    """
    plain = array.cast(pa.binary())
    if cast.wanted.name == "BYTES":
        return plain.cast(cast.target)
    (length,) = cast.wanted.parameters
    padded = cast.wanted.name == "BINARY"

    def shaped(value: bytes) -> bytes:
        return value[:length].ljust(length, b"\0") if padded else value[:length]

    return _each(plain, cast.target, shaped)


_WHOLE = re.compile(r"[+-]?\d*(\.\d*)?", re.ASCII)
_NOT_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_BOOLEANS = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}


def _text_to_integer(array: pa.Array, cast: _Cast) -> pa.Array:
    """As `BinaryStringUtils.toLong`: digits after the point are cut off."""
    limit = 1 << (INTEGER_BITS[cast.wanted.name] - 1)

    def read(text: str) -> int:
        if text in ("", "+", "-") or not _WHOLE.fullmatch(text):
            raise ValueError(f"'{text}' is not a whole number")
        value = int(re.sub(r"^([+-]?)(\d*).*$", r"\g<1>0\2", text))
        if not -limit <= value < limit:
            raise ValueError(f"'{text}' is not a {cast.wanted.name}")
        return value

    return _each(array, cast.target, read)


def _text_to_float(array: pa.Array, cast: _Cast) -> pa.Array:
    def read(text: str) -> float:
        stripped = text.strip()
        number = _NOT_NUMBERS.get(stripped)
        return float(_number(stripped)) if number is None else number

    if cast.wanted.name == "DOUBLE":
        return _each(array, cast.target, read)
    # The nearest FLOAT of the digits themselves, not of the nearest DOUBLE.
    return _each(array, cast.target, lambda text: float(np.float32(str(read(text)))))


def _text_to_boolean(array: pa.Array, cast: _Cast) -> pa.Array:
    return _each(array, cast.target, lambda text: _BOOLEANS[text.lower()])


def _text_to_date(array: pa.Array, cast: _Cast) -> pa.Array:
    """As `DateTimeUtils.parseDate`: a whole number counts days since 1970-01-01."""

    def read(text: str) -> datetime.date:
        if re.fullmatch(r"-?\d+", text, re.ASCII):
            return datetime.date(1970, 1, 1) + datetime.timedelta(days=int(text))
        space = text.find(" ")
        parts = [part.strip() for part in (text[:space] if space > 0 else text).split("-", 2)]
        if not all(re.fullmatch(r"\d+", part, re.ASCII) for part in parts):
            raise ValueError(f"'{text}' is not a date")
        numbers = [int(part) for part in parts] + [1, 1]
        return datetime.date(*numbers[:3])

    return _each(array, cast.target, read)


_RULES: dict[tuple[str, str], Callable[[pa.Array, _Cast], pa.Array]] = {
    ("integer", "integer"): _unsafe,
    ("integer", "float"): _unsafe,
    ("integer", "decimal"): _to_decimal,
    ("integer", "boolean"): _to_boolean,
    ("integer", "text"): _to_text,
    ("integer", "timestamp"): _seconds_to_timestamp,
    ("float", "integer"): _truncated,
    ("float", "float"): _unsafe,
    ("float", "decimal"): _to_decimal,
    ("float", "text"): _to_text,
    ("decimal", "integer"): _from_decimal,
    ("decimal", "float"): _from_decimal,
    ("decimal", "decimal"): _to_decimal,
    ("decimal", "text"): _to_text,
    ("boolean", "integer"): _from_boolean,
    ("boolean", "float"): _from_boolean,
    ("boolean", "decimal"): _to_decimal,
    ("boolean", "text"): _to_text,
    ("text", "text"): _text_to_text,
    ("text", "integer"): _text_to_integer,
    ("text", "float"): _text_to_float,
    ("text", "decimal"): _to_decimal,
    ("text", "boolean"): _text_to_boolean,
    ("text", "date"): _text_to_date,
    ("text", "binary"): _to_binary,
    ("binary", "binary"): _to_binary,
    ("binary", "text"): lambda array, cast: array.cast(cast.target),
    ("date", "text"): _to_text,
    ("date", "timestamp"): _date_to_timestamp,
    ("time", "text"): _to_text,
    ("time", "timestamp"): _time_to_timestamp,
    ("timestamp", "text"): _to_text,
    ("timestamp", "date"): _timestamp_to_date,
    ("timestamp", "time"): _timestamp_to_time,
    ("timestamp", "integer"): _timestamp_to_seconds,
    ("timestamp", "timestamp"): _timestamp_to_timestamp,
    ("timestamp_ltz", "timestamp_ltz"): _timestamp_to_timestamp,
}
