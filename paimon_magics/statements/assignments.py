"""An assigned column or field as a value, as UPDATE and MERGE write it."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.statements.statement import TextRange

__all__ = ["Assignment"]


@dataclass(frozen=True, slots=True)
class Assignment:
    """`path = value`. `path` are the parts of the name as written, which may begin with the table's
    name or alias, and lead to a field of a STRUCT. `value` is the value's range, None for the word
    DEFAULT."""

    path: tuple[str, ...]
    position: int
    value: TextRange | None
