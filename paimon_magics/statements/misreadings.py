"""What a person may have meant where a query can't be read: a comma too many, a word misspelt."""

from __future__ import annotations

import difflib

from paimon_magics.errors import StatementSyntaxError
from paimon_magics.statements.keywords import word_set
from paimon_magics.statements.tokens import Token, tokenize

__all__ = ["misreading"]

_CLAUSES = word_set("FROM WHERE GROUP HAVING ORDER LIMIT JOIN ON SELECT UNION VALUES INTO BY")
_ALIKE_MIN = 0.7


def misreading(statement: str, position: int) -> tuple[str, str]:
    """What is wrong at a place where Spark stopped to read, and the next step."""
    try:
        tokens = tokenize(statement)
    except StatementSyntaxError:
        tokens = ()
    index = next((i for i, token in enumerate(tokens) if token.end > position), len(tokens))
    before = tokens[:index]
    if index == len(tokens):
        return "The statement ends too early.", "Complete it."
    found = tokens[index]
    message = f"The statement can't be read at `{found.text}`."
    for place in (index - 1, index):
        is_behind_comma = place > 0 and tokens[place - 1].text == ","
        if is_behind_comma and tokens[place].upper in _CLAUSES:
            return message, f"Leave out the comma before `{tokens[place].text}`."
    # Spark takes a misspelt word for an alias, and stumbles over what comes behind it.
    meant = _meant(before[-1]) if before else ""
    if meant:
        return message, f"Did you mean `{meant}` instead of `{before[-1].text}`?"
    return message, "Correct the statement."


def _meant(token: Token) -> str:
    """The word of a clause that this word is nearly, not being one."""
    if token.kind != "word" or token.upper in _CLAUSES:
        return ""
    near = difflib.get_close_matches(token.upper, _CLAUSES, n=1, cutoff=_ALIKE_MIN)
    return near[0] if near else ""
