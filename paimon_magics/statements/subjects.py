"""The table that a statement is about: the one that it writes, changes, makes or tells of."""

from __future__ import annotations

from paimon_magics.statements.statement import (
    AlterTable,
    CreateTable,
    Describe,
    DropTable,
    Insert,
    Refused,
    ShowColumns,
    ShowCreateTable,
    ShowOptions,
    ShowPartitions,
    Statement,
    TableName,
    TruncateTable,
)
from paimon_magics.statements.version_changes import AlterTags, ShowTags

__all__ = ["only_tells", "table_of"]


def table_of(statement: Statement) -> TableName | None:
    """The table that the statement is about; None for queries and for what is about no table."""
    match statement:
        case Insert(target=name):
            return name
        case (
            AlterTable(name=name)
            | AlterTags(name=name)
            | CreateTable(name=name)
            | Describe(name=name)
            | DropTable(name=name)
            | Refused(name=name)
            | ShowColumns(name=name)
            | ShowCreateTable(name=name)
            | ShowOptions(name=name)
            | ShowPartitions(name=name)
            | ShowTags(name=name)
            | TruncateTable(name=name)
        ):
            return name
        case _:
            return None


def only_tells(statement: Statement) -> bool:
    """Whether the statement tells of a table, and changes nothing."""
    told = (Describe, ShowColumns, ShowCreateTable, ShowOptions, ShowPartitions, ShowTags)
    return isinstance(statement, told)
