"""Table names in a statement: parts between dots, back-quotes, `$` and system tables.

The object name (the last part) is split as Paimon's `Identifier.splitObjectName` does:
`table`, `table$branch_b`, `table$system`, `table$branch_b$system`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.statements.lexing.cursor import Cursor, RefusedHere
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, Token
from paimon_magics.statements.statement import TableName

_BRANCH_PREFIX = "branch_"
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")


_PART = re.compile(r"`(?:[^`]|``)+`|[^.`]+")
_STATEMENT = re.compile(r"\s*(SELECT|WITH|INSERT|VALUES)\s", re.IGNORECASE)
_NAME = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*")


def quoted(name: str) -> str:
    """`name` in back-quotes."""
    return "`" + name.replace("`", "``") + "`"


def spelled(name: str) -> str:
    """`name` as a part of a name in SQL, in back-quotes if it needs them."""
    return name if _PLAIN.fullmatch(name) else quoted(name)


def table_text(name: TableName, system_table: str | None = None) -> str:
    """The table's name in SQL, or its system table's: `shop.orders$files`.

    Parts with other characters are in back-quotes. Give the database: a name that has a dot and no
    database would be read as two parts.
    """
    named = name if system_table is None else replace(name, system_table=system_table)
    parts = (named.database, named.object_name)
    return ".".join(spelled(part) for part in parts if part is not None)


def text_literal(text: str) -> str:
    """`text` as a literal of Spark SQL, in single quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def table_name(cursor: Cursor, what: str = "a table's name") -> tuple[TableName, int]:
    """Read a table's name; return it and its position."""
    position = cursor.position
    tokens = name_parts(cursor, what)
    return _named(cursor, tokens, position), position


def name_parts(cursor: Cursor, what: str) -> tuple[Token, ...]:
    """Read the parts of a name, which have dots between them."""
    parts = [cursor.peek()]
    if cursor.at("IDENTIFIER", "("):
        raise RefusedHere("IDENTIFIER(…) as a name")
    cursor.identifier(what)
    while cursor.at(".") and cursor.peek(1).kind in IDENTIFIER_KINDS | {"number"}:
        cursor.next()
        parts.append(cursor.next())
    if cursor.at("."):
        cursor.next()
        cursor.fail("a name after the dot")
    return tuple(parts)


def try_table_name(tokens: Sequence[Token]) -> TableName | None:
    """Return the table that these tokens name, None for a name that no Paimon table can have."""
    return table_name_of([t.name for t in tokens])


def table_name_of(parts: Sequence[str]) -> TableName | None:
    """Return the table that these unquoted parts name, None if no Paimon table can be named so."""
    if len(parts) == 1 and "$" in parts[0] and "." in parts[0]:
        parts = parts[0].split(".")  # `db.orders$files` in one pair of back-quotes
    if not 1 <= len(parts) <= 3:
        return None
    *prefix, object_name = parts
    table, *rest = object_name.split("$")
    branch = system_table = None
    match rest:
        case []:
            pass
        case [one] if one.startswith(_BRANCH_PREFIX):
            branch = one.removeprefix(_BRANCH_PREFIX)
        case [one]:
            system_table = one.lower()
        case [first, second] if first.startswith(_BRANCH_PREFIX):
            branch, system_table = first.removeprefix(_BRANCH_PREFIX), second.lower()
        case _:
            return None
    database = prefix[-1] if prefix else None
    catalog = prefix[0] if len(prefix) == 2 else None
    if not table or branch == "" or system_table == "":
        return None
    return TableName(table, database, catalog, branch, system_table)


def _named(cursor: Cursor, tokens: Sequence[Token], position: int) -> TableName:
    name = try_table_name(tokens)
    if name is None:
        cursor.fail_at(
            position,
            f"`{'.'.join(t.name for t in tokens)}` can't name a Paimon table.",
            "Write `table`, `database.table` or `catalog.database.table`; a system table is "
            "`table$files`, one of a branch `table$branch_name$files`.",
        )
    return name


# A table's name as a program writes it: `shop.orders`, parts in back quotes or not.


def named(name: str) -> TableName:
    """Parse a name such as `shop.orders`. Raises UnsupportedStatementError if it is none."""
    if _STATEMENT.match(name):
        raise UnsupportedStatementError(
            "A table's name is expected, not a statement.",
            hint="session.run(text) runs statements.",
        )
    parts = _parts(name)
    table = table_name_of(parts) if parts else None
    if table is None:
        raise UnsupportedStatementError(
            f"`{name}` is not a table's name.", hint="Name it as table, or database.table."
        )
    return table


def _parts(name: str) -> list[str]:
    """The parts of a dotted name, back-quoted or not; [] if the text is not such a name."""
    text = name.strip()
    if _NAME.fullmatch(text) is None:
        return []
    return [
        part[1:-1].replace("``", "`") if part.startswith("`") else part
        for part in _PART.findall(text)
    ]
