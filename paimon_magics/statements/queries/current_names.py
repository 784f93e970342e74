"""`current_database()` and its like in a query: they tell the session's names, not Spark's own.

Spark evaluates them by its own catalog, which USE does not change here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from paimon_magics.statements.clauses.names import quoted, text_literal
from paimon_magics.statements.lexing.tokens import CLOSING, OPENING, Token, tokenize
from paimon_magics.statements.queries.rewriting import Replacement
from paimon_magics.statements.statement import QueryText, TextRange

__all__ = ["current_names"]

_DATABASE = frozenset({"CURRENT_DATABASE", "CURRENT_SCHEMA", "DATABASE", "SCHEMA"})
_CATALOG = frozenset({"CURRENT_CATALOG"})
# What most queries have none of costs no tokens.
_CALL = re.compile("|".join(sorted(_DATABASE | _CATALOG)), re.IGNORECASE)
_BEFORE_ITEM = frozenset({"SELECT", "DISTINCT", "ALL", ","})
_BEHIND_ITEM = frozenset({",", "FROM", "WHERE", "LIMIT", "UNION", "EXCEPT", "INTERSECT", "ORDER"})


def current_names(
    statement: str, query: QueryText, catalog: str, database: str
) -> tuple[Replacement, ...]:
    """The replacements by which calls of `current_database`, `current_schema`, `database`, `schema`
    and `current_catalog` become texts. A call that is a whole column of a SELECT keeps its name."""
    if not _CALL.search(statement):
        return ()
    within = query.range
    tokens = [token for token in tokenize(statement) if within.start <= token.start < within.end]
    replacements = []
    for at, token in enumerate(tokens[:-2]):
        name = token.upper if token.kind == "word" else ""
        is_call = tokens[at + 1].text == "(" and tokens[at + 2].text == ")"
        is_member = at > 0 and tokens[at - 1].text == "."
        if not is_call or is_member or name not in _DATABASE | _CATALOG:
            continue
        text = text_literal(database if name in _DATABASE else catalog)
        if _is_column(tokens, at):
            text += f" AS {quoted(f'{token.text}()')}"
        replacements.append((TextRange(token.start, tokens[at + 2].end), text))
    return tuple(replacements)


def _is_column(tokens: Sequence[Token], at: int) -> bool:
    """Whether the call at `at` is a column of a SELECT, without an alias."""
    behind = tokens[at + 3].upper or tokens[at + 3].text if at + 3 < len(tokens) else ";"
    ends = behind in _BEHIND_ITEM or behind in CLOSING or behind == ";"
    before = tokens[at - 1].upper or tokens[at - 1].text if at else ""
    return ends and before in _BEFORE_ITEM and _clause_of(tokens, at) == "SELECT"


def _clause_of(tokens: Sequence[Token], at: int) -> str:
    """The word that begins the clause of a token: SELECT, FROM, …; "" in brackets of a call."""
    depth = 0
    for token in reversed(tokens[:at]):
        if token.text in CLOSING:
            depth += 1
        elif token.text in OPENING:
            if not depth:
                return ""
            depth -= 1
        elif not depth and token.upper in ("SELECT", "FROM", "WHERE", "BY", "HAVING", "ON"):
            return token.upper
    return ""
