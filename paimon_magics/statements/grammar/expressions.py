"""Where an expression inside a statement ends, and what it may not hold.

Nothing here understands expressions: brackets and CASE … END are stepped over as they stand.
"""

from __future__ import annotations

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.keywords import QUERY_WORDS
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS
from paimon_magics.statements.statement import TextRange

__all__ = ["column_path", "expression_until", "refuse_inside"]


def column_path(cursor: Cursor) -> tuple[str, ...]:
    """Read the name of what is assigned: its parts, with dots between them."""
    parts = [cursor.identifier("a column's name")]
    while cursor.accept("."):
        parts.append(cursor.identifier("a name after the dot"))
    return tuple(parts)


def expression_until(cursor: Cursor, *ends: str, what: str) -> TextRange:
    """Step to the next of these words outside brackets and CASE … END, or to the cursor's stop, and
    return the range passed.

    A name of a column after a dot is never one of the words. Raises StatementSyntaxError if there
    is nothing before the word.
    """
    start, depth = cursor.index, 0
    while not cursor.at_end:
        token = cursor.peek()
        is_name = cursor.index > start and cursor.tokens[cursor.index - 1].text == "."
        if depth == 0 and token.upper in ends and not is_name:
            break
        if cursor.index in cursor.brackets:
            cursor.skip_brackets()
            continue
        if token.upper == "CASE" and not is_name and cursor.peek(1).text != ".":
            depth += 1
        elif token.upper == "END" and not is_name and depth:
            depth -= 1
        cursor.next()
    if cursor.index == start:
        cursor.fail(what)
    return TextRange(cursor.tokens[start].start, cursor.last_end)


def refuse_inside(cursor: Cursor, first: int, *, subqueries: str = "") -> None:
    """Raise UnsupportedStatementError for a window function from token `first` to the cursor, and
    for a subquery where `subqueries` says what the expression is."""
    tokens = cursor.tokens
    for index in range(first, cursor.index - 1):
        token, following = tokens[index], tokens[index + 1]
        if token.upper == "OVER" and (following.text == "(" or following.kind in IDENTIFIER_KINDS):
            raise UnsupportedStatementError(
                "Window functions have no meaning in MERGE, whose rows come one by one.",
                hint="Compute it in the source's query: USING (SELECT …, … OVER (…) AS n …) AS s.",
                statement=cursor.text,
                position=token.start,
            )
        if subqueries and token.text == "(" and following.upper in QUERY_WORDS - {"MAP", "TABLE"}:
            raise UnsupportedStatementError(
                f"There is a subquery in {subqueries}; it is not offered there, nor by Paimon's "
                "own connector.",
                hint="Join it in the source's query: USING (SELECT … FROM … LEFT JOIN …) AS s.",
                statement=cursor.text,
                position=following.start,
            )
