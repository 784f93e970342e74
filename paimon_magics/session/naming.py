"""A table's name as a caller of the session writes it."""

from __future__ import annotations

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.statements.names import spelled, table_name_of
from paimon_magics.statements.statement import TableName

__all__ = ["named", "table_text"]


def named(name: str) -> TableName:
    """The name in a text as `shop.orders`; raises UnsupportedStatementError for none."""
    parts = _parts(name)
    found = table_name_of(parts) if parts else None
    if found is None:
        raise UnsupportedStatementError(
            f"`{name}` is not a table's name.", hint="Name it as table, or database.table."
        )
    return found


def table_text(name: TableName) -> str:
    """The name in SQL; parts of other characters stand in back-quotes."""
    parts = (name.database, name.object_name)
    return ".".join(spelled(part) for part in parts if part is not None)


def _parts(name: str) -> list[str]:
    """The parts of a dotted name, in which a part may stand in back-quotes."""
    parts: list[str] = []
    rest = name.strip()
    while rest:
        if rest.startswith("`"):
            end = rest.find("`", 1)
            if end < 0:
                return []
            parts.append(rest[1:end])
            rest = rest[end + 1 :]
        else:
            head, dot, tail = rest.partition(".")
            parts.append(head)
            rest = dot + tail
        if rest.startswith("."):
            rest = rest[1:]
        elif rest:
            return []
    return parts
