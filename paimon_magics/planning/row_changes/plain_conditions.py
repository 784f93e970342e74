"""Conditions that only compare columns with plain values, read from their text.

Such a condition needs nobody to evaluate it but a comparison of values. Anything else, as a
function, a text with an escape or a number with a point, is Spark's to evaluate.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, tokenize
from paimon_magics.statements.row_changes import RowChange
from paimon_magics.statements.statement import ColumnFilter, FilterValue

__all__ = ["plain_filters"]

_NUMBER = re.compile(r"\d+")
_TEXT = re.compile(r"'[^'\\\n]*'")
_DAY = re.compile(r"'\d{4}-\d\d-\d\d'")
_ORDERED = ("<=", ">=", "<", ">")


def plain_filters(change: RowChange, columns: Collection[str]) -> tuple[ColumnFilter, ...] | None:
    """The comparisons of a statement's condition; None unless it consists of comparisons of these
    columns with values alone, with AND between them: `=`, `<`, `<=`, `>`, `>=`, `IN (value, …)`,
    `IS NULL`, `IS NOT NULL`; and of values of one column with OR between them, which count as IN.
    Values are whole numbers, texts, dates, truth values and bind names."""
    where = change.selection.condition
    if where is None:
        return None
    text = change.text[where.start : where.end]
    cursor = Cursor(text, tokenize(text))
    names = {column.lower(): column for column in columns}
    table = (change.alias or change.target.table).lower()
    alone = _alternatives(cursor, names, table)
    if alone is not None and cursor.at_end:
        return (alone,)
    cursor.index = 0
    found: list[ColumnFilter] = []
    while True:
        if cursor.accept("("):
            one = _alternatives(cursor, names, table)
            if not cursor.accept(")"):
                return None
        else:
            one = _comparison(cursor, names, table)
        if one is None:
            return None
        found.append(one)
        if cursor.at_end:
            return tuple(found)
        if not cursor.accept("AND"):
            return None


def _alternatives(cursor: Cursor, names: Mapping[str, str], table: str) -> ColumnFilter | None:
    """Comparisons with OR between them, as one."""
    found = _comparison(cursor, names, table)
    while found is not None and cursor.accept("OR"):
        other = _comparison(cursor, names, table)
        found = None if other is None else found.either(other)
    return found


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
    if cursor.at_any(*_ORDERED):
        operator = cursor.next().text
        value = _value(cursor)
        return None if value is None else ColumnFilter(column, operator, (value,))
    if cursor.accept("IS", "NOT", "NULL"):
        return ColumnFilter(column, "is not null")
    if cursor.accept("IS", "NULL"):
        return ColumnFilter(column, "is null")
    return _list(cursor, column) if cursor.accept("IN", "(") else None


def _list(cursor: Cursor, column: str) -> ColumnFilter | None:
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
    if token.upper == "DATE" and _DAY.fullmatch(cursor.peek().text):
        return FilterValue("date", cursor.next().value)
    if token.kind == "word" and token.upper in ("TRUE", "FALSE"):
        return FilterValue("boolean", token.text.lower())
    if token.kind == "string" and _TEXT.fullmatch(token.text) and cursor.peek().kind != "string":
        return FilterValue("string", token.value)
    return None
