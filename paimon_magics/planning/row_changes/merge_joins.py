"""How the sides of a MERGE are joined, by the kinds of its clauses."""

from __future__ import annotations

from collections.abc import Set
from typing import Literal

from paimon_magics.statements.merge_into import MatchKind

__all__ = ["Join", "join_of"]

Join = Literal["INNER", "LEFT OUTER", "RIGHT OUTER", "FULL OUTER", "LEFT ANTI", "RIGHT ANTI"]
"""How the target, on the left, is joined with the source; `RIGHT ANTI` are the source rows alone
that match no target row."""


def join_of(kinds: Set[MatchKind]) -> Join:
    """The join that finds the rows of clauses of these kinds, and few others."""
    match ("MATCHED" in kinds, "NOT MATCHED" in kinds, "NOT MATCHED BY SOURCE" in kinds):
        case (_, True, True):
            return "FULL OUTER"
        case (True, True, False):
            return "RIGHT OUTER"
        case (False, True, False):
            return "RIGHT ANTI"
        case (True, False, True):
            return "LEFT OUTER"
        case (False, False, True):
            return "LEFT ANTI"
        case _:
            return "INNER"
