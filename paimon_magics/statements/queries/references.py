"""One relation in a query: its name, time travel, options, sample and alias, read from tokens.

Spark's order after a table's name is: time travel or CHANGES, `WITH (options)`, TABLESAMPLE, alias
(`relationPrimary` in `SqlBaseParser.g4`).
"""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.statements.clauses.names import name_parts
from paimon_magics.statements.clauses.properties import read_properties
from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import CLAUSE_WORDS, IDENTIFIER_KINDS, Token
from paimon_magics.statements.queries.tree import TreeRelation
from paimon_magics.statements.statement import ChangesClause, TextRange, TimeTravel

_TIME_TRAVEL = {
    "VERSION": "version",
    "SYSTEM_VERSION": "version",
    "TIMESTAMP": "timestamp",
    "SYSTEM_TIME": "timestamp",
}
_TYPED_LITERALS = frozenset({"TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "DATE"})
_OPERATORS = frozenset({"+", "-", "*", "/", "||"})


@dataclass(frozen=True, slots=True)
class Relation:
    """A named relation. `parts` are its name's tokens, `alias` is None if the user gave none.
    `use` is the use of its rows in sqlglot's tree, None without a tree."""

    parts: tuple[Token, ...]
    range: TextRange
    time_travel: TimeTravel | None
    options: tuple[tuple[str, str], ...]
    alias: str | None
    alias_position: int
    use: TreeRelation | None = None
    changes: ChangesClause | None = None


def read_relation(cursor: Cursor) -> Relation:
    """Read a name and its clauses, up to and including the alias."""
    parts = name_parts(cursor, "a table's name")
    time_travel = _time_travel(cursor) if at_time_travel(cursor) else None
    changes = _changes(cursor) if time_travel is None and at_changes(cursor) else None
    options: tuple[tuple[str, str], ...] = ()
    if at_options(cursor):
        cursor.next()
        options = read_properties(cursor)
    end = cursor.last_end
    if cursor.accept("TABLESAMPLE"):
        while not cursor.at("(") and not cursor.at_end:
            cursor.next()
        if cursor.at("("):
            cursor.skip_brackets()
        if cursor.accept("REPEATABLE") and cursor.at("("):
            cursor.skip_brackets()
    alias_position = cursor.last_end
    return Relation(
        parts,
        TextRange(parts[0].start, end),
        time_travel,
        options,
        read_alias(cursor),
        alias_position,
        changes=changes,
    )


def at_time_travel(cursor: Cursor) -> bool:
    """Whether a time-travel clause comes next."""
    ahead = 1 if cursor.at("FOR") else 0
    return (
        cursor.peek(ahead).upper in _TIME_TRAVEL
        and cursor.peek(ahead + 1).upper == "AS"
        and cursor.peek(ahead + 2).upper == "OF"
    )


def at_changes(cursor: Cursor) -> bool:
    """Whether `CHANGES FROM VERSION` or `CHANGES FROM TIMESTAMP` comes next."""
    return cursor.at("CHANGES", "FROM") and cursor.peek(2).upper in ("VERSION", "TIMESTAMP")


def at_options(cursor: Cursor) -> bool:
    """Whether a relation's `WITH ('key' = 'value')` comes next."""
    return cursor.at("WITH", "(") and cursor.peek(2).upper not in ("SELECT", "WITH")


def skip_clause(cursor: Cursor) -> bool:
    """Step over the time travel, the changes or the options that come next; False for none."""
    if at_time_travel(cursor):
        _time_travel(cursor)
    elif at_changes(cursor):
        _changes(cursor)
    elif at_options(cursor):
        cursor.next()
        cursor.skip_brackets()
    else:
        return False
    return True


def _time_travel(cursor: Cursor) -> TimeTravel:
    cursor.accept("FOR")
    kind = _TIME_TRAVEL[cursor.next().upper]
    cursor.expect("AS", "OF")
    return TimeTravel(kind, _point(cursor, kind))


def _changes(cursor: Cursor) -> ChangesClause:
    """Read a clause whose bounds are of the same kind, as in Spark."""
    cursor.expect("CHANGES", "FROM")
    word = cursor.next().upper
    kind, end, with_end = word.lower(), None, True
    start, with_start = _point(cursor, kind), _is_included(cursor)
    if cursor.accept("TO"):
        cursor.expect(word)
        end, with_end = _point(cursor, kind), _is_included(cursor)
    return ChangesClause(kind, start, end, with_start, with_end)


def _is_included(cursor: Cursor) -> bool:
    return not cursor.accept("EXCLUSIVE") and (cursor.accept("INCLUSIVE") or True)


def _point(cursor: Cursor, kind: str) -> str:
    """Read a version or a time; return its text."""
    start = cursor.position
    if kind == "version":
        _operand(cursor, "a snapshot's number or a tag's name in quotes, as 3 or 'monday',")
    else:
        _value(cursor)
    return cursor.text[start : cursor.last_end]


def _value(cursor: Cursor) -> None:
    wanted = "a time in quotes, as '2026-01-31 12:00:00',"
    _operand(cursor, wanted)
    while cursor.accept_any(*_OPERATORS):
        _operand(cursor, wanted)


def _operand(cursor: Cursor, wanted: str) -> None:
    while cursor.accept_any("+", "-"):
        pass
    token = cursor.peek()
    if token.kind == "string":
        cursor.string(wanted)
    elif token.kind == "number":
        cursor.next()
    elif token.text == ":" and cursor.peek(1).kind == "word":
        cursor.index += 2
    elif token.text == "(":
        cursor.skip_brackets()
    elif token.upper == "INTERVAL":
        cursor.next()
        _operand(cursor, "an interval")
        if cursor.peek().kind == "word" and cursor.peek().upper not in CLAUSE_WORDS:
            cursor.next()
            if cursor.accept("TO"):
                cursor.next()
    elif token.upper in _TYPED_LITERALS and cursor.peek(1).kind == "string":
        cursor.next()
        cursor.string(wanted)
    elif token.kind in IDENTIFIER_KINDS and token.upper not in CLAUSE_WORDS:
        name_parts(cursor, wanted)
        if cursor.at("("):
            cursor.skip_brackets()
    else:
        cursor.fail(wanted)
    if cursor.accept("::"):
        cursor.identifier("a type")


def read_alias(cursor: Cursor) -> str | None:
    """Read the alias that comes next, with or without AS; return None if there is none."""
    if cursor.accept("AS"):
        return cursor.identifier("an alias")
    token = cursor.peek()
    if token.kind not in IDENTIFIER_KINDS or token.upper in CLAUSE_WORDS or at_time_travel(cursor):
        return None
    return cursor.identifier("an alias")
