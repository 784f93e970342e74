"""Conditions that prune files, as text for a person. Pure."""

from __future__ import annotations

import datetime

from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.statements.clauses.names import spelled, text_literal
from paimon_magics.statements.statement import ColumnFilter, FilterValue

__all__ = ["condition_text"]

_VALUES_SHOWN = 5


def condition_text(condition: ColumnPredicate | ColumnFilter) -> str:
    """A condition in SQL: `day = '2026-11-20'`. A long list is cut after its first values."""
    column, said = spelled(condition.column), [_value_text(one) for one in condition.values]
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
