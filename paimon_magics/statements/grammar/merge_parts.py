"""Splits MERGE INTO into the texts of its parts, to suggest an alternative.

The statement is not run. A form that can't be read gives None.
"""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.errors import StatementSyntaxError
from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, tokenize

__all__ = ["Merge", "read_merge"]

_NO_ALIAS = ("AS", "WHERE", "SET", "USING", "ON", "WHEN")


@dataclass(frozen=True, slots=True)
class Merge:
    """MERGE INTO `target` [AS `alias`] USING `source` [AS `source_alias`] ON `condition`;
    `is_upsert` says that it updates and inserts whole rows (`UPDATE SET *`, `INSERT *`)."""

    target: str
    alias: str
    source: str
    source_alias: str
    condition: str
    is_upsert: bool


def read_merge(text: str) -> Merge | None:
    """Return the parts of a MERGE statement, None for any other text."""
    try:
        cursor = Cursor(text, tokenize(text))
        if cursor.accept("MERGE", "INTO"):
            return _merge(cursor)
    except StatementSyntaxError:
        pass
    return None


def _merge(cursor: Cursor) -> Merge:
    target, alias = _target(cursor)
    cursor.expect("USING")
    source = cursor.text_until("AS", "ON", *_aliases(cursor), what="a source")
    source_alias = _alias(cursor)
    cursor.expect("ON")
    condition = cursor.text_until("WHEN", what="a condition")
    clauses = " ".join(cursor.text[cursor.position :].upper().split())
    whole = {
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        "WHEN NOT MATCHED THEN INSERT * WHEN MATCHED THEN UPDATE SET *",
    }
    return Merge(target, alias, source, source_alias, condition, clauses in whole)


def _aliases(cursor: Cursor) -> tuple[str, ...]:
    """The source's alias without AS, if there is one: a name that follows a name or `)`."""
    index = cursor.index
    while index + 1 < cursor.stop:
        index = cursor.brackets.get(index, index)
        token, following = cursor.tokens[index], cursor.tokens[index + 1]
        is_whole = token.kind in IDENTIFIER_KINDS or token.text == ")"
        if is_whole and following.text != ".":
            is_alias = following.kind in IDENTIFIER_KINDS and following.upper not in _NO_ALIAS
            return (following.upper,) if is_alias and following.upper else ()
        index += 1
    return ()


def _target(cursor: Cursor) -> tuple[str, str]:
    start = cursor.position
    cursor.identifier("a table's name")
    while cursor.accept("."):
        cursor.identifier("a name after the dot")
    return cursor.text[start : cursor.last_end], _alias(cursor)


def _alias(cursor: Cursor) -> str:
    if cursor.accept("AS") or (
        cursor.peek().kind in IDENTIFIER_KINDS and cursor.peek().upper not in _NO_ALIAS
    ):
        return cursor.identifier("an alias")
    return ""
