"""A table's name as a program writes it: `shop.orders`, parts in back quotes or not."""

from __future__ import annotations

import re

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.statements.clauses.names import table_name_of
from paimon_magics.statements.statement import TableName

__all__ = ["named"]

_PART = re.compile(r"`(?:[^`]|``)+`|[^.`]+")
_STATEMENT = re.compile(r"\s*(SELECT|WITH|INSERT|VALUES)\s", re.IGNORECASE)
_NAME = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*")


def named(name: str) -> TableName:
    """Parse a name such as `shop.orders`. Raises UnsupportedStatementError if it is none."""
    if _STATEMENT.match(name):
        raise UnsupportedStatementError(
            "A table's name is expected, not a statement.",
            hint="session.run(text) runs statements.",
        )
    parts = _parts(name)
    found = table_name_of(parts) if parts else None
    if found is None:
        raise UnsupportedStatementError(
            f"`{name}` is not a table's name.", hint="Name it as table, or database.table."
        )
    return found


def _parts(name: str) -> list[str]:
    """The parts of a dotted name, back-quoted or not; [] if the text is not such a name."""
    text = name.strip()
    if _NAME.fullmatch(text) is None:
        return []
    return [
        part[1:-1].replace("``", "`") if part.startswith("`") else part
        for part in _PART.findall(text)
    ]
