"""Conditions that Spark pushes into the data source, as conditions of our planner.

Spark also checks every row itself, so a condition without a counterpart is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql import datasource as pushed

from paimon_magics.statements.statement import ColumnFilter, FilterValue

_OPERATORS: dict[type[Any], str] = {
    pushed.EqualTo: "=",
    pushed.LessThan: "<",
    pushed.LessThanOrEqual: "<=",
    pushed.GreaterThan: ">",
    pushed.GreaterThanOrEqual: ">=",
}


def column_filters(
    filters: Iterable[pushed.Filter],
) -> tuple[tuple[ColumnFilter, ...], dict[str, object]]:
    """Return the conditions on columns, and the values of their bind names."""
    bound: dict[str, object] = {}

    def bind(value: object) -> FilterValue:
        name = f"v{len(bound)}"
        bound[name] = value
        return FilterValue("parameter", name)

    conditions: list[ColumnFilter] = []
    for condition in filters:
        match condition:
            case pushed.IsNull(attribute=(column,)):
                conditions.append(ColumnFilter(column, "is null"))
            case pushed.IsNotNull(attribute=(column,)):
                conditions.append(ColumnFilter(column, "is not null"))
            case pushed.In(attribute=(column,), value=values):
                conditions.append(ColumnFilter(column, "in", tuple(map(bind, values))))
            case pushed.Filter() if type(condition) in _OPERATORS and len(condition.attribute) == 1:  # type: ignore[attr-defined]
                (column,), value = condition.attribute, bind(condition.value)  # type: ignore[attr-defined]
                conditions.append(ColumnFilter(column, _OPERATORS[type(condition)], (value,)))
    return tuple(conditions), bound
