"""Tables' names as a log keeps them."""

from __future__ import annotations

import json

from paimon_magics.statements.statement import TableName

__all__ = ["stored_name", "table_name"]


def stored_name(name: TableName) -> str:
    """A table's name as the log keeps it."""
    return json.dumps([name.database, name.table])


def table_name(stored: str) -> TableName:
    """The table's name, from the log's form."""
    database, table = json.loads(stored)
    return TableName(table, database)
