"""Rows that a Python program gives in a list, as columns by their names.

Dictionaries, `Row`s of PySpark and named tuples have names. Their values go into the columns of
these names, wherever they stand in a row. Tuples and lists have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paimon_magics.errors import InvalidValueError
from paimon_magics.session.value_inputs import (
    CutValueError,
    check_names,
    fields_of,
    kind_of,
    shown,
)

__all__ = ["columns_of"]


def columns_of(rows: Sequence[Any]) -> dict[str, list[Any]] | None:
    """The values of each column, None where a row has none; or None for rows without names.

    Raises InvalidValueError, which names the row: where some rows have names and others have none,
    and for a name that is no text or comes twice. Also for rows without any column.
    """
    named = [kind_of(row) == "row" for row in rows]
    if rows and not any(named):
        return None
    if not all(named):
        without = named.index(False)
        raise InvalidValueError(
            f"Row {named.index(True) + 1} has names of columns, but row {without + 1} has none: "
            f"{shown(rows[without])}.",
            hint="Nothing was written. Give dictionaries alone, or tuples alone.",
        )
    by_name = []
    for number, row in enumerate(rows, 1):
        try:
            by_name.append(fields_of(row))
        except CutValueError as error:
            raise InvalidValueError(
                f"Row {number} is {shown(row)}: {error}.",
                hint="Nothing was written. Give each value a name of its own.",
            ) from None
        check_names(by_name[-1], number)
    names = list(dict.fromkeys(name for row in by_name for name in row))
    if not names:
        raise InvalidValueError(
            "The rows have no columns."
            if rows
            else "A list can't be written unless it holds dictionaries: it has no rows, and so no "
            "columns.",
            hint="Give dictionaries with a key for each column.",
        )
    return {name: [row.get(name) for row in by_name] for name in names}
