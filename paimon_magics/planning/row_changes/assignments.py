"""Which columns and fields an UPDATE assigns.

Source: `PaimonAssignmentUtils.alignUpdateAssignments`, `RowLevelHelper` of Paimon's connector.
"""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.errors import PaimonMagicsError, UnsupportedStatementError
from paimon_magics.planning.row_changes.column_paths import AssignedTable, ColumnPath, check_apart
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.row_changes import Update

__all__ = ["AssignedPath", "assigned_paths"]


@dataclass(frozen=True, slots=True)
class AssignedPath(ColumnPath):
    """What an assignment changes. `number` is the assignment's."""

    number: int


def assigned_paths(update: Update, schema: TableSchema) -> tuple[AssignedPath, ...]:
    """Return what each assignment changes, without those that give a key column its own value.

    Raises UnknownNameError, InvalidValueError for a path that is assigned twice, and
    UnsupportedStatementError for a key column; with the assignment's position.
    """
    table = AssignedTable(update.target, update.alias, schema)
    found: list[AssignedPath] = []
    for number, assignment in enumerate(update.assignments):
        try:
            path = table.path_of(assignment.path)
            if path.column.name in schema.primary_keys:
                value = assignment.value
                if value and table.is_own(path, update.text[value.start : value.end]):
                    continue
                raise UnsupportedStatementError(
                    f"Can't update the primary key column `{path.column.name}` of "
                    f"`{update.target}`.",
                    hint="A row of another key is another row: INSERT it, and DELETE the old one.",
                )
            check_apart(found, path)
        except PaimonMagicsError as error:
            error.statement, error.position = update.text, assignment.position
            raise
        found.append(AssignedPath(path.column, path.fields, number))
    return tuple(found)
