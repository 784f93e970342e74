"""Names of databases and tables, for pypaimon, for a warehouse's folders and for messages."""

from __future__ import annotations

from pypaimon.common.identifier import Identifier

from paimon_magics.errors import InvalidTableError, UnknownNameError
from paimon_magics.planning.formatting import printable
from paimon_magics.statements.statement import NAME_BYTES_MAX, TableName
from paimon_magics.tables.stores.allowed_paths import is_plain_name

_SYSTEM_DATABASE = "sys"


def database_of(name: TableName) -> str:
    """The database of a name. Raises ValueError if the session has not set it."""
    if name.database is None:
        raise ValueError(f"{name} has no database; the session fills it in")
    return name.database


def identifier(name: TableName) -> Identifier:
    """The name as pypaimon's Identifier. Raises UnknownNameError for a name whose parts can't be
    folders of a warehouse: it would lead elsewhere."""
    for part in (database_of(name), name.table, name.branch or "main"):
        if not is_plain_name(part):
            raise UnknownNameError(f"There is no table `{shown(name)}`.")
    return Identifier.create(database_of(name), name.object_name)


def shown(name: TableName) -> str:
    """The name as messages show it."""
    return f"{name.database}.{name.object_name}"


def is_text(name: str) -> bool:
    """Whether a folder's name is UTF-8, so that statements and documents can contain it."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def quoted(name: str) -> str:
    """The name in SQL, in backquotes if it needs them."""
    return name if name.isidentifier() else f"`{name.replace('`', '``')}`"


def check_name(name: str, what: str) -> None:
    """Raise InvalidTableError if the name can't be a folder's name, or Paimon reserves it."""
    is_folder = name.strip() == name and not name.startswith(".") and not set("/\\\0") & set(name)
    if not name or not is_folder or not name.isprintable():
        raise InvalidTableError(
            f"A {what} can't be named `{printable(name)}`.",
            hint="The name becomes a folder: no slashes, no leading dot, no spaces at its ends, no "
            "control characters.",
        )
    if len(name.encode(errors="replace")) > NAME_BYTES_MAX:
        raise InvalidTableError(
            f"The name of a {what} has more than {NAME_BYTES_MAX} bytes: `{name[:50]}…`.",
            hint="The name becomes a folder, whose name can't be longer.",
        )
    if what == "database" and name == _SYSTEM_DATABASE:
        raise InvalidTableError(
            "A database can't be named `sys`.",
            hint="Paimon reserves that name for its system tables.",
        )


def check_new_table(name: TableName) -> None:
    """Raise InvalidTableError if a new table can't have this name."""
    if name.branch is not None or name.system_table is not None or "$" in name.table:
        raise InvalidTableError(
            f"A table can't be named `{name.object_name}`.",
            hint="The `$` sign is reserved for branches and system tables.",
        )
    check_name(name.table, "table")


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its class if there is none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
