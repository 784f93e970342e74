"""Values that an UPDATE assigns and Spark need not evaluate, read from their text: a literal, a
bound value, another column, or a number that is added to a column, subtracted or multiplied.

They are used only if Spark's result does not depend on its settings and no check of the column can
fail. Spark evaluates or refuses everything else, such as a function, an overflow, a text that is
too long, or NULL for a NOT NULL column.
"""

from __future__ import annotations

import datetime
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from paimon_magics.planning.row_changes.assignments import AssignedPath
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.statements.data_types import INTEGER_BITS, AtomicType
from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import (
    IDENTIFIER_KINDS,
    Token,
    matching_brackets,
    tokenize,
)
from paimon_magics.statements.statement import ColumnFilter, FilterValue, RowChange, Update

_NUMERIC = frozenset({*INTEGER_BITS, "DOUBLE", "DECIMAL"})
_DECIMAL_DIGITS_MAX = 38
_OPERATORS: Mapping[str, Callable[[object, object], object]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_NUMBER = re.compile(r"\d{1,18}(\.\d{1,18})?")
_TEXT = re.compile(r"'[^'\\\n]*'")
_DAY = re.compile(r"'\d{4}-\d\d-\d\d'")
_CONSTANTS = {"NULL": None, "TRUE": True, "FALSE": False}
_NO_NAMES = frozenset({"DEFAULT", "CURRENT_DATE", "CURRENT_TIMESTAMP", "CURRENT_USER", "USER"})


_NUMBER_TOKEN = re.compile(r"\d+")


_ORDERED = ("<=", ">=", "<", ">")


class _NotPlainError(Exception):
    """Spark must evaluate the value. Never leaves this module."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """The value that a row has in a column."""

    column: Column


@dataclass(frozen=True, slots=True)
class _Bound:
    """The value of a bind name."""

    name: str


_Operand = _Stored | _Bound | int | Decimal | str | bool | datetime.date | None


@dataclass(frozen=True, slots=True)
class PlainValue:
    """The new value of `column`: the first operand, or the operator's result for both."""

    column: Column
    first: _Operand
    operator: str = ""
    second: _Operand = None

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns whose values are used."""
        operands = (self.first, self.second)
        return tuple(operand.column.name for operand in operands if isinstance(operand, _Stored))


def plain_values(
    update: Update, columns: Sequence[Column], paths: Sequence[AssignedPath]
) -> tuple[PlainValue, ...] | None:
    """The values of all assignments of an UPDATE of a table with `columns`; None if one of them is
    not plain."""
    names: dict[str, Column] = {}
    for column in columns:
        if names.setdefault(column.name.lower(), column) is not column:
            return None  # names that differ by their letters' case
    table = (update.alias or update.target.table).lower()
    parsed = []
    for path in paths:
        value = update.assignments[path.number].value
        if path.fields or value is None:
            return None
        text = update.text[value.start : value.end]
        cursor = Cursor(text, _without_brackets(text))
        try:
            parsed.append(_plain(cursor, path.column, names, table))
        except _NotPlainError:
            return None
    return tuple(parsed)


def _without_brackets(text: str) -> tuple[Token, ...]:
    """The tokens of a value, without brackets around all of it."""
    tokens = tokenize(text)
    while tokens and matching_brackets(text, tokens).get(0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return tokens


def computed(
    value: PlainValue,
    rows: Mapping[str, Sequence[object]],
    count: int,
    bound: Mapping[str, object],
) -> list[object] | None:
    """The value for each of `count` rows, as the column stores it; None if Spark must evaluate it.
    `rows` has the columns that it uses, `bound` the values of bind names."""
    first = _values(value.first, rows, count, bound)
    try:
        if not value.operator:
            return [_fitting(left, value.column.type) for left in first]
        second = _values(value.second, rows, count, bound)
        apply = _OPERATORS[value.operator]
        return [
            _fitting(_applied(apply, left, right, value.column.type), value.column.type)
            for left, right in zip(first, second, strict=True)
        ]
    except _NotPlainError:
        return None


def _plain(cursor: Cursor, column: Column, names: Mapping[str, Column], table: str) -> PlainValue:
    first = _operand(cursor, names, table)
    sign = cursor.accept_any(*_OPERATORS)
    if not sign:
        if isinstance(first, _Stored) and first.column.type != column.type:
            raise _NotPlainError
        plain_value = PlainValue(column, first)
    else:
        plain_value = PlainValue(column, first, sign, _operand(cursor, names, table))
        # Only of the column's own type: between two types Spark chooses a third.
        if not plain_value.sources or any(
            isinstance(operand, _Stored) and operand.column.type != column.type
            for operand in (plain_value.first, plain_value.second)
        ):
            raise _NotPlainError
    if not cursor.at_end:
        raise _NotPlainError
    return plain_value


def _operand(cursor: Cursor, names: Mapping[str, Column], table: str) -> _Operand:
    if cursor.peek(1).text == "." and cursor.peek().name.lower() == table:
        cursor.index += 2
        return _stored(cursor, names)
    negative = cursor.accept("-")
    token = cursor.next()
    if token.kind == "number" and _NUMBER.fullmatch(token.text):
        if "." not in token.text:
            return -int(token.text) if negative else int(token.text)
        number = Decimal(token.text)  # Spark's has no negative zero
        return number.copy_negate() if negative and number else number
    if negative:
        raise _NotPlainError
    if token.text == ":" and cursor.peek().kind == "word":
        return _Bound(cursor.next().name)
    if token.kind == "string" and _TEXT.fullmatch(token.text) and cursor.peek().kind != "string":
        return token.value
    if token.upper in _CONSTANTS:
        return _CONSTANTS[token.upper]
    if token.upper == "DATE" and _DAY.fullmatch(cursor.peek().text):
        return _day(cursor.next().value)
    cursor.index -= 1
    return _stored(cursor, names)


def _stored(cursor: Cursor, names: Mapping[str, Column]) -> _Stored:
    token = cursor.next()
    column = names.get(token.name.lower()) if token.kind in IDENTIFIER_KINDS else None
    if column is None or token.upper in _NO_NAMES or not isinstance(column.type, AtomicType):
        raise _NotPlainError
    if column.type.name not in _NUMERIC:  # others may hold what Python has no value for
        raise _NotPlainError
    return _Stored(column)


def _day(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise _NotPlainError from None


def _values(
    operand: _Operand,
    rows: Mapping[str, Sequence[object]],
    count: int,
    bound: Mapping[str, object],
) -> Sequence[object]:
    match operand:
        case _Stored(column=column):
            return rows[column.name]
        case _Bound(name=name):
            return [bound[name]] * count
        case _:
            return [operand] * count


def _applied(
    apply: Callable[[object, object], object], left: object, right: object, data_type: object
) -> object:
    """The result for one row. Whole numbers are computed without a limit, and refused where the
    result does not fit: a narrower type of Spark's would have failed or wrapped before."""
    if left is None or right is None:
        return None
    match data_type:
        case AtomicType(name="DOUBLE"):
            return apply(_double(left), _double(right))
        case AtomicType(name=name) if name in INTEGER_BITS:
            if type(left) is int and type(right) is int:
                return apply(_long(left), _long(right))
    raise _NotPlainError


def _double(value: object) -> float:
    match value:
        case bool():
            raise _NotPlainError
        case int():
            return float(_long(value))
        case float():
            return value
        case Decimal():
            return float(_exact(value))
    raise _NotPlainError


def _exact(value: Decimal) -> Decimal:
    """A number that Spark takes as the same DECIMAL."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or not -_DECIMAL_DIGITS_MAX <= exponent <= 0:
        raise _NotPlainError
    if len(digits) > _DECIMAL_DIGITS_MAX or (value.is_signed() and not value):
        raise _NotPlainError
    return value


def _long(value: int) -> int:
    if not -(1 << 63) <= value < 1 << 63:
        raise _NotPlainError
    return value


def _fitting(value: object, data_type: object) -> object:
    """The value as a column of that type stores it. Raises _NotPlainError unless it does so without
    any change."""
    if not isinstance(data_type, AtomicType) or (value is None and not data_type.nullable):
        raise _NotPlainError
    kind = type(value)
    match data_type.name:
        case _ if value is None:
            return None
        case name if name in INTEGER_BITS and kind is int:
            limit = 1 << (INTEGER_BITS[name] - 1)
            if -limit <= value < limit:  # type: ignore[operator]
                return value
        case "DOUBLE":
            return _double(value)
        case "DECIMAL" if kind in (int, Decimal):
            return _decimal(_exact(Decimal(value)), *data_type.parameters)  # type: ignore[arg-type]
        case "BOOLEAN" if kind is bool:
            return value
        case "DATE" if kind is datetime.date:
            return value
        case "STRING" if kind is str:
            return value
        case "VARCHAR" if kind is str and len(value) <= data_type.parameters[0]:  # type: ignore[arg-type]
            return value
    raise _NotPlainError


def _decimal(value: Decimal, precision: int, scale: int) -> Decimal:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if -exponent > scale or len(digits) + exponent > precision - scale:
        raise _NotPlainError
    return value


# Conditions that only compare columns with plain values, read from their text.
#
# Comparing values is enough to evaluate such a condition. Anything else, as a
# function, a text with an escape or a number with a point, is Spark's to evaluate.


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
    filters: list[ColumnFilter] = []
    while True:
        if cursor.accept("("):
            condition = _alternatives(cursor, names, table)
            if not cursor.accept(")"):
                return None
        else:
            condition = _comparison(cursor, names, table)
        if condition is None:
            return None
        filters.append(condition)
        if cursor.at_end:
            return tuple(filters)
        if not cursor.accept("AND"):
            return None


def _alternatives(cursor: Cursor, names: Mapping[str, str], table: str) -> ColumnFilter | None:
    """Comparisons with OR between them, as one."""
    either = _comparison(cursor, names, table)
    while either is not None and cursor.accept("OR"):
        other = _comparison(cursor, names, table)
        either = None if other is None else either.either(other)
    return either


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
    if token.kind == "number" and _NUMBER_TOKEN.fullmatch(token.text):
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
