"""Reads CREATE, DROP, USE, DESCRIBE and SHOW of databases, and SHOW of what is in them."""

from __future__ import annotations

from paimon_magics.statements.clauses.properties import (
    read_partition,
    read_properties,
    read_property_keys,
)
from paimon_magics.statements.definitions import ShowFunctions
from paimon_magics.statements.grammar.calls import NAMESPACE
from paimon_magics.statements.lexing.cursor import Cursor, RefusedHere
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS
from paimon_magics.statements.statement import (
    AlterDatabase,
    CreateDatabase,
    DescribeDatabase,
    DropDatabase,
    ShowCurrent,
    ShowDatabases,
    ShowProcedures,
    ShowTableExtended,
    ShowTables,
    ShowViews,
    UseDatabase,
)

DATABASE_WORDS = ("DATABASE", "SCHEMA", "NAMESPACE")

_CATALOG = "paimon"
_GLOBAL_VIEWS = "global_temp"  # a database of Spark's alone


class OtherCatalogError(Exception):
    """The statement names a catalog that is not Paimon's: Spark runs it."""


def read_create_database(cursor: Cursor) -> CreateDatabase:
    """Read what follows CREATE DATABASE."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = _database(cursor)
    comment = location = None
    properties: tuple[tuple[str, str], ...] = ()
    while not cursor.at_end:
        if cursor.accept("COMMENT"):
            comment = cursor.string("the comment in quotes")
        elif cursor.accept("LOCATION"):
            location = cursor.string("the location in quotes")
        elif cursor.at("WITH") and cursor.peek(1).upper in ("DBPROPERTIES", "PROPERTIES"):
            cursor.index += 2
            properties += read_properties(cursor)
        else:
            cursor.fail("COMMENT, LOCATION, WITH DBPROPERTIES or the end of the statement")
    return CreateDatabase(
        cursor.text, cursor.offset, name, if_not_exists, comment, location, properties
    )


def read_alter_database(cursor: Cursor) -> AlterDatabase:
    """Read what follows ALTER DATABASE."""
    name = _database(cursor)
    if cursor.at("SET", "LOCATION"):
        raise RefusedHere("ALTER DATABASE … SET LOCATION")
    updates: tuple[tuple[str, str], ...] = ()
    removals: tuple[str, ...] = ()
    verb = cursor.accept_any("SET", "UNSET")
    if verb is None or not cursor.accept_any("DBPROPERTIES", "PROPERTIES"):
        cursor.fail("DBPROPERTIES" if verb else "SET DBPROPERTIES or UNSET DBPROPERTIES")
    if verb == "SET":
        updates = read_properties(cursor)
    else:
        removals = read_property_keys(cursor)
    return AlterDatabase(cursor.text, cursor.offset, name, updates, removals)


def read_comment_on_database(cursor: Cursor) -> AlterDatabase:
    """Read what follows COMMENT ON DATABASE."""
    name = _database(cursor)
    if not cursor.accept("IS"):
        cursor.fail("IS and the comment in quotes")
    if cursor.accept("NULL"):
        return AlterDatabase(cursor.text, cursor.offset, name, removals=("comment",))
    comment = cursor.string("the comment in quotes, or NULL")
    return AlterDatabase(cursor.text, cursor.offset, name, (("comment", comment),))


def read_drop_database(cursor: Cursor) -> DropDatabase:
    """Read what follows DROP DATABASE."""
    if_exists = cursor.accept("IF", "EXISTS")
    name = _database(cursor)
    cascade = cursor.accept_any("CASCADE", "RESTRICT") == "CASCADE"
    return DropDatabase(cursor.text, cursor.offset, name, if_exists, cascade)


def read_describe_database(cursor: Cursor) -> DescribeDatabase:
    """Read what follows DESCRIBE DATABASE."""
    extended = cursor.accept("EXTENDED")
    name = _database(cursor)
    return DescribeDatabase(cursor.text, cursor.offset, name, extended)


def read_use(cursor: Cursor) -> UseDatabase:
    """Read what follows USE."""
    if cursor.at_any(*DATABASE_WORDS) and cursor.peek(1).kind in IDENTIFIER_KINDS:
        cursor.next()
    name = _first_part(cursor)
    catalog = None
    if cursor.accept("."):
        catalog, name = name, cursor.identifier("a database's name")
    return UseDatabase(cursor.text, cursor.offset, name, catalog)


def read_show_databases(cursor: Cursor) -> ShowDatabases:
    """Read what follows SHOW DATABASES."""
    if cursor.accept_any("FROM", "IN") and cursor.identifier("a catalog's name") != _CATALOG:
        raise OtherCatalogError
    pattern = _pattern(cursor)
    return ShowDatabases(cursor.text, cursor.offset, pattern)


def read_show_tables(cursor: Cursor) -> ShowTables:
    """Read what follows SHOW TABLES."""
    database = _database(cursor) if cursor.accept_any("FROM", "IN") else None
    pattern = _pattern(cursor)
    return ShowTables(cursor.text, cursor.offset, database, pattern)


def read_show_table_extended(cursor: Cursor) -> ShowTableExtended:
    """Read what follows SHOW TABLE EXTENDED."""
    database = _database(cursor) if cursor.accept_any("FROM", "IN") else None
    pattern = _pattern(cursor)
    if pattern is None:
        cursor.fail("LIKE and a pattern in quotes", hint="Write LIKE '*' for all tables.")
    partition = None
    if cursor.accept("PARTITION"):
        partition = read_partition(cursor, values_needed=True)
    return ShowTableExtended(cursor.text, cursor.offset, database, pattern, partition)


def read_show_views(cursor: Cursor) -> ShowViews:
    """Read what follows SHOW VIEWS."""
    database = _database(cursor) if cursor.accept_any("FROM", "IN") else None
    if database is not None and database.lower() == _GLOBAL_VIEWS:
        raise OtherCatalogError
    pattern = _pattern(cursor)
    return ShowViews(cursor.text, cursor.offset, database, pattern)


def read_show_functions(cursor: Cursor) -> ShowFunctions:
    """Read what follows SHOW [USER|SYSTEM|ALL] FUNCTIONS."""
    first = cursor.tokens[1].upper
    database = _database(cursor) if cursor.accept_any("FROM", "IN") else None
    if cursor.peek().kind in IDENTIFIER_KINDS and not cursor.at("LIKE"):
        raise OtherCatalogError  # SHOW FUNCTIONS name, an old form of Spark's
    kind = "ALL" if first == "FUNCTIONS" else first
    return ShowFunctions(cursor.text, cursor.offset, kind, database, _pattern(cursor))


def read_show_procedures(cursor: Cursor) -> ShowProcedures:
    """Read what follows SHOW PROCEDURES: nothing, or Paimon's only namespace of procedures."""
    if cursor.accept_any("FROM", "IN") and _database(cursor).lower() != NAMESPACE:
        raise OtherCatalogError
    return ShowProcedures(cursor.text, cursor.offset)


def read_show_current(cursor: Cursor) -> ShowCurrent:
    """Read what follows SHOW CURRENT NAMESPACE."""
    return ShowCurrent(cursor.text, cursor.offset)


def _pattern(cursor: Cursor) -> str | None:
    if cursor.accept("LIKE") or cursor.peek().kind == "string":
        return cursor.string("a pattern in quotes")
    return None


def _database(cursor: Cursor) -> str:
    """Read a database's name, with or without Paimon's catalog before it."""
    name = _first_part(cursor)
    if cursor.accept("."):
        if name.lower() != _CATALOG:
            raise OtherCatalogError
        name = cursor.identifier("a database's name")
    return name


def _first_part(cursor: Cursor) -> str:
    if cursor.at("IDENTIFIER", "("):
        raise RefusedHere("IDENTIFIER(…) as a name")
    return cursor.identifier("a database's name")
