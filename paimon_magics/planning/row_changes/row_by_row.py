"""Whether a statement chooses each row of its target by itself."""

from __future__ import annotations

from itertools import pairwise

from paimon_magics.statements.lexing.keywords import QUERY_WORDS
from paimon_magics.statements.lexing.tokens import tokenize
from paimon_magics.statements.row_changes import RowChange

__all__ = ["chooses_row_by_row"]


def chooses_row_by_row(change: RowChange) -> bool:
    """Whether the text of a DELETE or UPDATE has no query and no table but its target, so that no
    row has to meet others before it is chosen. A function may still hide a query."""
    if len(change.selection.query.references) != 1:
        return False
    return not any(
        one.text == "(" and following.upper in QUERY_WORDS
        for one, following in pairwise(tokenize(change.text))
    )
