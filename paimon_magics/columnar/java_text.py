"""Values as text, as in Java, for the keys, statistics and partitions in Paimon's system tables.

Paimon shows values in two ways. Keys and statistics have `java_text`: `toString` of the object that
holds the value in Paimon (dates are days since 1970, a NULL is `null`). Partitions have
`cast_text`: Paimon's cast to STRING (`CastExecutors.resolveToString`). Our own views show
`told_text`. Binary values have no stable `toString` in Java; they are `0x…` here.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.time_zones import clock_text, rules_of
from paimon_magics.statements.data_types import AtomicType, DataType

_EPOCH = datetime.datetime(1970, 1, 1)
_PLAIN = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "CHAR": pa.string(),
    "VARCHAR": pa.string(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
    "BYTES": pa.binary(),
    "DATE": pa.date32(),
    "TIME": pa.time32("ms"),
}
_MILLISECOND_DIGITS, _MICROSECOND_DIGITS = 3, 6


def stored_type(data_type: DataType | None) -> pa.DataType:
    """The Arrow type for decoded fields of serialized rows; null for types that keys and statistics
    never have."""
    match data_type:
        case AtomicType(name="DECIMAL", parameters=(precision, scale)):
            return pa.decimal128(precision, scale)
        case AtomicType(name="TIMESTAMP" | "TIMESTAMP_LTZ", parameters=(precision,)):
            if precision <= _MILLISECOND_DIGITS:
                return pa.timestamp("ms")
            return pa.timestamp("us" if precision <= _MICROSECOND_DIGITS else "ns")
        case AtomicType(name=name):
            return _PLAIN.get(name, pa.null())
        case _:
            return pa.null()


def java_text(values: pa.Array) -> pa.Array:
    """`toString` of each value, NULL for NULL."""
    data_type = values.type
    if pa.types.is_null(data_type):
        return pa.nulls(len(values), pa.string())
    if pa.types.is_timestamp(data_type):
        return _iso_text(values)
    if pa.types.is_date32(data_type) or pa.types.is_time32(data_type):
        return values.view(pa.int32()).cast(pa.string())
    if pa.types.is_floating(data_type):
        single = pa.types.is_float32(data_type)
        return _each(values, lambda value: java_float(value, single=single))
    if pa.types.is_decimal(data_type):
        return _each(values, lambda value: format(value, "f"))
    if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type):
        return _each(values, lambda value: "0x" + value.hex())
    return values.cast(pa.string())


def cast_text(values: pa.Array, data_type: DataType | None) -> pa.Array:
    """Each value cast to STRING, NULL for NULL. Instants are in this process's time zone, as Java's
    are in the JVM's."""
    match data_type:
        case AtomicType(name="TIMESTAMP", parameters=(precision,)):
            return _each(values, lambda value: _timestamp_text(value, precision))
        case AtomicType(name="TIMESTAMP_LTZ", parameters=(precision,)):
            return _each(values, lambda value: _timestamp_text(_local(value), precision))
        case AtomicType(name="DATE"):
            return values.cast(pa.string())
        case AtomicType(name="TIME", parameters=(precision,)):
            return _each(values, lambda value: _time_text(value, precision))
        case AtomicType(name="BINARY" | "VARBINARY" | "BYTES"):
            return _each(values, lambda value: value.decode("utf-8", "replace"))
        case _:
            return java_text(values)


def told_text(values: pa.Array, data_type: DataType | None, zone: str) -> pa.Array:
    """Each value as our views and Spark show it, NULL for NULL: as `cast_text`, but with instants
    in `zone`, and without trailing zeros of a second's fraction."""
    rules = rules_of(zone)
    match data_type:
        case AtomicType(name="TIMESTAMP"):
            return _each(values, clock_text)
        case AtomicType(name="TIMESTAMP_LTZ"):
            return _each(
                values,
                lambda value: clock_text(value.replace(tzinfo=datetime.UTC).astimezone(rules)),
            )
        case _:
            return cast_text(values, data_type)


def bracketed(columns: Sequence[pa.Array]) -> pa.Array:
    """`[1, a]` of each row: `Arrays.toString`."""
    return _joined("[", ["", *[", "] * (len(columns) - 1)], columns, "]")


def braced(columns: Sequence[pa.Array]) -> pa.Array:
    """`{1, a}` of each row: Paimon's cast of a row."""
    return _joined("{", ["", *[", "] * (len(columns) - 1)], columns, "}")


def texts_map(columns: Mapping[str, pa.Array]) -> pa.Array:
    """`{a=1, b=x}` of each row, sorted by name: `TreeMap.toString`."""
    names = sorted(columns)
    before = [f"{', ' if position else ''}{name}=" for position, name in enumerate(names)]
    return _joined("{", before, [columns[name] for name in names], "}")


def java_float(value: float, *, single: bool = False) -> str:
    """`Double.toString`, or `Float.toString` with `single`: the fewest digits that distinguish the
    value from its neighbors."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if str(value).startswith("-") else "0.0"
    shortest = str(np.float32(value)) if single else repr(value)
    two_digits = f"{value:.1e}"  # Java prints at least two digits, the nearest ones
    if (np.float32(two_digits) if single else float(two_digits)) == value:
        shortest = two_digits
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    power = len(text) + exponent - 1  # of the first digit
    if -3 <= power < 7:
        plain = format(Decimal(shortest).normalize(), "f")
        return plain if "." in plain else plain + ".0"
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{power}"


def _joined(
    opening: str, before: Sequence[str], columns: Sequence[pa.Array], closing: str
) -> pa.Array:
    """Each row's texts between the given pieces; a NULL is `null`."""
    if not columns:
        raise ValueError("a row without columns has no length")
    pieces: list[pa.Array | pa.Scalar] = []
    for position, (text, column) in enumerate(zip(before, columns, strict=True)):
        pieces += [pa.scalar(opening + text if position == 0 else text), column]
    return pc.binary_join_element_wise(
        *pieces,
        pa.scalar(closing),
        pa.scalar(""),
        null_handling="replace",
        null_replacement="null",
    )


def _each(values: pa.Array, text: object) -> pa.Array:
    """Apply `text` to each value that is not NULL, calling it once for each distinct value."""
    assert callable(text)
    encoded = values.dictionary_encode() if len(values) else None
    if encoded is None:
        return pa.array([], type=pa.string())
    texts = pa.array([text(value) for value in encoded.dictionary.to_pylist()], type=pa.string())
    return texts.take(encoded.indices)


def _iso_text(values: pa.Array) -> pa.Array:
    """`LocalDateTime.toString`: no seconds where they are zero; a fraction has 3, 6 or 9 digits."""
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[values.type.unit]
    text = pc.strftime(values, format="%Y-%m-%dT%H:%M:%S")
    for left in range(0, digits, 3):
        zeros = "0" * (digits - left)
        text = pc.replace_substring_regex(
            text, rf"(\.\d{{{left}}}){zeros}$" if left else rf"\.{zeros}$", r"\1" if left else ""
        )
    return pc.replace_substring_regex(text, r"(T\d\d:\d\d):00$", r"\1")


def _timestamp_text(value: datetime.datetime, precision: int) -> str:
    """`DateTimeUtils.formatTimestamp`: at least as many digits of a second as the type has."""
    nanos = value.microsecond * 1000 + getattr(value, "nanosecond", 0)
    fraction = f"{nanos:09d}"
    while len(fraction) > precision and fraction.endswith("0"):
        fraction = fraction[:-1]
    seconds = value.strftime("%H:%M:%S")
    text = f"{value.year:04d}-{value.month:02d}-{value.day:02d} {seconds}"
    return f"{text}.{fraction}" if fraction else text


def _local(value: datetime.datetime) -> datetime.datetime:
    """An instant, given in UTC, in this process's time zone."""
    return value.replace(tzinfo=datetime.UTC).astimezone().replace(tzinfo=None)


def _time_text(value: datetime.time, precision: int) -> str:
    fraction = f"{value.microsecond // 1000:03d}"[:precision]
    text = value.strftime("%H:%M:%S")
    return f"{text}.{fraction}" if fraction else text


def map_order(keys: Sequence[str]) -> list[str]:
    """The keys in the order in which Java's `HashMap` lists them after they were inserted in
    order."""
    places = _MAP_PLACES
    while len(keys) * 4 > places * 3:
        places *= 2
    return sorted(keys, key=lambda key: _spread(key) & (places - 1))


_MAP_PLACES = 16  # the table size of a new map


def _spread(text: str) -> int:
    """`String.hashCode` with its higher bits mixed into the lower ones, as in `HashMap`."""
    code = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        code = (31 * code + unit) & 0xFFFFFFFF
    return code ^ (code >> 16)
