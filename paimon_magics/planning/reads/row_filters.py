"""Filters and orders of rows, as values and as SQL.

Pure. A person chooses a row filter in a grid. Each condition is on one column, and its literal has
that column's type, so that the SQL that is shown is the SQL that runs. An instant is written with
its offset, so that the SQL means the same rows in a session of any time zone.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from paimon_magics.errors import InvalidValueError, UnknownNameError, nearest
from paimon_magics.statements.clauses.names import quoted, text_literal

_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_TEXT_OPERATORS = ("contains",)
_NULL_OPERATORS = ("is null", "is not null")
OPERATORS = (*_COMPARISONS, *_TEXT_OPERATORS, *_NULL_OPERATORS)
_PART = r"(?:`(?:[^`]|``)+`|[^\s`.]+)"
_TABLE = re.compile(rf"{_PART}(?:\.{_PART})*")
_COMMENTS = r"(?:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/)*"
_QUERY = re.compile(rf"(?is){_COMMENTS}(?:select|with|values|from|table|\()(?![\w$.])")
_DIGITS_MAX = 38  # of Spark's DECIMAL
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class Kind(Enum):
    """The kind of a column's type, which decides what conditions it can have."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    DOUBLE = "double"
    TEXT = "text"
    BOOLEAN = "boolean"
    DATE = "date"
    INSTANT = "instant"
    WALL_CLOCK = "wall clock"
    OTHER = "other"

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators that a condition on such a column may have."""
        if self in (Kind.TEXT, Kind.OTHER):
            return OPERATORS if self is Kind.TEXT else _NULL_OPERATORS
        comparisons = _COMPARISONS[:2] if self is Kind.BOOLEAN else _COMPARISONS
        return (*comparisons, *_NULL_OPERATORS)

    @property
    def is_number(self) -> bool:
        """Whether its values are numbers, which are aligned to the right."""
        return self in (Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE)


_EXAMPLES = {
    Kind.INTEGER: "42",
    Kind.DECIMAL: "12.50",
    **dict.fromkeys((Kind.FLOAT, Kind.DOUBLE), "12.5, 1e-3, NaN or Infinity"),
    Kind.BOOLEAN: "true",
    Kind.DATE: "2026-01-31",
    Kind.WALL_CLOCK: "2026-01-31 12:00:00",
}


@dataclass(frozen=True, slots=True)
class ColumnKind:
    """The kind of a column, and for instants the time zone that they are shown in."""

    kind: Kind
    zone: datetime.tzinfo = datetime.UTC


@dataclass(frozen=True, slots=True)
class Order:
    """A sort key: one column, ascending or descending. NULL comes last."""

    column: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one column; `text` is the value as it was typed, "" without a value."""

    column: str
    operator: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Sort keys, the most significant first, and conditions that must all hold."""

    orders: tuple[Order, ...] = ()
    conditions: tuple[Condition, ...] = ()


def filter_sql(
    rows: str,
    row_filter: RowFilter,
    kinds: Mapping[str, ColumnKind],
    columns: Sequence[str] | None = None,
) -> str:
    """Return the query that applies a filter to `rows`.

    `rows` is a query, the name of a table, or another statement that returns rows, such as SHOW.
    `columns` are the columns that it returns, None for all; a comment names the missing columns.

    Returns "" if no SQL gives the rows: `rows` or `columns` is empty, the filter uses a column
    that is not returned, or it filters a statement that can't be a subquery.

    Raises InvalidValueError for a value that does not fit its column, UnknownNameError for an
    unknown column.
    """
    for order in row_filter.orders:
        if _kind(order.column, kinds).kind is Kind.OTHER:
            raise InvalidValueError(
                f"Rows can't be sorted by `{order.column}`.", hint="Choose another column."
            )
    conditions = [condition_sql(condition, kinds) for condition in row_filter.conditions]
    used = {condition.column for condition in row_filter.conditions} | {
        order.column for order in row_filter.orders
    }
    if not rows or (columns is not None and (not columns or not used <= set(columns))):
        return ""
    comment = "" if columns is None else _lacking(kinds, columns)
    is_query = _QUERY.match(rows) is not None
    is_table = not is_query and _TABLE.fullmatch(rows) is not None
    if not row_filter.orders and not row_filter.conditions:
        return comment + (f"SELECT * FROM {rows}" if is_table else rows)
    if not is_query and not is_table:
        return ""
    parts = [f"SELECT * FROM {rows if is_table else _within(rows)}"]
    if conditions:
        parts.append("WHERE " + " AND ".join(conditions))
    if row_filter.orders:
        ways = ("ASC NULLS LAST", "DESC NULLS LAST")
        keys = (f"{quoted(order.column)} {ways[order.descending]}" for order in row_filter.orders)
        parts.append("ORDER BY " + ", ".join(keys))
    return comment + " ".join(parts)


def limited_sql(rows: str, count: int) -> str:
    """Return a query for the first `count` rows of a query; "" for any other statement."""
    return f"SELECT * FROM {_within(rows)} LIMIT {count}" if _QUERY.match(rows) else ""


def _within(query: str) -> str:
    # A comment at the end of the query would hide the bracket.
    return f"({query}\n)" if "--" in query else f"({query})"


def _lacking(kinds: Mapping[str, ColumnKind], columns: Sequence[str]) -> str:
    names = [quoted(name) for name in kinds if name not in columns and not name.startswith("\0")]
    return f"-- without {', '.join(names)}: no table has that\n" if names else ""


def condition_sql(condition: Condition, kinds: Mapping[str, ColumnKind]) -> str:
    """A condition as SQL. Raises the errors of `filter_sql`."""
    column = _kind(condition.column, kinds)
    name = quoted(condition.column)
    operators = column.kind.operators
    if condition.operator not in operators:
        raise InvalidValueError(
            f"The operator `{condition.operator}` can't be used for column `{condition.column}`.",
            hint=f"Its operators are: {', '.join(operators)}.",
        )
    if condition.operator in _NULL_OPERATORS:
        return f"{name} {condition.operator.upper()}"
    literal = _literal(value_of(condition, column), column.kind)
    if condition.operator in _TEXT_OPERATORS:
        return f"contains({name}, {literal})"
    return f"{name} {condition.operator} {literal}"


_Value = str | bool | float | decimal.Decimal | datetime.date | datetime.datetime


def value_of(condition: Condition, column: ColumnKind) -> _Value:
    """Return the value of a condition, in its column's kind.

    A time without an offset is in the column's zone; if it occurs twice there, the earlier one is
    meant, as in Spark. Raises InvalidValueError for text that is no such value.
    """
    value = None
    with suppress(ValueError, decimal.InvalidOperation):
        value = _read(condition.text, column)
    if value is None:
        raise InvalidValueError(
            f"`{condition.text}` is not a value of column `{condition.column}`.",
            hint=f"Write it as: {_example(column)}",
        )
    return value


def _read(typed: str, column: ColumnKind) -> _Value | None:
    """The value that was typed; None or a ValueError for text that is no value of the kind."""
    text = typed.strip()
    match column.kind:
        case Kind.INTEGER | Kind.DECIMAL:
            number = decimal.Decimal(text)
            is_plain = number.is_finite() and len(f"{number:f}".strip("-")) <= _DIGITS_MAX + 1
            return number if is_plain else None
        case Kind.FLOAT | Kind.DOUBLE:
            return float(text)
        case Kind.BOOLEAN:
            return text.lower() == "true" if text.lower() in ("true", "false") else None
        case Kind.DATE:
            return datetime.date.fromisoformat(text)
        case Kind.INSTANT:
            moment = datetime.datetime.fromisoformat(text)
            zone = moment.tzinfo or column.zone
            # Through UTC, so that a time skipped by summer time becomes an existing time.
            in_utc = moment.replace(tzinfo=zone).astimezone(datetime.UTC)
            return in_utc.astimezone(column.zone)
        case Kind.WALL_CLOCK:
            moment = datetime.datetime.fromisoformat(text)
            return moment if moment.tzinfo is None else None
        case _:
            return typed


def _example(column: ColumnKind) -> str:
    if column.kind is Kind.INSTANT:
        noon = datetime.datetime(2026, 1, 31, 12, tzinfo=column.zone).isoformat(sep=" ")
        return f"2026-01-31 12:00:00, or with an offset: {noon}"
    return _EXAMPLES.get(column.kind, "a text")


def _literal(value: _Value, kind: Kind) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case decimal.Decimal():
            return f"{value:f}"
        case float():
            if kind is Kind.DOUBLE and math.isfinite(value):
                return f"{value!r}D"
            text = repr(value) if math.isfinite(value) else _NOT_FINITE[str(value)]
            return f"CAST('{text}' AS {kind.name})"
        case datetime.datetime():
            name = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
            return f"{name} '{value.isoformat(sep=' ')}'"
        case datetime.date():
            return f"DATE '{value.isoformat()}'"
        case str():
            return text_literal(value)


def _kind(column: str, kinds: Mapping[str, ColumnKind]) -> ColumnKind:
    kind = kinds.get(column)
    if kind is None:
        raise UnknownNameError(
            f"There is no column `{column}`.", hint=nearest(column, kinds, what="columns")
        )
    return kind
