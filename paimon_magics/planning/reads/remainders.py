"""Conditions on remainders, such as `k % 100 = 3`. No bounds tell anything of them, so that they
only serve to leave rows out once these are read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.statements.data_types import AtomicType

__all__ = ["remainder_predicates"]

_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_REMAINDER = re.compile(
    r"(?:`?(?P<alias>\w+)`?\.)?`?(?P<column>\w+)`? % (?P<divisor>\d{1,9}) = (?P<wanted>-?\d{1,9})"
)


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
        named = [one for one in columns if one.name.lower() == match["column"].lower()]
        divisor, wanted = int(match["divisor"]), int(match["wanted"])
        # Division by zero is NULL or an error: Spark's to say.
        if len(named) == 1 and divisor and _is_integer(named[0]):
            found.append(ColumnPredicate(named[0].name, "remainder", (divisor, wanted)))
    return tuple(found)


def _is_integer(column: Column) -> bool:
    return isinstance(column.type, AtomicType) and column.type.name in _INTEGERS
