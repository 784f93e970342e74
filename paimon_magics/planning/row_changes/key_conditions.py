"""Conditions that only compare key columns with plain values, read from their text.

Such a condition needs nobody to evaluate it: the rows with these keys are those that it selects.
Anything else, as a word, a function, a text with an escape or a number with a point, is Spark's to
evaluate.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, tokenize
from paimon_magics.statements.row_changes import RowChange
from paimon_magics.statements.statement import ColumnFilter, FilterValue

__all__ = ["key_filters"]

_NUMBER = re.compile(r"\d+")
_TEXT = re.compile(r"'[^'\\\n]*'")


def key_filters(change: RowChange, keys: Collection[str]) -> tuple[ColumnFilter, ...] | None:
    """The comparisons of a statement's condition; None unless it consists of `key = value` and `key
    IN (value, …)` alone, with AND between them. Values are whole numbers, texts and bind names."""
    where = change.selection.condition
    if where is None:
        return None
    text = change.text[where.start : where.end]
    cursor = Cursor(text, tokenize(text))
    names = {key.lower(): key for key in keys}
    table = (change.alias or change.target.table).lower()
    found: list[ColumnFilter] = []
    while True:
        one = _comparison(cursor, names, table)
        if one is None:
            return None
        found.append(one)
        if cursor.at_end:
            return tuple(found)
        if not cursor.accept("AND"):
            return None


def _comparison(cursor: Cursor, names: Mapping[str, str], table: str) -> ColumnFilter | None:
    if cursor.peek(1).text == "." and cursor.peek().name.lower() == table:
        cursor.index += 2
    token = cursor.next()
    column = names.get(token.name.lower()) if token.kind in IDENTIFIER_KINDS else None
    if column is None:
        return None
    if cursor.accept_any("=", "=="):
        value = _value(cursor)
        return None if value is None else ColumnFilter(column, "=", (value,))
    if not cursor.accept("IN", "("):
        return None
    values: list[FilterValue] = []
    while True:
        value = _value(cursor)
        if value is None:
            return None
        values.append(value)
        if cursor.accept(")"):
            return ColumnFilter(column, "in", tuple(values))
        if not cursor.accept(","):
            return None


def _value(cursor: Cursor) -> FilterValue | None:
    sign = "-" if cursor.accept("-") else ""
    token = cursor.next()
    if token.kind == "number" and _NUMBER.fullmatch(token.text):
        return FilterValue("number", sign + token.text)
    if sign:
        return None
    if token.text == ":" and cursor.peek().kind == "word":
        return FilterValue("parameter", cursor.next().name)
    if token.kind == "string" and _TEXT.fullmatch(token.text) and cursor.peek().kind != "string":
        return FilterValue("string", token.value)
    return None
