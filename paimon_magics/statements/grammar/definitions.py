"""Reads CREATE, ALTER and DROP of the views and functions that the catalog keeps."""

from __future__ import annotations

from paimon_magics.statements.clauses.names import table_name
from paimon_magics.statements.clauses.properties import read_properties, read_property_keys
from paimon_magics.statements.data_types import DataType
from paimon_magics.statements.definitions import (
    AlterView,
    CreateFunction,
    CreateView,
    DescribeFunction,
    DropFunction,
    DropView,
    FunctionParameter,
    RenameView,
    ReplaceViewQuery,
    SetViewOptions,
    UnsetViewOptions,
    ViewChange,
    ViewColumn,
)
from paimon_magics.statements.grammar.spark_passthrough import pass_through
from paimon_magics.statements.lexing.cursor import Cursor, RefusedHere
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS
from paimon_magics.statements.queries.query_text import at_query, read_query
from paimon_magics.statements.statement import PassThrough, QueryText, TableName, TextRange
from paimon_magics.statements.types.sql_types import read_type

_A_VIEW = "a view's name"
_WITHOUT_TYPES = (
    "The columns of a view have the types of its query: write the name alone, or the name and "
    "COMMENT '…'. CAST in the query gives another type."
)
_ALTERATIONS = (
    "SET TBLPROPERTIES, UNSET TBLPROPERTIES, RENAME TO or AS with a query",
    "For example ALTER VIEW v AS SELECT …, or ALTER VIEW v RENAME TO w.",
)


def read_create_view(cursor: Cursor, *, or_replace: bool) -> CreateView:
    """Read what follows CREATE [OR REPLACE] VIEW."""
    position = cursor.position
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    if or_replace and if_not_exists:
        cursor.fail_at(
            position,
            "CREATE VIEW takes OR REPLACE or IF NOT EXISTS, not both.",
            "Leave IF NOT EXISTS out to replace the view, OR REPLACE to keep it.",
        )
    name, name_position = table_name(cursor, _A_VIEW)
    columns = _columns(cursor) if cursor.at("(") else None
    comment: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    while not cursor.accept("AS"):
        if comment is None and cursor.accept("COMMENT"):
            comment = cursor.string("the comment in quotes")
        elif not options and cursor.accept("TBLPROPERTIES"):
            options = read_properties(cursor)
        elif cursor.at("WITH", "SCHEMA"):
            raise RefusedHere("CREATE VIEW … WITH SCHEMA")
        elif cursor.at("PARTITIONED"):
            raise RefusedHere("CREATE VIEW … PARTITIONED")
        elif at_query(cursor):
            cursor.fail("AS before the query", hint="Write CREATE VIEW v AS SELECT ….")
        else:
            cursor.fail("AS and a query", hint="Write CREATE VIEW v [COMMENT '…'] AS SELECT ….")
    return CreateView(
        cursor.text,
        cursor.offset,
        name,
        name_position,
        _query(cursor),
        or_replace,
        if_not_exists,
        columns,
        comment,
        options,
    )


def read_alter_view(cursor: Cursor) -> AlterView:
    """Read what follows ALTER VIEW."""
    name, position = table_name(cursor, _A_VIEW)
    return AlterView(cursor.text, cursor.offset, name, position, _change(cursor))


def read_drop_view(cursor: Cursor) -> DropView:
    """Read what follows DROP VIEW."""
    if_exists = cursor.accept("IF", "EXISTS")
    name, position = table_name(cursor, _A_VIEW)
    if cursor.at(","):
        cursor.fail("the end of the statement", hint="Write a DROP VIEW for each view.")
    if cursor.at_any("CASCADE", "RESTRICT"):
        raise RefusedHere(f"DROP VIEW … {cursor.peek().upper}")
    return DropView(cursor.text, cursor.offset, name, position, if_exists)


def _change(cursor: Cursor) -> ViewChange:
    if cursor.accept("SET", "TBLPROPERTIES"):
        return SetViewOptions(read_properties(cursor))
    if cursor.accept("UNSET", "TBLPROPERTIES"):
        if_exists = cursor.accept("IF", "EXISTS")
        return UnsetViewOptions(read_property_keys(cursor), if_exists)
    if cursor.accept("RENAME", "TO"):
        return RenameView(table_name(cursor, "the view's new name")[0])
    if cursor.accept("AS"):
        return ReplaceViewQuery(_query(cursor))
    if cursor.at_any("ADD", "ALTER", "DROP") and cursor.peek(1).upper == "DIALECT":
        raise RefusedHere("ALTER VIEW … DIALECT")
    if cursor.at("WITH", "SCHEMA"):
        raise RefusedHere("ALTER VIEW … WITH SCHEMA")
    if at_query(cursor):
        cursor.fail("AS before the query", hint=_ALTERATIONS[1])
    cursor.fail(_ALTERATIONS[0], hint=_ALTERATIONS[1])


def _query(cursor: Cursor) -> QueryText:
    if not at_query(cursor):
        cursor.fail("a query", hint="A view is AS SELECT …, with WITH before it or without.")
    return read_query(cursor)


def _columns(cursor: Cursor) -> tuple[ViewColumn, ...]:
    names: set[str] = set()

    def column() -> ViewColumn:
        position = cursor.position
        name = cursor.identifier("a column's name")
        if name.lower() in names:
            cursor.fail_at(
                position,
                f"The column `{name}` occurs twice.",
                "Give each a name of its own.",
            )
        names.add(name.lower())
        comment = cursor.string("the comment in quotes") if cursor.accept("COMMENT") else None
        if not cursor.at_any(",", ")"):
            cursor.fail("COMMENT, `,` or `)`", hint=_WITHOUT_TYPES)
        return ViewColumn(name, comment, position)

    return cursor.in_brackets(column)


_A_FUNCTION = "a function's name"
_BODY = "Write CREATE FUNCTION f(x INT) RETURNS INT RETURN x + 1."
_CHARACTERISTICS = (
    ("LANGUAGE", "SQL"),
    ("NOT", "DETERMINISTIC"),
    ("DETERMINISTIC",),
    ("CONTAINS", "SQL"),
    ("READS", "SQL", "DATA"),
)


def read_create_function(cursor: Cursor, *, or_replace: bool) -> CreateFunction:
    """Read what follows CREATE [OR REPLACE] FUNCTION. Source: `createUserDefinedFunction` in
    Spark's `SqlBaseParser.g4`."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name, position = table_name(cursor, _A_FUNCTION)
    head = TextRange(0, cursor.last_end)
    if cursor.at("AS"):
        return _unkept(cursor, name, position, head, "AS with a class")
    parameters: tuple[FunctionParameter, ...] = ()
    if not cursor.accept("(", ")"):
        parameters = cursor.in_brackets(lambda: _function_parameter(cursor))
    returns: DataType | None = None
    comment: str | None = None
    while not cursor.accept("RETURN"):
        if cursor.at("RETURNS", "TABLE"):
            return _unkept(cursor, name, position, head, "RETURNS TABLE")
        if cursor.at("LANGUAGE") and cursor.peek(1).upper != "SQL":
            language = f"LANGUAGE {cursor.peek(1).upper}"
            return _unkept(cursor, name, position, head, language)
        if comment is None and cursor.accept("COMMENT"):
            comment = cursor.string("the comment in quotes")
        elif returns is None and cursor.accept("RETURNS"):
            returns = read_type(cursor)
        elif not any(cursor.accept(*words) for words in _CHARACTERISTICS):
            cursor.fail("RETURN and an expression", hint=_BODY)
    if cursor.at_end:
        cursor.fail("an expression", hint=_BODY)
    is_query = at_query(cursor) and not cursor.at("(")
    start, cursor.index = cursor.position, cursor.stop
    return CreateFunction(
        cursor.text, cursor.offset, name, position, head, parameters, returns,
        TextRange(start, cursor.last_end), is_query, comment, or_replace, if_not_exists,
    )  # fmt: skip


def read_drop_function(cursor: Cursor) -> DropFunction:
    """Read what follows DROP FUNCTION."""
    if_exists = cursor.accept("IF", "EXISTS")
    name, position = table_name(cursor, _A_FUNCTION)
    return DropFunction(cursor.text, cursor.offset, name, position, if_exists)


def read_describe_function(cursor: Cursor) -> DescribeFunction | PassThrough:
    """Read what follows DESCRIBE FUNCTION. Spark also describes operators, and names in quotes."""
    is_extended = cursor.accept("EXTENDED")
    if cursor.peek().kind not in IDENTIFIER_KINDS:
        return pass_through(cursor)
    name, position = table_name(cursor, _A_FUNCTION)
    return DescribeFunction(cursor.text, cursor.offset, name, position, is_extended)


def _unkept(
    cursor: Cursor, name: TableName, position: int, head: TextRange, refusal: str
) -> CreateFunction:
    cursor.index = cursor.stop
    return CreateFunction(
        cursor.text, cursor.offset, name, position, head, (), None, head, False, refusal=refusal
    )


def _function_parameter(cursor: Cursor) -> FunctionParameter:
    name = cursor.identifier("a parameter's name")
    type = read_type(cursor)
    default = comment = None
    while not cursor.at_any(",", ")"):
        if cursor.accept("DEFAULT"):
            default = cursor.text_until(",", "COMMENT", what="the default value")
        elif cursor.accept("COMMENT"):
            comment = cursor.string("the comment in quotes")
        elif not cursor.accept("NOT", "NULL"):  # which Spark refuses for a parameter
            cursor.fail("DEFAULT, COMMENT, `,` or `)`")
    return FunctionParameter(name, type, default, comment)
