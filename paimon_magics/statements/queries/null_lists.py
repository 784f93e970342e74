"""Finds lists with NULL in a statement: `b IN (1, NULL)`."""

from __future__ import annotations

from collections.abc import Mapping

from paimon_magics.statements.lexing.tokens import tokenize

__all__ = ["lists_null"]


def lists_null(statement: str, bound: Mapping[str, object]) -> bool:
    """Whether an IN list may have a NULL in it, written or as a value of `bound`; from tokens
    alone, so that others are taken for one, too."""
    words = [token.upper for token in tokenize(statement)]
    if "IN" not in words:
        return False
    return any(map(_has_null, bound.values())) or any(
        word == "NULL" and words[at - 1] not in ("IS", "NOT") for at, word in enumerate(words) if at
    )


def _has_null(value: object) -> bool:
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_has_null, value))
    return value is None
