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
from paimon_magics.statements.data_types import AtomicType
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
    found = []
    for one in filters:
        named = [column for column in columns if column.name.lower() == one.column.lower()]
        if len(named) != 1:
            continue
        values = [_value_for(named[0], value, bound) for value in one.values]
        if isinstance(named[0].type, AtomicType) and None not in values:
            kept = tuple(value for value in values if value is not None)
            found.append(ColumnPredicate(named[0].name, one.operator, kept))
    return tuple(found)


def few_values(
    predicates: Iterable[ColumnPredicate], columns: Sequence[str], most: int
) -> tuple[tuple[PredicateValue, ...], ...] | None:
    """The values that the conditions leave for each of `columns`; None where they leave a column
    any value, or allow more than `most` combinations."""
    given: dict[str, tuple[PredicateValue, ...]] = {}
    for predicate in predicates:
        if predicate.operator in ("=", "in"):
            values = tuple(dict.fromkeys(predicate.values))
            known = given.get(predicate.column)
            given[predicate.column] = values if known is None or len(values) < len(known) else known
    if not set(columns) <= set(given):
        return None
    found = tuple(given[column] for column in columns)
    return found if prod(map(len, found)) <= most else None


_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
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
    kind: object = value.text if value.kind != "parameter" else bound.get(value.text)
    name = column.type.name
    if value.kind == "parameter":
        return _bound_value(name, kind)
    match name, value.kind:
        case _, "number" if name in _INTEGERS and re.fullmatch(r"-?\d+", value.text):
            return int(value.text)
        case "DECIMAL", "number" if _DECIMAL.fullmatch(value.text):
            return Decimal(value.text)
        case (("STRING" | "VARCHAR"), "string"):
            return value.text
        case "DATE", ("date" | "string"):
            return plain_day(value.text)
        case "BOOLEAN", "boolean":
            return value.text == "true"
        case _:
            return None


def _bound_value(name: str, value: object) -> PredicateValue | None:
    match value:
        case bool():
            return value if name == "BOOLEAN" else None
        case int():
            return value if name in _INTEGERS or name == "DECIMAL" else None
        case Decimal():
            return value if name == "DECIMAL" and value.is_finite() else None
        case str():
            return value if name in ("STRING", "VARCHAR") else None
        case datetime.datetime():
            return None
        case datetime.date():
            return value if name == "DATE" else None
        case _:
            return None


# Conditions that prune files, as text for a person. Pure.


def condition_text(condition: ColumnPredicate | ColumnFilter) -> str:
    """A condition in SQL: `day = '2026-11-20'`. A long list is cut after its first values."""
    column, said = spelled(condition.column), [_value_text(value) for value in condition.values]
    if condition.operator == "in":
        more = ["…"] if len(said) > _VALUES_SHOWN else []
        return f"{column} IN ({', '.join([*said[:_VALUES_SHOWN], *more])})"
    return " ".join((column, condition.operator.upper(), *said))


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


# Conditions on remainders, such as `k % 100 = 3`. No bounds tell anything of them, so that they
# only serve to leave rows out once these are read.


def remainder_predicates(
    conditions: Iterable[str], alias: str, columns: Sequence[Column]
) -> tuple[ColumnPredicate, ...]:
    """The conditions on remainders of integer columns, from the texts of a WHERE's terms
    (`TableReference.other_conditions`). `alias` is the table's name in them."""
    found = []
    for text in conditions:
        match = _REMAINDER.fullmatch(text)
        if match is None or (match["alias"] or alias).lower() != alias.lower():
            continue
        named = [column for column in columns if column.name.lower() == match["column"].lower()]
        divisor, wanted = int(match["divisor"]), int(match["wanted"])
        # Division by zero is NULL or an error: Spark's to say.
        if len(named) == 1 and divisor and _is_integer(named[0]):
            found.append(ColumnPredicate(named[0].name, "remainder", (divisor, wanted)))
    return tuple(found)


def _is_integer(column: Column) -> bool:
    return isinstance(column.type, AtomicType) and column.type.name in _INTEGERS
