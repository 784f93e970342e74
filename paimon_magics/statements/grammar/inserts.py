"""Reads INSERT: its target, columns, partition and source.

The syntax is Spark's (`insertInto` in `SqlBaseParser.g4`). The column list may be before or after
the PARTITION clause, and WITH before INSERT or in the source.
"""

from __future__ import annotations

from dataclasses import replace

from paimon_magics.statements.clauses.names import table_name
from paimon_magics.statements.clauses.properties import read_partition
from paimon_magics.statements.lexing.cursor import Cursor, RefusedHere
from paimon_magics.statements.lexing.keywords import QUERY_WORDS
from paimon_magics.statements.queries.query_text import at_query, bind_parameters, read_query
from paimon_magics.statements.statement import Insert, PartitionItem, QueryText, TextRange

__all__ = ["read_insert"]


def read_insert(cursor: Cursor, offset: int, *, with_index: int | None = None) -> Insert:
    """Read what follows INSERT. `with_index` is the index of a WITH token before INSERT."""
    insert_index = cursor.index - 1
    overwrite = cursor.accept_any("INTO", "OVERWRITE")
    if not overwrite:
        cursor.fail("INTO or OVERWRITE")
    if cursor.at("DIRECTORY") or cursor.at("LOCAL", "DIRECTORY"):
        raise RefusedHere("INSERT OVERWRITE DIRECTORY")
    if cursor.at("TABLE") and cursor.peek(1).text != "(":
        cursor.next()
    target, position = table_name(cursor)
    if cursor.at("WITH", "("):
        raise RefusedHere("INSERT … WITH options")
    columns: tuple[str, ...] | None = None
    partition: tuple[PartitionItem, ...] | None = None
    by_name = False
    parameters: tuple[str, ...] = ()
    while True:
        if cursor.at("REPLACE"):
            raise RefusedHere("INSERT … REPLACE WHERE")
        if partition is None and cursor.accept("PARTITION"):
            clause = Cursor(
                cursor.text, cursor.tokens, cursor.brackets, cursor.index, _closing(cursor)
            )
            parameters = bind_parameters(clause)
            partition = read_partition(cursor)
            if cursor.at("IF", "NOT", "EXISTS"):
                raise RefusedHere("INSERT … IF NOT EXISTS")
        elif columns is None and not by_name and _at_columns(cursor):
            columns = _columns(cursor)
        elif columns is None and not by_name and cursor.accept("BY", "NAME"):
            by_name = True
        else:
            break
    if not at_query(cursor):
        cursor.fail("VALUES, SELECT, TABLE or another query")
    source = _source(cursor, insert_index, with_index, parameters)
    return Insert(
        cursor.text,
        offset,
        target,
        position,
        overwrite == "OVERWRITE",
        source,
        columns,
        by_name,
        partition,
    )


def _source(
    cursor: Cursor, insert_index: int, with_index: int | None, parameters: tuple[str, ...]
) -> QueryText:
    cuts: tuple[TextRange, ...] = ()
    if with_index is not None:
        start = cursor.tokens[insert_index].start
        cuts = (TextRange(start, cursor.position),)
        cursor.index = with_index
    first = cursor.index
    query = read_query(cursor, cuts=cuts)
    names = tuple(dict.fromkeys((*parameters, *query.parameters)))
    defaults = _defaults(cursor, first) if query.is_values else ()
    return replace(query, parameters=names, defaults=defaults)


def _defaults(cursor: Cursor, first: int) -> tuple[TextRange, ...]:
    """The ranges of DEFAULT where it is a whole value, from token `first` on."""
    tokens = cursor.tokens[first : cursor.index]
    return tuple(
        TextRange(token.start, token.end)
        for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if token.upper == "DEFAULT" and before.text in ("(", ",") and after.text in (")", ",")
    )


def _closing(cursor: Cursor) -> int:
    if not cursor.at("("):
        cursor.fail("`(`")
    return cursor.closing()


def _at_columns(cursor: Cursor) -> bool:
    """Whether a column list comes next, rather than a query in brackets."""
    if not cursor.at("("):
        return False
    first, second = cursor.peek(1), cursor.peek(2)
    return first.text != "(" and (first.upper not in QUERY_WORDS or second.text in (",", ")"))


def _columns(cursor: Cursor) -> tuple[str, ...]:
    columns: list[str] = []
    cursor.expect("(")
    while True:
        columns.append(cursor.identifier("a column's name"))
        if cursor.at("."):
            raise RefusedHere("INSERT into a field of a STRUCT")
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return tuple(columns)
