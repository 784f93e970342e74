"""Reads CALL and the tag clauses of ALTER TABLE and SHOW, by the syntax of Paimon's
`PaimonSqlExtensions.g4`.

An argument of CALL is a literal or a parameter (`:name`). `planning.commits.procedures` checks the
procedure's name and arguments.
"""

from __future__ import annotations

from paimon_magics.errors import nearest
from paimon_magics.statements.clauses.names import name_parts, table_name
from paimon_magics.statements.grammar.spark_passthrough import pass_through
from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, tokenize
from paimon_magics.statements.statement import PassThrough, TableName
from paimon_magics.statements.version_changes import (
    AlterTags,
    Argument,
    Call,
    CreateTag,
    DeleteTags,
    Parameter,
    RenameTag,
    ReplaceTag,
    ShowTags,
    TagChange,
)

NAMESPACE = "sys"
"""The namespace of Paimon's procedures."""

_DIGITS_MAX = 100  # of a number; Python may refuse to read a longer one
_UNITS = {"DAYS": "d", "DAY": "d", "HOURS": "h", "HOUR": "h", "MINUTES": "min", "MINUTE": "min"}
_LONGER = {"WEEK": 7, "WEEKS": 7, "MONTH": 30, "MONTHS": 30, "YEAR": 365, "YEARS": 365}  # in days
_BEGINNINGS = (
    ("CREATE", "TAG"),
    ("CREATE", "OR", "REPLACE", "TAG"),
    ("REPLACE", "TAG"),
    ("DELETE", "TAG"),
    ("RENAME", "TAG"),
)


def at_tag_change(cursor: Cursor) -> bool:
    """Whether a clause about tags comes next, after ALTER TABLE and the table's name."""
    return any(cursor.at(*words) for words in _BEGINNINGS)


def read_alter_tags(cursor: Cursor, name: TableName, position: int) -> AlterTags:
    """Read a clause about tags."""
    change = _tag_change(cursor)
    return AlterTags(cursor.text, cursor.offset, name, position, change)


def read_show_tags(cursor: Cursor) -> ShowTags:
    """Read what follows SHOW TAGS."""
    name, position = table_name(cursor)
    return ShowTags(cursor.text, cursor.offset, name, position)


def read_call(cursor: Cursor) -> Call | PassThrough:
    """Read what follows CALL. A procedure outside the namespace `sys` is passed to Spark."""
    position = cursor.position
    names = tuple(token.name for token in name_parts(cursor, "a procedure's name"))
    if len(names) > 1 and names[-2].lower() != NAMESPACE:
        return pass_through(cursor)
    cursor.expect("(")
    arguments: list[Argument] = []
    while not cursor.at(")"):
        if arguments:
            cursor.expect(",")
        arguments.append(_argument(cursor))
    cursor.expect(")")
    return Call(cursor.text, cursor.offset, names, position, tuple(arguments))


def passed_procedure(text: str) -> tuple[tuple[str, ...], int] | None:
    """The parts of the procedure's name in a CALL that is passed to Spark, and its position; None
    for a name without a namespace, and for other statements."""
    tokens = tokenize(text)
    cursor = Cursor(text, tokens)
    if not cursor.accept("CALL"):
        return None
    position = cursor.position
    names = tuple(token.name for token in name_parts(cursor, "a procedure's name"))
    return (names, position) if len(names) > 1 else None


def _tag_change(cursor: Cursor) -> TagChange:
    if cursor.accept("RENAME", "TAG"):
        tag = cursor.identifier("the tag's name")
        cursor.expect("TO")
        return RenameTag(tag, cursor.identifier("the tag's new name"))
    if cursor.accept("DELETE", "TAG"):
        cursor.accept("IF", "EXISTS")
        written = cursor.identifier("the tag's name")
        return DeleteTags(tuple(tag.strip() for tag in written.split(",")))
    if cursor.accept("REPLACE", "TAG"):
        tag = cursor.identifier("the tag's name")
        return ReplaceTag(tag, *_tag_options(cursor))
    or_replace = cursor.accept("CREATE", "OR", "REPLACE")
    if not or_replace:
        cursor.expect("CREATE")
    cursor.expect("TAG")
    if_not_exists = not or_replace and cursor.accept("IF", "NOT", "EXISTS")
    tag = cursor.identifier("the tag's name")
    return CreateTag(tag, *_tag_options(cursor), if_not_exists, or_replace)


def _tag_options(cursor: Cursor) -> tuple[int | None, str | None]:
    snapshot_id, retained = None, None
    if cursor.accept("AS", "OF", "VERSION"):
        snapshot_id = _whole_number(cursor, "a snapshot's number")
    if cursor.accept("RETAIN"):
        number = _whole_number(cursor, "a number")
        unit = cursor.peek()
        if unit.upper not in _UNITS:
            units = ("DAYS", "HOURS", "MINUTES")
            if unit.upper in _LONGER:  # nearer to MINUTES than to what is meant
                hint = f"Write it in days: RETAIN {number * _LONGER[unit.upper]} DAYS."
            else:
                hint = nearest(unit.text, units, what="units") if unit.kind == "word" else ""
            cursor.fail("DAYS, HOURS or MINUTES", hint=hint)
        cursor.next()
        retained = f"{number} {_UNITS[unit.upper]}"
    return snapshot_id, retained


def _whole_number(cursor: Cursor, what: str) -> int:
    token = cursor.peek()
    digits = token.text.rstrip("lL")
    if token.kind != "number" or not digits.isdigit() or len(digits) > _DIGITS_MAX:
        cursor.fail(what)
    cursor.next()
    return int(digits)


def _argument(cursor: Cursor) -> Argument:
    position = cursor.position
    name = None
    if cursor.peek().kind in IDENTIFIER_KINDS and cursor.peek(1).text == "=>":
        name = cursor.next().name
        cursor.next()
    return Argument(name, _value(cursor), position)


def _value(
    cursor: Cursor,
) -> str | int | float | bool | Parameter | tuple[tuple[str, str], ...] | None:
    token = cursor.peek()
    if token.upper == "MAP" and cursor.peek(1).text == "(":
        return _pairs(cursor)
    if token.kind == "string":
        return cursor.string("a value")
    if cursor.accept(":"):
        return Parameter(cursor.identifier("the parameter's name"))
    if cursor.accept("NULL"):
        return None
    word = cursor.accept_any("TRUE", "FALSE")
    if word:
        return word == "TRUE"
    sign = -1 if cursor.accept("-") else 1
    token = cursor.peek()
    if token.kind == "number":
        cursor.next()
        text = token.text.rstrip("lLsSfFdDbB")
        return sign * int(text) if text.isdigit() else sign * float(text)
    cursor.fail("a value: text in quotes, a number, TRUE, FALSE, NULL or a parameter as `:name`")


def _pairs(cursor: Cursor) -> tuple[tuple[str, str], ...]:
    """Read `map('key', 'value', …)`, of texts."""
    cursor.next()
    cursor.expect("(")
    texts: list[str] = []
    while not cursor.at(")"):
        if texts:
            cursor.expect(",")
        texts.append(cursor.string("a text in quotes"))
    if len(texts) % 2:
        cursor.fail("a value for the last key of the map")
    cursor.expect(")")
    return tuple(zip(texts[::2], texts[1::2], strict=True))
