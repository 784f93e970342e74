"""Names of databases and tables, as pypaimon and the folders of a warehouse take them."""

from __future__ import annotations

from pypaimon.common.identifier import Identifier

from paimon_magics.errors import (
    InvalidTableError,
)
from paimon_magics.statements.statement import TableName

__all__ = ["check_name", "database_of", "first_line", "identifier", "quoted", "shown"]

_SYSTEM_DATABASE = "sys"


def database_of(name: TableName) -> str:
    """The database of a name, which the session has filled in."""
    if name.database is None:
        raise ValueError(f"{name} has no database; the session fills it in")
    return name.database


def identifier(name: TableName) -> Identifier:
    """The name as pypaimon has it."""
    return Identifier.create(database_of(name), name.object_name)


def shown(name: TableName) -> str:
    """The name in messages."""
    return f"{name.database}.{name.object_name}"


def quoted(name: str) -> str:
    """The name as SQL takes it."""
    return name if name.isidentifier() else f"`{name.replace('`', '``')}`"


def check_name(name: str, what: str) -> None:
    """Raise InvalidTableError for what can't be a folder's name."""
    if not name or name.strip() != name or name.startswith(".") or set("/\\\0") & set(name):
        raise InvalidTableError(
            f"A {what} can't be named `{name}`.",
            hint="The name becomes a folder: no slashes, no leading dot, no spaces at its ends.",
        )
    if what == "database" and name == _SYSTEM_DATABASE:
        raise InvalidTableError(
            "A database can't be named `sys`.", hint="Paimon keeps that name for its system tables."
        )


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
