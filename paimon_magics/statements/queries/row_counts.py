"""Tells queries that have no more rows than the one relation that they read."""

from __future__ import annotations

from paimon_magics.statements.lexing.keywords import word_set
from paimon_magics.statements.lexing.tokens import Token, tokenize
from paimon_magics.statements.statement import QueryText

__all__ = ["adds_no_rows"]

_ADD_ROWS = word_set(
    "WITH JOIN LATERAL UNION VALUES TABLE PIVOT UNPIVOT CUBE ROLLUP SETS EXPLODE EXPLODE_OUTER "
    "POSEXPLODE POSEXPLODE_OUTER INLINE INLINE_OUTER STACK JSON_TUPLE TRANSFORM |>"
)


def adds_no_rows(statement: str, query: QueryText) -> bool:
    """Whether the query is one SELECT from one table, without anything that makes several rows of
    one. A query without a group has one row even of none."""
    if len(query.references) != 1:
        return False
    tokens = [
        one for one in tokenize(statement) if query.range.start <= one.start < query.range.end
    ]
    words = [one.upper for one in tokens]
    return (
        words[:1] == ["SELECT"]
        and words.count("SELECT") == words.count("FROM") == 1
        and _ADD_ROWS.isdisjoint(words)
        and not _is_joined(tokens, query.references[0].range.end)
    )


def _is_joined(tokens: list[Token], end: int) -> bool:
    """Whether a comma follows the table before the next clause."""
    for one in tokens:
        if one.start < end:
            continue
        if one.text == ",":
            return True
        if one.upper in ("WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "SORT", "WINDOW"):
            return False
    return False
