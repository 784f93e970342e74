"""Statements of other table formats that Paimon has a procedure for: OPTIMIZE and RESTORE TABLE, as
Delta Lake and its kin write them. They become the CALL of that procedure."""

from __future__ import annotations

from paimon_magics.statements.clauses.names import table_name, table_text
from paimon_magics.statements.lexing.cursor import Cursor, RefusedHere
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.version_changes import Argument, Call


def read_optimize(cursor: Cursor) -> Call:
    """Read what follows OPTIMIZE: a table [WHERE condition] [ZORDER BY (columns)]."""
    cursor.accept("TABLE")
    name, position = table_name(cursor)
    arguments = [_table(name, position)]
    if cursor.accept("WHERE"):
        at = cursor.position
        where = cursor.text_until("ZORDER", what="a condition on partition columns")
        arguments.append(Argument("where", where, at))
    if cursor.accept("ZORDER", "BY"):
        at = cursor.position
        columns = cursor.in_brackets(lambda: cursor.identifier("a column's name"))
        arguments.append(Argument("order_strategy", "zorder", at))
        arguments.append(Argument("order_by", ",".join(columns), at))
    return _call(cursor, "compact", arguments)


def read_restore(cursor: Cursor) -> Call:
    """Read what follows RESTORE: [TABLE] name TO VERSION AS OF a snapshot or tag."""
    cursor.accept("TABLE")
    name, position = table_name(cursor)
    cursor.accept("TO")
    if cursor.at("TIMESTAMP"):
        raise RefusedHere("RESTORE TABLE … TO TIMESTAMP")
    cursor.expect("VERSION", "AS", "OF")
    at = cursor.position
    token = cursor.peek()
    if token.kind == "string":
        version = cursor.string("a snapshot's number or a tag")
    elif token.kind == "number" and token.text.isdigit():
        version = cursor.next().text
    else:
        cursor.fail("a snapshot's number, or a tag in quotes")
    return _call(cursor, "rollback", [_table(name, position), Argument("version", version, at)])


def _table(name: TableName, position: int) -> Argument:
    return Argument("table", table_text(name), position)


def _call(cursor: Cursor, procedure: str, arguments: list[Argument]) -> Call:
    return Call(cursor.text, cursor.offset, ("sys", procedure), 0, tuple(arguments))
