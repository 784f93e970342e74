"""Decides which partitions of a table expire, by Paimon's options and rules
(`PartitionExpireStrategy`, `PartitionTimeExtractor`). Pure.

By `values-time` a partition's time is in its values: in the first one, or where
`partition.timestamp-pattern` puts them. A value that is no time never expires. By `update-time` it
is when its last file was made. Times are those of clocks: an offset between zones is never applied.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from paimon_magics.errors import InvalidTableError, InvalidValueError, nearest
from paimon_magics.planning.options.values import duration_ms, integer_value, option_pairs
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.removals import ExpirePartitions

_PREFIX = "partition."
_STRATEGIES = ("values-time", "update-time")
_MAX_NUM = 100
_OPTIONS = {
    "expiration_time": "partition.expiration-time",
    "timestamp_formatter": "partition.timestamp-formatter",
    "timestamp_pattern": "partition.timestamp-pattern",
    "expire_strategy": "partition.expiration-strategy",
}
_KNOWN = (
    *_OPTIONS.values(),
    "partition.expiration-max-num",
    "partition.expiration-batch-size",
    "partition.expiration-check-interval",
)
# Letters of Java's DateTimeFormatter that have a part of a date or time, with Python's name of it.
_PARTS = {
    "y": "year", "u": "year", "M": "month", "L": "month", "d": "day",
    "H": "hour", "m": "minute", "s": "second", "S": "fraction",
}  # fmt: skip
_DEFAULT = re.compile(
    r"(?P<year>\d{1,10})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
    r"(?: (?P<hour>\d{1,2}):(?P<minute>\d{1,2}):(?P<second>\d{1,2})(?:\.(?P<fraction>\d{1,9}))?)?"
)


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """A partition of a table: its values as text, None for NULL, and when its last file was made,
    in epoch milliseconds."""

    values: tuple[str | None, ...]
    updated_ms: int


@dataclass(frozen=True, slots=True)
class PartitionExpiry:
    """The rules by which partitions of a table expire. `time` reads a text; None is Paimon's usual
    form. `check_ms` is how often expired partitions are looked for after commits."""

    keys: tuple[str, ...]
    age_ms: float
    by_update: bool
    pattern: str | None
    time: re.Pattern[str] | None
    count_max: int
    check_ms: float = 0

    @classmethod
    def of(
        cls, schema: TableSchema, call: ExpirePartitions | None = None
    ) -> PartitionExpiry | None:
        """The rules in a table's options, with what a CALL gives in their place; None if partitions
        don't expire. Raises InvalidValueError and InvalidTableError for values that make no rule.
        """
        options = dict(schema.options)
        if call is not None:
            options |= _called_options(call)
        schema = replace(schema, options=tuple(options.items()))
        age_ms = schema.parsed("partition.expiration-time", duration_ms, None)
        if age_ms is None or not schema.partition_keys:
            return None
        strategy = schema.option("partition.expiration-strategy") or _STRATEGIES[0]
        if strategy not in _STRATEGIES:
            raise InvalidTableError(
                f"There is no strategy '{strategy}' for the expiry of partitions.",
                hint=f"'partition.expiration-strategy' is one of {', '.join(_STRATEGIES)}.",
            )
        count_max = schema.parsed("partition.expiration-max-num", integer_value, _MAX_NUM)
        if count_max < 1:
            raise InvalidValueError(
                f"`max_expires` is {count_max}: no partition expires by that.",
                hint="Give the largest number of partitions to drop, at least 1.",
            )
        formatter = schema.option("partition.timestamp-formatter")
        pattern = schema.option("partition.timestamp-pattern")
        if pattern is not None:
            _check_pattern(pattern, schema.partition_keys)
        return cls(
            keys=tuple(schema.partition_keys),
            age_ms=float(age_ms),
            by_update=strategy == "update-time",
            pattern=pattern,
            time=None if formatter is None else _expression(formatter),
            count_max=count_max,
            check_ms=schema.parsed("partition.expiration-check-interval", duration_ms, 0.0),
        )

    def expired(
        self, partitions: Iterable[StoredPartition], now: datetime.datetime
    ) -> list[StoredPartition]:
        """The partitions that expire at a time, sorted by their values, no more than `count_max`.
        `now` has a zone: clocks of that zone are what the values' times are compared with."""
        oldest_ms = now.timestamp() * 1000 - self.age_ms
        try:
            oldest = now.replace(tzinfo=None) - datetime.timedelta(milliseconds=self.age_ms)
        except OverflowError:  # longer ago than the year 1
            oldest = datetime.datetime.min
        gone = [p for p in partitions if self._is_expired(p, oldest, oldest_ms)]
        gone.sort(key=_order)
        return gone[: self.count_max]

    def without_time(self, partitions: Iterable[StoredPartition]) -> list[StoredPartition]:
        """The partitions that never expire, because their values are no time; sorted by these."""
        if self.by_update:
            return []
        stay = [partition for partition in partitions if self.time_of(partition.values) is None]
        return sorted(stay, key=_order)

    def time_of(self, values: Sequence[str | None]) -> datetime.datetime | None:
        """The time that a partition's values tell; None if they tell none."""
        if self.pattern is None:
            text = values[0]
        else:
            if None in values:
                return None
            named = {key: value or "" for key, value in zip(self.keys, values, strict=True)}
            text = _filled(self.pattern, named)
        return None if text is None else _time(text, self.time)

    def _is_expired(
        self, partition: StoredPartition, oldest: datetime.datetime, oldest_ms: float
    ) -> bool:
        if self.by_update:
            return partition.updated_ms < oldest_ms
        time = self.time_of(partition.values)
        return time is not None and time < oldest


def _order(partition: StoredPartition) -> str:
    return ",".join(value or "" for value in partition.values)


def _called_options(call: ExpirePartitions) -> dict[str, str]:
    """The options that a CALL gives."""
    options = {}
    for key, value in option_pairs(call.options or "", "partition.expiration-time=7 d"):
        if key not in _KNOWN:
            raise InvalidValueError(
                f"The option '{key}' does not affect the expiry of partitions.",
                hint=nearest(key, _KNOWN, what="options"),
            )
        options[key] = value
    for parameter, key in _OPTIONS.items():
        value = getattr(call, parameter)
        if value:
            options[key] = value
    if call.max_expires is not None:
        options["partition.expiration-max-num"] = str(call.max_expires)
    return options


def _check_pattern(pattern: str, keys: Sequence[str]) -> None:
    if "$" not in pattern or not any(f"${key}" in pattern for key in keys):
        raise InvalidValueError(
            f"The pattern '{pattern}' names no partition column.",
            hint="Write a partition column with a $ before it: "
            + " or ".join(f"'${key}'" for key in keys)
            + ", or several, as '$year-$month-$day'.",
        )


def _filled(pattern: str, values: Mapping[str, str]) -> str:
    """A pattern with values in place of `$column`; the longest name that fits counts."""
    names = "|".join(re.escape(name) for name in sorted(values, key=len, reverse=True))
    return re.sub(rf"\$({names})", lambda match: values[match[1]], pattern)


def _expression(formatter: str) -> re.Pattern[str]:
    """A pattern of Java's DateTimeFormatter as a regular expression. Raises InvalidValueError for
    letters that are no part of a date or time in numbers."""
    expression, position = "", 0
    seen: set[str] = set()
    while position < len(formatter):
        letter = formatter[position]
        if letter == "'":
            end = formatter.find("'", position + 1)
            if end < 0:
                raise _unreadable(formatter, "a quote that does not end")
            expression += re.escape(formatter[position + 1 : end] or "'")
            position = end + 1
            continue
        run = len(formatter[position:]) - len(formatter[position:].lstrip(letter))
        if not letter.isalpha():
            expression += re.escape(letter * run)
        else:
            part = _PARTS.get(letter)
            if part is None or part in seen or (part == "month" and run > 2):
                raise _unreadable(formatter, f"'{letter * run}'")
            seen.add(part)
            expression += f"(?P<{part}>{_digits(letter, run, formatter[position + run :])})"
        position += run
    if "year" not in seen:
        raise _unreadable(formatter, "no year")
    return re.compile(expression)


def _digits(letter: str, run: int, rest: str) -> str:
    if letter == "S" or run > 1:
        return rf"\d{{{run}}}" if letter != "y" or run != 4 or rest[:1].isalpha() else r"\d{4,10}"
    return r"\d{1,10}" if letter in "yu" else r"\d{1,2}"


def _unreadable(formatter: str, what: str) -> InvalidValueError:
    return InvalidValueError(
        f"The formatter '{formatter}' has {what}, by which no time can be read.",
        hint="Write it as Java does, in numbers: 'yyyy-MM-dd', 'yyyyMMdd' or "
        "'yyyy-MM-dd HH:mm:ss'. By expire_strategy => 'update-time' values of any kind expire.",
    )


def _time(text: str, expression: re.Pattern[str] | None) -> datetime.datetime | None:
    match = (expression or _DEFAULT).fullmatch(text)
    if match is None:
        return None
    parts = {name: value for name, value in match.groupdict().items() if value is not None}
    fraction = parts.pop("fraction", "0")
    numbers = {name: int(value) for name, value in parts.items()}
    numbers = {"month": 1, "day": 1, **numbers, "microsecond": int(fraction.ljust(6, "0")[:6])}
    try:
        if expression is not None:
            return datetime.datetime(**numbers)  # type: ignore[arg-type]
        return _lenient(numbers)
    except (ValueError, OverflowError):
        return None


def _lenient(numbers: Mapping[str, int]) -> datetime.datetime:
    """A time whose parts may be too large: the 31st of April is the 1st of May."""
    months = numbers["year"] * 12 + numbers["month"] - 1
    start = datetime.datetime(months // 12, months % 12 + 1, 1)
    return start + datetime.timedelta(
        days=numbers["day"] - 1,
        hours=numbers.get("hour", 0),
        minutes=numbers.get("minute", 0),
        seconds=numbers.get("second", 0),
        microseconds=numbers["microsecond"],
    )
