"""Which columns of target and source the ON of a MERGE makes equal."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.planning.row_changes.on_terms import on_terms, side_and_column
from paimon_magics.statements.lexing.tokens import Token
from paimon_magics.statements.merge_into import MergeInto

__all__ = ["ColumnPair", "equated_columns"]


@dataclass(frozen=True, slots=True)
class ColumnPair:
    """A target's and a source's column, in lower case."""

    target: str
    source: str


def equated_columns(merge: MergeInto) -> frozenset[ColumnPair]:
    """Return the pairs that are equal wherever ON is true: its terms `t.a = s.b` and `t.a <=> s.b`,
    if nothing but AND connects them with the rest.

    Both names have to be qualified with the aliases: which side has a bare name is Spark's to say.
    """
    found = (_pair(merge, term) for term in on_terms(merge))
    return frozenset(pair for pair in found if pair is not None)


def _pair(merge: MergeInto, term: tuple[Token, ...]) -> ColumnPair | None:
    for at, token in enumerate(term):
        if token.text in ("=", "==", "<=>"):
            left = side_and_column(merge, term[:at])
            right = side_and_column(merge, term[at + 1 :])
            if left is None or right is None or left[0] == right[0]:
                return None
            by_side = dict((left, right))
            return ColumnPair(by_side["target"], by_side["source"])
    return None
