"""Finds the names of columns that a query may use.

They are a superset, from tokens alone: a column whose name does not occur in the query's text need
not be read.
"""

from __future__ import annotations

from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, Token, tokenize
from paimon_magics.statements.statement import QueryText

__all__ = ["used_names"]

# Words that use columns without naming them.
_NAMELESS = frozenset({"NATURAL", "PIVOT", "UNPIVOT", "TABLE", "IDENTIFIER", "COLUMNS"})
_BEFORE_A_STAR = frozenset({"SELECT", "DISTINCT", "ALL", ",", ".", "("})


def used_names(statement: str, query: QueryText) -> frozenset[str] | None:
    """Return all names in the query, in lower case; None if it may use any column."""
    tokens = [
        token for token in tokenize(statement) if query.range.start <= token.start < query.range.end
    ]
    if tokens and tokens[0].upper == "FROM":
        return None  # such a query returns all columns
    names = set()
    for index, token in enumerate(tokens):
        if token.kind in IDENTIFIER_KINDS:
            if token.kind == "word" and token.upper in _NAMELESS:
                return None
            names.add(token.name.lower())
        elif token.text == "|>" or (token.text == "*" and _is_all(tokens, index)):
            return None
    return frozenset(names)


def _is_all(tokens: list[Token], index: int) -> bool:
    """Whether a `*` means all columns: `SELECT *`, `t.*`; not `a * b`, and not `count(*)`."""
    before = tokens[index - 1] if index else None
    if before is None or before.upper not in _BEFORE_A_STAR:
        return False
    counts = before.text == "(" and index >= 2 and tokens[index - 2].upper == "COUNT"
    return not counts
