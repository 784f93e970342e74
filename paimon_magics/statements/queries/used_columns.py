"""Which columns a query can be about: the names that stand in it.

A superset, from tokens alone: a column that no name in the query's text can mean is not read.
"""

from __future__ import annotations

from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, Token, tokenize
from paimon_magics.statements.statement import QueryText

__all__ = ["used_names"]

# What stands for columns without naming them.
_NAMELESS = frozenset({"NATURAL", "PIVOT", "UNPIVOT", "TABLE", "IDENTIFIER", "COLUMNS"})
_BEFORE_A_STAR = frozenset({"SELECT", "DISTINCT", "ALL", ",", ".", "("})


def used_names(statement: str, query: QueryText) -> frozenset[str] | None:
    """All names in the query, in lower case; None where it may be about any column."""
    tokens = [
        token for token in tokenize(statement) if query.range.start <= token.start < query.range.end
    ]
    if tokens and tokens[0].upper == "FROM":
        return None  # a query that begins so gives all columns
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
    """Whether a `*` means columns: `SELECT *`, `t.*`; not `a * b`, and not `count(*)`."""
    before = tokens[index - 1] if index else None
    if before is None or before.upper not in _BEFORE_A_STAR:
        return False
    counts = before.text == "(" and index >= 2 and tokens[index - 2].upper == "COUNT"
    return not counts
