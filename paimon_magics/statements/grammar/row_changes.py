"""Splits DELETE, UPDATE and MERGE into the texts of their parts, to suggest an alternative.

These statements are not run. A form that can't be read gives None.
"""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.errors import StatementSyntaxError
from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, tokenize

__all__ = ["Delete", "Merge", "RowChange", "Update", "read_row_change"]

_NO_ALIAS = ("AS", "WHERE", "SET", "USING", "ON", "WHEN")


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE FROM `target` [AS `alias`] [WHERE `condition`]."""

    target: str
    alias: str
    condition: str


@dataclass(frozen=True, slots=True)
class Update:
    """UPDATE `target` [AS `alias`] SET `assignments` [WHERE `condition`].

    An assignment is a column's name and the text of its value.
    """

    target: str
    alias: str
    assignments: tuple[tuple[str, str], ...]
    condition: str


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


RowChange = Delete | Update | Merge


def read_row_change(text: str) -> RowChange | None:
    """Return the parts of a DELETE, UPDATE or MERGE statement, None for any other text."""
    try:
        cursor = Cursor(text, tokenize(text))
        if cursor.accept("DELETE", "FROM"):
            return _delete(cursor)
        if cursor.accept("UPDATE"):
            return _update(cursor)
        if cursor.accept("MERGE", "INTO"):
            return _merge(cursor)
    except StatementSyntaxError:
        pass
    return None


def _delete(cursor: Cursor) -> Delete:
    target, alias = _target(cursor)
    return Delete(target, alias, _condition(cursor))


def _update(cursor: Cursor) -> Update:
    target, alias = _target(cursor)
    cursor.expect("SET")
    assignments = []
    while True:
        name = cursor.identifier("a column's name")
        while cursor.accept("."):
            name = cursor.identifier("a column's name")
        cursor.expect("=")
        assignments.append((name, cursor.text_until(",", "WHERE", what="a value")))
        if not cursor.accept(","):
            break
    return Update(target, alias, tuple(assignments), _condition(cursor))


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


def _condition(cursor: Cursor) -> str:
    if not cursor.accept("WHERE"):
        cursor.expect_end()
        return ""
    condition = cursor.text_until(what="a condition")
    cursor.expect_end()
    return condition
