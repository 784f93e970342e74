"""Recognises queries that choose columns and rows of one table, and do nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, Token, tokenize
from paimon_magics.statements.statement import QueryText, TableReference

__all__ = ["PlainQuery", "plain_query"]

# Words that begin another clause or a subquery, and operators whose meaning depends on more.
_OTHERS = frozenset(
    {
        *("SELECT", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET"),
        *("UNION", "INTERSECT", "EXCEPT", "MINUS", "WINDOW", "OVER", "QUALIFY", "LATERAL", "PIVOT"),
        *("UNPIVOT", "TABLESAMPLE", "JOIN", ".", ":", "?", "|>", ";", "{"),
    }
)


@dataclass(frozen=True, slots=True)
class PlainQuery:
    """`SELECT columns FROM reference WHERE condition`: the names of the columns, None for `*`, and
    the text of the condition, None without one."""

    reference: TableReference
    columns: tuple[str, ...] | None
    where: str | None


def plain_query(statement: str, query: QueryText) -> PlainQuery | None:
    """The parts of a plain query without bind names and aliases; None for any other."""
    if len(query.references) != 1 or query.parameters or query.cuts:
        return None
    reference = query.references[0]
    if reference.has_alias or reference.qualifiers:
        return None
    tokens = [
        token for token in tokenize(statement) if query.range.start <= token.start < query.range.end
    ]
    chosen = [token for token in tokens if token.start < reference.range.start]
    rest = [token for token in tokens if token.start >= reference.range.end]
    if len(chosen) < 3 or chosen[0].upper != "SELECT" or chosen[-1].upper != "FROM":
        return None
    columns = _columns(chosen[1:-1])
    if columns is None or any(token.upper in _OTHERS for token in rest):
        return None
    if not rest:
        return PlainQuery(reference, columns or None, None)
    if rest[0].upper != "WHERE" or len(rest) < 2:
        return None
    return PlainQuery(reference, columns or None, statement[rest[1].start : query.range.end])


def _columns(tokens: list[Token]) -> tuple[str, ...] | None:
    """The names in a list of columns, none for `*`; None for anything else."""
    if len(tokens) == 1 and tokens[0].text == "*":
        return ()
    names = []
    for place, token in enumerate(tokens):
        if place % 2:
            if token.text != ",":
                return None
        elif token.kind in IDENTIFIER_KINDS:
            names.append(token.name)
        else:
            return None
    return tuple(names) if len(tokens) % 2 else None
