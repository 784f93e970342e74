"""Paimon's table functions that read changes, as references with read options.

The functions are those of Paimon's `PaimonTableValuedFunctions`:
`paimon_incremental_query('t', 2, 5)`, `paimon_incremental_between_timestamp('t', a, b)` and
`paimon_incremental_to_auto_tag('t', 'tag')`. The first argument is a string with a table's name, in
which `$` needs no back-quotes. Start and end may also be given in one string (`'2,5'`), as in
Paimon's documentation. They may be constant expressions, which Spark evaluates.
"""

from __future__ import annotations

from paimon_magics.errors import StatementSyntaxError
from paimon_magics.statements.clauses.names import name_parts, try_table_name
from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import tokenize
from paimon_magics.statements.queries.references import read_alias
from paimon_magics.statements.statement import TableName, TableReference, TextRange

__all__ = ["CHANGE_FUNCTIONS", "change_reference"]

CHANGE_FUNCTIONS = {
    "paimon_incremental_query": ("incremental-between", 2),
    "paimon_incremental_between_timestamp": ("incremental-between-timestamp", 2),
    "paimon_incremental_to_auto_tag": ("incremental-to-auto-tag", 1),
}


def change_reference(cursor: Cursor) -> TableReference:
    """Read the function that comes next and its alias.

    Raises StatementSyntaxError for wrong arguments.
    """
    start = cursor.position
    function = cursor.next().name.lower()
    option, bounds = CHANGE_FUNCTIONS[function]
    end = cursor.closing()
    cursor.next()
    position = cursor.position
    name = _table(cursor.string("a table's name in quotes"), cursor.text, position)
    texts = []
    while cursor.accept(","):
        texts.append(_bound(cursor, end))
    if cursor.index != end or not 1 <= len(texts) <= bounds:
        raise StatementSyntaxError(
            f"`{function}` takes a table's name and {_counted(bounds)}.",
            hint=f"For example {_EXAMPLES[function]}.",
            statement=cursor.text,
            position=start,
        )
    values = [_literal(text) for text in texts]
    cursor.index = end + 1
    after = cursor.last_end
    alias = read_alias(cursor)
    return TableReference(
        name=name,
        range=TextRange(start, after),
        has_alias=alias is not None,
        alias=alias or name.table,
        alias_position=after,
        options=((option, ",".join(value or "" for value in values)),),
        bounds=() if None not in values else tuple(texts),
    )


_EXAMPLES = {
    "paimon_incremental_query": "paimon_incremental_query('shop.orders', 2, 5)",
    "paimon_incremental_between_timestamp": "paimon_incremental_between_timestamp('shop.orders', "
    "'2026-01-31 00:00:00', '2026-02-01 00:00:00')",
    "paimon_incremental_to_auto_tag": "paimon_incremental_to_auto_tag('shop.orders', '2026-01-31')",
}


def _counted(bounds: int) -> str:
    return "a tag" if bounds == 1 else "the start (not included) and the end"


def _bound(cursor: Cursor, end: int) -> str:
    """The text of the argument that comes next; the function's bracket closes at token `end`."""
    start = cursor.position
    if cursor.index == end or cursor.at(","):
        cursor.fail("a snapshot, tag or time")
    while cursor.index < end and not cursor.at(","):
        if cursor.at("("):
            cursor.skip_brackets()
        else:
            cursor.next()
    return cursor.text[start : cursor.last_end]


def _literal(text: str) -> str | None:
    """The value of a literal; None for any other expression, which Spark evaluates."""
    inner = Cursor(text, tokenize(text))
    if inner.peek().kind == "string":
        value = inner.string("a snapshot, tag or time")
        return value if inner.at_end else None
    sign = "-" if inner.accept("-") else ""
    token = inner.peek()
    if token.kind != "number":
        return None
    inner.next()
    return sign + token.text.rstrip("lL") if inner.at_end else None


def _table(text: str, statement: str, position: int) -> TableName:
    inner = Cursor(text, tokenize(text))
    parts = name_parts(inner, "a table's name") if not inner.at_end else ()
    name = try_table_name(parts) if inner.at_end and parts else None
    if name is None:
        raise StatementSyntaxError(
            f"'{text}' can't name a Paimon table.",
            hint="Write 'table', 'database.table' or 'table$audit_log'.",
            statement=statement,
            position=position,
        )
    return name
