"""Lists of keys and values (TBLPROPERTIES, OPTIONS, a relation's WITH), and PARTITION clauses."""

from __future__ import annotations

from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.statement import PartitionItem

_EACH_VALUE = (
    "Give every partition column of the list a value. For a range, write DELETE FROM t WHERE …: "
    "it drops whole partitions at once."
)
_COMPARISONS = ("=", "==", "<", "<=", ">", ">=", "<>", "!=", "<=>")
_WORDS = ("BETWEEN", "IN", "LIKE")
_BETWEEN_ITEMS = (
    "A comma joins conditions that all hold: PARTITION (day > 'a', day < 'c'). For others write "
    "PARTITION (…), PARTITION (…)."
)
_ONE_OF_THEM = "Leave one of them out."


def read_properties(cursor: Cursor) -> tuple[tuple[str, str], ...]:
    """Read `(key = value, …)`; keys are strings or dotted names, values are literals."""
    properties: list[tuple[str, str]] = []
    cursor.expect("(")
    while not cursor.at(")"):
        position = cursor.position
        key = read_property_key(cursor)
        if any(k == key for k, _ in properties):
            cursor.fail_at(position, f"The key '{key}' occurs twice.", _ONE_OF_THEM)
        if not cursor.accept("="):
            cursor.accept("==")
        properties.append((key, _property_value(cursor)))
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return tuple(properties)


def read_property_keys(cursor: Cursor) -> tuple[str, ...]:
    """Read `(key, …)`."""
    return cursor.in_brackets(lambda: read_property_key(cursor))


def read_property_key(cursor: Cursor) -> str:
    """Read one key: a string, or words with dots or hyphens between them (`write-only`)."""
    if cursor.peek().kind == "string":
        return cursor.next().value  # not `string`: in `'k' 'v'` the second one is the value
    key = cursor.identifier("a key in quotes")
    while cursor.at_any(".", "-"):
        key += cursor.next().text
        token = cursor.peek()
        if token.kind == "number":
            key += cursor.next().text
        else:
            key += cursor.identifier("the rest of the key")
    return key


def read_partition(
    cursor: Cursor, *, values_needed: bool = False, comparisons: bool = False
) -> tuple[PartitionItem, ...]:
    """Read `(column [= value], …)`. With `values_needed`, an item without a value is an error. With
    `comparisons` other operators may be in place of `=` (`<`, BETWEEN, IN, LIKE, IS NULL …), and a
    column may occur again."""
    columns: set[str] = set()

    def item() -> PartitionItem:
        position = cursor.position
        column = cursor.identifier("a partition column")
        if column.lower() in columns and not comparisons:
            cursor.fail_at(position, f"The partition column `{column}` occurs twice.", _ONE_OF_THEM)
        columns.add(column.lower())
        value, operator = None, "="
        if comparisons and (compared := _comparison(cursor)) is not None:
            operator, value = compared
        elif cursor.accept_any("=", "=="):
            value = cursor.text_until(",", what="the partition's value")
        elif values_needed:
            cursor.fail("`=`", hint=_EACH_VALUE)
        elif not cursor.at_any(",", ")"):
            cursor.fail("`=`, `,` or `)`")
        return PartitionItem(column, value, position, "=" if operator == "==" else operator)

    return cursor.in_brackets(item)


def _comparison(cursor: Cursor) -> tuple[str, str] | None:
    """The operator and the value of a comparison; None where there is none."""
    if cursor.at_any(*_COMPARISONS):
        return cursor.next().text, _compared_value(cursor)
    if cursor.accept("IS"):
        negated = "NOT " if cursor.accept("NOT") else ""
        cursor.expect("NULL")
        return "IS", f"{negated}NULL"
    negated = "NOT " if cursor.at("NOT") and cursor.peek(1).upper in _WORDS else ""
    if negated:
        cursor.next()
    if not cursor.at_any(*_WORDS):
        return None
    word = cursor.next().upper
    if word == "BETWEEN":
        first = cursor.text_until(",", "AND", what="the first value")
        cursor.expect("AND")
        return f"{negated}{word}", f"{first} AND {_compared_value(cursor)}"
    if word == "IN" and not cursor.at("("):
        cursor.fail("the values in brackets")
    return f"{negated}{word}", _compared_value(cursor)


def _compared_value(cursor: Cursor) -> str:
    value = cursor.text_until(",", "AND", "OR", what="the partition's value")
    if not cursor.at_any(",", ")"):
        cursor.fail("`,` or `)`", hint=_BETWEEN_ITEMS)
    return value


def _property_value(cursor: Cursor) -> str:
    token = cursor.peek()
    if token.kind == "string":
        return cursor.string("a value")
    sign = cursor.accept_any("-", "+")
    token = cursor.peek()
    if token.kind == "number":
        return sign + cursor.next().text
    if not sign and token.upper in ("TRUE", "FALSE"):
        return cursor.next().text.lower()
    cursor.fail("a value in quotes, a number, true or false")
