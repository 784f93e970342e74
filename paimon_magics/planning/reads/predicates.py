"""Conditions on columns, as values that can be compared with statistics.

A condition is used only where Spark compares in the column's own type and order: integers,
decimals, text, dates and booleans. Floating-point columns are left out because statistics ignore
NaN, CHAR columns because their values are padded.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import prod

from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.statements.clauses.names import spelled, text_literal
from paimon_magics.statements.data_types import INTEGERS, AtomicType, family_of
from paimon_magics.statements.statement import ColumnFilter, FilterValue

PredicateValue = int | str | bool | Decimal | datetime.date


_VALUES_SHOWN = 5


_REMAINDER = re.compile(
    r"(?:`?(?P<alias>\w+)`?\.)?`?(?P<column>\w+)`? % (?P<divisor>\d{1,9}) = (?P<wanted>-?\d{1,9})"
)


@dataclass(frozen=True, slots=True)
class ColumnPredicate:
    """A condition on a column, with the operators of `ColumnFilter`, or `remainder`: divided by the
    first value, an integer's remainder is the second one, with the sign of the dividend.

    Only `is null` holds for NULL.
    """

    column: str
    operator: str
    values: tuple[PredicateValue, ...] = ()


def column_predicates(
    filters: Iterable[ColumnFilter], columns: Sequence[Column], bound: Mapping[str, object]
) -> tuple[ColumnPredicate, ...]:
    """Return the conditions that can be compared with statistics. `bound` are the bind values."""
    predicates = []
    for condition in filters:
        column = _only_named(columns, condition.column)
        if column is None or not isinstance(column.type, AtomicType):
            continue
        values = [_value_for(column, value, bound) for value in condition.values]
        known = tuple(value for value in values if value is not None)
        if len(known) == len(values):
            predicates.append(ColumnPredicate(column.name, condition.operator, known))
    return tuple(predicates)


def _only_named(columns: Iterable[Column], name: str) -> Column | None:
    """The only column of that name, in upper or lower case."""
    named = [column for column in columns if column.name.lower() == name.lower()]
    return named[0] if len(named) == 1 else None


def few_values(
    predicates: Iterable[ColumnPredicate], columns: Sequence[str], most: int
) -> tuple[tuple[PredicateValue, ...], ...] | None:
    """The values that the conditions allow for each of `columns`; None if a column may have any
    value, or if there are more than `most` combinations."""
    known: dict[str, tuple[PredicateValue, ...]] = {}
    for predicate in predicates:
        if predicate.operator in ("=", "in"):
            values = tuple(dict.fromkeys(predicate.values))
            known[predicate.column] = min(known.get(predicate.column, values), values, key=len)
    if not set(columns) <= set(known):
        return None
    combined = tuple(known[column] for column in columns)
    return combined if prod(map(len, combined)) <= most else None


_DECIMAL = re.compile(r"-?(\d+\.?\d*|\.\d+)")
"""Not 1e2, a DOUBLE: Spark compares it as such, and rounds the column's values for that."""


def plain_day(text: str) -> datetime.date | None:
    """The day that a text like `2026-11-20` names; None for another text."""
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        return None
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        return None


def _value_for(
    column: Column, value: FilterValue, bound: Mapping[str, object]
) -> PredicateValue | None:
    if not isinstance(column.type, AtomicType):
        return None
    if value.kind == "parameter":
        return _bound_value(column.type.name, bound.get(value.text))
    match column.type.name, value.kind:
        case name, "number" if name in INTEGERS and re.fullmatch(r"-?\d+", value.text):
            return int(value.text)
        case "DECIMAL", "number" if _DECIMAL.fullmatch(value.text):
            return Decimal(value.text)
        case (("STRING" | "VARCHAR"), "string"):
            return value.text
        case "DATE", ("date" | "string"):
            return plain_day(value.text)
        case "BOOLEAN", "boolean":
            return value.text == "true"
    return None


def _bound_value(name: str, value: object) -> PredicateValue | None:
    """A bound value that a column of the type `name` may have."""
    match value:
        case bool():
            return value if name == "BOOLEAN" else None
        case int():
            return value if name in (*INTEGERS, "DECIMAL") else None
        case Decimal():
            return value if name == "DECIMAL" and value.is_finite() else None
        case str():
            return value if name in ("STRING", "VARCHAR") else None
        case datetime.date():
            is_day = name == "DATE" and not isinstance(value, datetime.datetime)
            return value if is_day else None
    return None


# Conditions that prune files, as text for a person. Pure.


def condition_text(condition: ColumnPredicate | ColumnFilter) -> str:
    """A condition in SQL: `day = '2026-11-20'`. A long list is cut after its first values."""
    column, values = spelled(condition.column), [_value_text(value) for value in condition.values]
    if condition.operator == "in":
        more = ["…"] if len(values) > _VALUES_SHOWN else []
        return f"{column} IN ({', '.join([*values[:_VALUES_SHOWN], *more])})"
    return " ".join((column, condition.operator.upper(), *values))


def _value_text(value: object) -> str:
    match value:
        case FilterValue(kind="parameter"):
            return f":{value.text}"
        case FilterValue(kind="number" | "boolean"):
            return value.text
        case FilterValue():
            return text_literal(value.text)
        case bool():
            return str(value).lower()
        case str() | datetime.date():
            return text_literal(str(value))
        case _:
            return str(value)


# Conditions on remainders, such as `k % 100 = 3`. Bounds don't help with them, so they only serve
# to leave out rows that have been read.


def remainder_predicates(
    conditions: Iterable[str], alias: str, columns: Sequence[Column]
) -> tuple[ColumnPredicate, ...]:
    """The conditions on remainders of integer columns, from the texts of a WHERE's terms
    (`TableReference.other_conditions`). `alias` is the table's name in them."""
    predicates = []
    for text in conditions:
        match = _REMAINDER.fullmatch(text)
        if match is None or (match["alias"] or alias).lower() != alias.lower():
            continue
        column = _only_named(columns, match["column"])
        divisor, remainder = int(match["divisor"]), int(match["wanted"])
        # Division by zero is NULL or an error: Spark decides.
        if column is not None and divisor and family_of(column.type) == "integer":
            predicates.append(ColumnPredicate(column.name, "remainder", (divisor, remainder)))
    return tuple(predicates)
