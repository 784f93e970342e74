"""How rows are looked at: in which order, and which of them, as values and as SQL.

Pure. A look is what a person clicks together in a grid; each condition is of one column and its
literal has that column's type, so that the SQL that is shown is the SQL that is run.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from paimon_magics.errors import InvalidValueError, UnknownNameError, nearest
from paimon_magics.statements.names import quoted, text_literal

__all__ = [
    "OPERATORS",
    "Condition",
    "Kind",
    "Look",
    "Order",
    "condition_sql",
    "look_sql",
    "value_of",
]

_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_TEXT_OPERATORS = ("contains",)
_NULL_OPERATORS = ("is null", "is not null")
OPERATORS = (*_COMPARISONS, *_TEXT_OPERATORS, *_NULL_OPERATORS)
_PART = r"(?:`(?:[^`]|``)+`|[^\s`.]+)"
_TABLE = re.compile(rf"{_PART}(?:\.{_PART})*")
_QUERY = re.compile(r"(?i)\s*(?:select|with|values|from|table|\()(?![\w$.])")


class Kind(Enum):
    """What can be asked of a column, by its type."""

    NUMBER = "number"
    TEXT = "text"
    BOOLEAN = "boolean"
    DATE = "date"
    TIME = "time"
    OTHER = "other"

    @property
    def operators(self) -> tuple[str, ...]:
        """Those that a condition on such a column may have."""
        match self:
            case Kind.TEXT:
                return OPERATORS
            case Kind.BOOLEAN:
                return (*_COMPARISONS[:2], *_NULL_OPERATORS)
            case Kind.OTHER:
                return _NULL_OPERATORS
            case _:
                return (*_COMPARISONS, *_NULL_OPERATORS)


@dataclass(frozen=True, slots=True)
class Order:
    """By a column, upwards or downwards; NULL stands last."""

    column: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    """What the rows that are shown meet; `text` is the value as it was typed, "" without one."""

    column: str
    operator: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """All conditions hold; the first order counts first."""

    orders: tuple[Order, ...] = ()
    conditions: tuple[Condition, ...] = ()


def look_sql(
    rows: str, look: Look, kinds: Mapping[str, Kind], given: Sequence[str] | None = None
) -> str:
    """The query for what is looked at of `rows`: a query, the name of a table, or a statement that
    shows something, behind which the clauses stand alone. Clauses on columns that are not `given`
    by the query, where that is not None, are left out, and named in a comment.

    Raises InvalidValueError for a value that the column can't have, UnknownNameError for a column.
    """
    for order in look.orders:
        if _kind(order.column, kinds) is Kind.OTHER:
            raise InvalidValueError(
                f"Rows can't be sorted by `{order.column}`.", hint="Choose another column."
            )
    if given is not None:
        return _of_given(rows, look, kinds, given)
    is_query = _QUERY.match(rows) is not None
    is_table = not is_query and _TABLE.fullmatch(rows) is not None
    if not look.orders and not look.conditions:
        return f"SELECT * FROM {rows}" if is_table else rows
    parts = [f"SELECT * FROM {rows}" if is_table else f"SELECT * FROM ({rows})"]
    if not is_query and not is_table:
        parts = [f"{rows};"] if rows else []  # SHOW and its like can't be selected from
    if look.conditions:
        parts.append("WHERE " + " AND ".join(condition_sql(one, kinds) for one in look.conditions))
    if look.orders:
        ways = ("ASC NULLS LAST", "DESC NULLS LAST")
        keys = (f"{quoted(one.column)} {ways[one.descending]}" for one in look.orders)
        parts.append("ORDER BY " + ", ".join(keys))
    return " ".join(parts)


def _of_given(rows: str, look: Look, kinds: Mapping[str, Kind], given: Sequence[str]) -> str:
    kept = Look(
        tuple(one for one in look.orders if one.column in given),
        tuple(one for one in look.conditions if one.column in given),
    )
    asked = [*(one.column for one in look.conditions), *(one.column for one in look.orders)]
    beside = list(dict.fromkeys(quoted(name) for name in asked if name not in given))
    said = f"-- by {', '.join(beside)}, too, which the query does not have\n" if beside else ""
    return said + look_sql(rows, kept, kinds)


def condition_sql(condition: Condition, kinds: Mapping[str, Kind]) -> str:
    """A condition as SQL; raises as `look_sql`."""
    kind = _kind(condition.column, kinds)
    name = quoted(condition.column)
    if condition.operator not in kind.operators:
        raise InvalidValueError(
            f"Column `{condition.column}` can't be asked whether it `{condition.operator}` "
            "something.",
            hint=f"It can be asked with: {', '.join(kind.operators)}.",
        )
    if condition.operator in _NULL_OPERATORS:
        return f"{name} {condition.operator.upper()}"
    literal = _literal(value_of(condition, kind))
    if condition.operator in _TEXT_OPERATORS:
        return f"contains({name}, {literal})"
    return f"{name} {condition.operator} {literal}"


_Value = str | bool | decimal.Decimal | datetime.date | datetime.datetime


def value_of(condition: Condition, kind: Kind) -> _Value:
    """The value of a condition, in its column's kind. Raises InvalidValueError."""
    text = condition.text.strip()
    try:
        match kind:
            case Kind.NUMBER:
                number = decimal.Decimal(text)
                if number.is_finite():
                    return number
            case Kind.BOOLEAN if text.lower() in ("true", "false"):
                return text.lower() == "true"
            case Kind.DATE:
                return datetime.date.fromisoformat(text)
            case Kind.TIME:
                return datetime.datetime.fromisoformat(text).replace(tzinfo=None)
            case Kind.TEXT:
                return condition.text
            case _:
                pass
    except (ValueError, decimal.InvalidOperation):
        pass
    example = {
        Kind.NUMBER: "12.5",
        Kind.BOOLEAN: "true",
        Kind.DATE: "2026-01-31",
        Kind.TIME: "2026-01-31 12:00:00",
    }.get(kind, "")
    raise InvalidValueError(
        f"`{condition.text}` is no value of column `{condition.column}`.",
        hint=f"Write it as: {example}",
    )


def _literal(value: _Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case decimal.Decimal():
            return f"{value:f}"
        case datetime.datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case datetime.date():
            return f"DATE '{value.isoformat()}'"
        case str():
            return text_literal(value)


def _kind(column: str, kinds: Mapping[str, Kind]) -> Kind:
    found = kinds.get(column)
    if found is None:
        raise UnknownNameError(
            f"There is no column `{column}`.", hint=nearest(column, kinds, what="columns")
        )
    return found
