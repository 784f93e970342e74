"""Texts of SQL that Python's callers give: values by column, which become parts of a statement."""

from __future__ import annotations

from collections.abc import Mapping

from paimon_magics.errors import InvalidValueError, value_text
from paimon_magics.statements.clauses.names import quoted

__all__ = ["sql_text", "values_by_column"]


def values_by_column(values: object, example: str) -> list[tuple[str, str]]:
    """The columns, or fields of structs, that get values, and the values in brackets. `example` is
    a text that the error shows as a value. Raises InvalidValueError for what is no dictionary of
    texts, and for one without any."""
    if not isinstance(values, Mapping) or not values:
        empty = isinstance(values, Mapping)
        raise InvalidValueError(
            "No values by column are given."
            if empty
            else f"Values by column are expected, not {value_text(values)}.",
            hint=f"Give a dictionary: {{'amount': '{example}'}}.",
        )
    found = []
    for column, value in values.items():
        text = sql_text(value, f"The value of `{column}`", example)
        path = ".".join(quoted(part.strip("`")) for part in str(column).split("."))
        found.append((path, text if text.strip().upper() == "DEFAULT" else f"({text})"))
    return found


def sql_text(value: object, what: str, example: str) -> str:
    """`value`, if it is a text of SQL; raises InvalidValueError about `what` otherwise."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidValueError(
            f"{what} is {value_text(value)}, not a text of SQL.",
            hint=f'Write it as in a statement: "{example}", "\'red\'", "0"; or bind it, '
            '":limit", with parameters={"limit": 3}.',
        )
    return value
