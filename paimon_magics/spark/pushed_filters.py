"""Conditions that Spark pushes into the data source, as conditions of our planner.

Spark checks every row itself as well, so that a condition without a counterpart is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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

    def value(given: object) -> FilterValue:
        name = f"v{len(bound)}"
        bound[name] = given
        return FilterValue("parameter", name)

    def found() -> Iterator[ColumnFilter]:
        for one in filters:
            match one:
                case pushed.IsNull(attribute=(column,)):
                    yield ColumnFilter(column, "is null")
                case pushed.IsNotNull(attribute=(column,)):
                    yield ColumnFilter(column, "is not null")
                case pushed.In(attribute=(column,), value=values):
                    yield ColumnFilter(column, "in", tuple(value(each) for each in values))
                case pushed.Filter() if type(one) in _OPERATORS and len(one.attribute) == 1:  # type: ignore[attr-defined]
                    given = value(one.value)  # type: ignore[attr-defined]
                    yield ColumnFilter(one.attribute[0], _OPERATORS[type(one)], (given,))  # type: ignore[attr-defined]

    return tuple(found()), bound
