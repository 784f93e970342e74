"""Finds calls of the functions that tell a row's file: `input_file_name()` and its like."""

from __future__ import annotations

import re
from itertools import pairwise

from paimon_magics.statements.lexing.tokens import tokenize

__all__ = ["input_file_call"]

_NAMES = ("INPUT_FILE_NAME", "INPUT_FILE_BLOCK_START", "INPUT_FILE_BLOCK_LENGTH")
# What most statements have none of costs no tokens.
_NAME = re.compile("|".join(_NAMES), re.IGNORECASE)


def input_file_call(statement: str) -> str | None:
    """The first such call in a statement, in lower case; None where there is none."""
    if not _NAME.search(statement):
        return None
    tokens = list(tokenize(statement))
    for token, behind in pairwise(tokens):
        if token.upper in _NAMES and behind.text == "(":
            return f"{token.upper.lower()}()"
    return None
