"""Reads DELETE and UPDATE: the target, assignments and the condition.

The syntax is Spark's (`dmlStatementNoWith` in `SqlBaseParser.g4`); WITH may come before either.
Conditions and values are put in brackets where Spark evaluates them, so that nothing behind them
can be taken for a clause of a query.
"""

from __future__ import annotations

from itertools import count

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.statements.clauses.names import quoted, table_name
from paimon_magics.statements.lexing.cursor import Cursor, RefusedHere
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, QUERY_WORDS, word_set
from paimon_magics.statements.queries.query_text import read_query
from paimon_magics.statements.queries.references import at_options, at_time_travel, read_alias
from paimon_magics.statements.queries.rewriting import Replacement
from paimon_magics.statements.statement import (
    VALUE_PREFIX,
    Assignment,
    Delete,
    RowSelection,
    TableName,
    TextRange,
    Update,
)

_GENERATORS = word_set(
    "EXPLODE EXPLODE_OUTER POSEXPLODE POSEXPLODE_OUTER INLINE INLINE_OUTER STACK JSON_TUPLE "
    "VARIANT_EXPLODE VARIANT_EXPLODE_OUTER"
)


def read_delete(cursor: Cursor, with_index: int | None = None) -> Delete:
    """Read what follows DELETE. `with_index` is the index of a WITH token before it."""
    verb = cursor.index - 1
    cursor.expect("FROM")
    target_index = cursor.index
    name, position, alias = _target(cursor, "DELETE")
    word = cursor.tokens[verb]
    replaced: list[Replacement] = [(TextRange(word.start, word.end), "SELECT *")]
    selection = _selection(
        cursor, verb if with_index is None else with_index, target_index, replaced
    )
    return Delete(cursor.text, cursor.offset, name, position, alias, selection)


def read_update(cursor: Cursor, with_index: int | None = None) -> Update:
    """Read what follows UPDATE. `with_index` is the index of a WITH token before it."""
    verb = cursor.index - 1
    target_index = cursor.index
    name, position, alias = _target(cursor, "UPDATE")
    word = cursor.tokens[verb]
    # Spark reads FROM before SELECT, too, so that the user's text keeps its order.
    replaced: list[Replacement] = [(TextRange(word.start, word.end), "FROM")]
    start = cursor.position
    cursor.expect("SET")
    replaced.append((TextRange(start, cursor.last_end), "SELECT *,"))
    numbers = count()
    assignments = cursor.listed(lambda: _assignment(cursor, next(numbers), replaced))
    selection = _selection(
        cursor, verb if with_index is None else with_index, target_index, replaced
    )
    return Update(cursor.text, cursor.offset, name, position, alias, assignments, selection)


def _target(cursor: Cursor, verb: str) -> tuple[TableName, int, str | None]:
    if cursor.at("(") or cursor.at_any("SELECT", "VALUES"):
        cursor.fail("a table's name", hint=f"{verb} changes a table, not the rows of a query.")
    name, position = table_name(cursor)
    if at_time_travel(cursor):
        cursor.fail_at(
            cursor.position,
            f"{verb} changes the table as it is now, not a past state.",
            "Leave out VERSION AS OF and TIMESTAMP AS OF. CALL sys.rollback goes back to a "
            "snapshot.",
        )
    if at_options(cursor):
        raise RefusedHere(f"{verb} … WITH options")
    alias = read_alias(cursor)
    if alias is not None and cursor.at("("):
        cursor.fail_at(
            cursor.position,
            f"{verb} accepts no column names after the table's alias.",
            "Use the table's own column names.",
        )
    return name, position, alias


def _assignment(cursor: Cursor, number: int, replaced: list[Replacement]) -> Assignment:
    start = cursor.position
    path = column_path(cursor)
    if cursor.at("["):
        cursor.fail_at(
            cursor.position,
            "An element of an ARRAY or a MAP can't be assigned.",
            "Assign the whole column, with transform(…), map_concat(…) or the like.",
        )
    if not cursor.accept_any("=", "=="):
        cursor.fail("`=`")
    replaced.append((TextRange(start, cursor.position), ""))
    first = cursor.index
    cursor.text_until(",", "WHERE", what="a value")
    value = TextRange(cursor.tokens[first].start, cursor.last_end)
    _check_value(cursor, first)
    named = f") AS {quoted(f'{VALUE_PREFIX}{number}')}"
    if cursor.index == first + 1 and cursor.tokens[first].upper == "DEFAULT":
        # Paimon puts a column's default in place of NULL.
        replaced.append((value, f"(NULL{named}"))
        return Assignment(path, start, None)
    replaced += _in_brackets(value, named)
    return Assignment(path, start, value)


def _in_brackets(range: TextRange, closing: str = ")") -> list[Replacement]:
    return [(TextRange(range.start, range.start), "("), (TextRange(range.end, range.end), closing)]


def _check_value(cursor: Cursor, first: int) -> None:
    """Refuse what Spark allows in a SELECT, but not as an assigned value."""
    index = first
    while index < cursor.index:
        token = cursor.tokens[index]
        if token.text == "(" and cursor.tokens[index + 1].upper in QUERY_WORDS:
            index = cursor.brackets[index] + 1
            continue
        following = cursor.tokens[index + 1] if index + 1 < cursor.stop else None
        calls = following is not None and following.text == "("
        if token.kind in IDENTIFIER_KINDS and calls and token.upper in _GENERATORS:
            cursor.fail_at(
                token.start,
                f"{token.text} makes several rows of one row, and can't be assigned.",
                "Assign one value for each row.",
            )
        if token.upper == "OVER" and index > first and cursor.tokens[index - 1].text == ")":
            cursor.fail_at(
                token.start,
                "A window function can't be assigned.",
                "Compute it in a subquery, or in a table that MERGE INTO uses.",
            )
        if token.upper == "FROM" and cursor.tokens[index - 1].upper != "DISTINCT":
            cursor.fail_at(
                token.start,
                "UPDATE … FROM is not Spark's.",
                "Look values up in a subquery, SET a = (SELECT …), or write MERGE INTO.",
            )
        if token.text == "*" and index == first and cursor.index == first + 1:
            cursor.index = first
            cursor.fail("a value")
        index += 1


def _selection(
    cursor: Cursor, begins: int, target_index: int, replaced: list[Replacement]
) -> RowSelection:
    """Read [WHERE condition] to the end, and make the query of the whole text."""
    condition = None
    if not cursor.at_end:
        if not cursor.accept("WHERE"):
            cursor.fail("WHERE or the end of the statement")
        first = cursor.index
        cursor.text_until(what="a condition")
        cursor.expect_end()
        condition = TextRange(cursor.tokens[first].start, cursor.last_end)
        replaced += _in_brackets(condition)
    target = cursor.tokens[target_index].start
    cursor.index = begins
    query = read_query(cursor, target=target_index)
    return RowSelection(query, target, tuple(replaced), condition)


# Where an expression inside a statement ends, and what it may not hold.
#
# Nothing here understands expressions: brackets and CASE … END are stepped over as they stand.


def column_path(cursor: Cursor) -> tuple[str, ...]:
    """Read the name of what is assigned: its parts, with dots between them."""
    return cursor.path("a column's name", "a name after the dot")


def expression_until(cursor: Cursor, *ends: str, what: str) -> TextRange:
    """Step to the next of these words outside brackets and CASE … END, or to the cursor's stop, and
    return the range passed.

    A name of a column after a dot is never one of the words. Raises StatementSyntaxError if there
    is nothing before the word.
    """
    start, depth = cursor.index, 0
    while not cursor.at_end:
        token = cursor.peek()
        is_name = cursor.index > start and cursor.tokens[cursor.index - 1].text == "."
        if depth == 0 and token.upper in ends and not is_name:
            break
        if cursor.index in cursor.brackets:
            cursor.skip_brackets()
            continue
        if token.upper == "CASE" and not is_name and cursor.peek(1).text != ".":
            depth += 1
        elif token.upper == "END" and not is_name and depth:
            depth -= 1
        cursor.next()
    if cursor.index == start:
        cursor.fail(what)
    return TextRange(cursor.tokens[start].start, cursor.last_end)


def refuse_inside(cursor: Cursor, first: int, *, subqueries: str = "") -> None:
    """Raise UnsupportedStatementError for a window function from token `first` to the cursor, and
    for a subquery where `subqueries` says what the expression is."""
    tokens = cursor.tokens
    for index in range(first, cursor.index - 1):
        token, following = tokens[index], tokens[index + 1]
        if token.upper == "OVER" and (following.text == "(" or following.kind in IDENTIFIER_KINDS):
            raise UnsupportedStatementError(
                "Window functions are not possible in MERGE, which handles rows one by one.",
                hint="Compute it in the source's query: USING (SELECT …, … OVER (…) AS n …) AS s.",
                statement=cursor.text,
                position=token.start,
            )
        if subqueries and token.text == "(" and following.upper in QUERY_WORDS - {"MAP", "TABLE"}:
            raise UnsupportedStatementError(
                f"A subquery in {subqueries} is not offered, and Paimon's own connector does not "
                "offer it either.",
                hint="Join it in the source's query: USING (SELECT … FROM … LEFT JOIN …) AS s.",
                statement=cursor.text,
                position=following.start,
            )
