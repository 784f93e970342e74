"""Column definitions and paths, as CREATE TABLE and ALTER TABLE write them."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.statements.data_types import DataType, as_nullable
from paimon_magics.statements.lexing.cursor import Cursor, RefusedHere
from paimon_magics.statements.statement import ColumnDefinition
from paimon_magics.statements.types.sql_types import read_type

__all__ = [
    "ColumnDetails",
    "read_definition",
    "read_details",
    "read_path",
    "read_position",
    "read_primary_key",
]

_DEFAULT_ENDS = (",", "NOT", "COMMENT", "GENERATED", "PRIMARY", "FIRST", "AFTER", "CHECK")


@dataclass(slots=True)
class ColumnDetails:
    """What follows a column's name: its type, and clauses in any order."""

    type: DataType
    comment: str | None = None
    default: str | None = None
    is_key: bool = False
    first: bool = False
    after: str | None = None


def read_definition(cursor: Cursor) -> tuple[ColumnDefinition, bool]:
    """Read `name type …`; return the column, and whether it is declared PRIMARY KEY."""
    position = cursor.position
    name = cursor.identifier("a column's name")
    details = read_details(cursor, "CREATE TABLE")
    definition = ColumnDefinition(name, details.type, details.comment, details.default, position)
    return definition, details.is_key


def read_details(cursor: Cursor, statement: str, *, positioned: bool = False) -> ColumnDetails:
    """Read a type and NOT NULL, DEFAULT, COMMENT and, if `positioned`, FIRST or AFTER."""
    cursor.accept(":")
    details = ColumnDetails(read_type(cursor))
    while True:
        if cursor.accept("NOT", "NULL"):
            details.type = as_nullable(details.type, False)
        elif cursor.accept("COMMENT"):
            details.comment = cursor.string("the comment in quotes")
        elif cursor.accept("DEFAULT"):
            details.default = cursor.text_until(*_DEFAULT_ENDS, what="the default value")
        elif cursor.at("PRIMARY", "KEY") and not positioned:
            cursor.index += 2
            cursor.accept("NOT", "ENFORCED")
            details.is_key = True
        elif cursor.at_any("GENERATED", "CHECK", "UNIQUE", "REFERENCES", "COLLATE"):
            raise RefusedHere(f"{statement} … {cursor.peek().upper}")
        elif positioned and cursor.at_any("FIRST", "AFTER"):
            details.first, details.after = read_position(cursor)
        else:
            return details


def read_position(cursor: Cursor) -> tuple[bool, str | None]:
    """Read FIRST or AFTER column; return (is first, column before it)."""
    if cursor.accept("FIRST"):
        return True, None
    cursor.expect("AFTER")
    return False, cursor.identifier("a column's name")


def read_path(cursor: Cursor) -> tuple[str, ...]:
    """Read a column's path: its name, then names of fields of structs."""
    path = [cursor.identifier("a column's name")]
    while cursor.accept("."):
        path.append(cursor.identifier("a field's name"))
    return tuple(path)


def read_primary_key(cursor: Cursor) -> tuple[str, ...]:
    """Read `PRIMARY KEY (a, b) [NOT ENFORCED] [RELY | NORELY]`."""
    cursor.expect("PRIMARY", "KEY", "(")
    columns = [cursor.identifier("a column's name")]
    while cursor.accept(","):
        columns.append(cursor.identifier("a column's name"))
    cursor.expect(")")
    if cursor.at("ENFORCED"):
        raise RefusedHere("CREATE TABLE … PRIMARY KEY ENFORCED")
    cursor.accept("NOT", "ENFORCED")
    cursor.accept_any("RELY", "NORELY")
    return tuple(columns)
