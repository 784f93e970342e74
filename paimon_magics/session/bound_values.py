"""A statement with its bind values as literals: to show it, and to run it on its own."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Mapping

from paimon_magics.planning.formatting import shortened
from paimon_magics.statements.clauses.names import text_literal
from paimon_magics.statements.queries.query_text import parameter_ranges

__all__ = ["bindings_text", "literal", "with_values"]

_SHOWN_MAX = 80


def with_values(text: str, values: Mapping[str, object]) -> str:
    """Return the statement with literals in place of its `:name`s. A name whose value has no
    literal (a Spark column, a numpy array) stays."""
    parts, end = [], 0
    for place, name in parameter_ranges(text):
        found = literal(values.get(name, ...))
        if found is not None:
            parts += [text[end : place.start], found]
            end = place.end
    return "".join([*parts, text[end:]])


def bindings_text(values: Mapping[str, object]) -> str:
    """The values in one line: `:day = '2026-11-20', :n = 3`; "" without values."""
    return ", ".join(
        f":{name} = {shortened(literal(value) or repr(value), _SHOWN_MAX)}"
        for name, value in values.items()
    )


def literal(value: object) -> str | None:
    """Return the SQL literal that equals what Spark makes of a bound value; None if there is
    none."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case int():
            return f"({value})" if value < 0 else str(value)
        case float():
            return f"double('{value}')" if not math.isfinite(value) else f"({value!r}D)"
        case decimal.Decimal() if value.is_finite():
            return f"({value:f}BD)"
        case str():
            return text_literal(value)
        case bytes() | bytearray():
            return f"X'{value.hex()}'"
        case datetime.datetime():
            # Without a zone it is in this process's zone, which may differ from Spark's.
            moment = value if value.tzinfo is not None else value.astimezone(datetime.UTC)
            return f"TIMESTAMP'{moment.isoformat(sep=' ')}'"
        case datetime.date():
            return f"DATE'{value.isoformat()}'"
        case list():
            items = [literal(one) for one in value]
            return None if None in items else f"array({', '.join(map(str, items))})"
        case _:
            return None
