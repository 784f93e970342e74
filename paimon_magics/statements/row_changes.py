"""DELETE and UPDATE as values.

Both select rows of one table. Spark evaluates the user's own text: `RowSelection` says which
ranges of it are replaced, so that the rest is a query of the selected rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.statements.assignments import Assignment
from paimon_magics.statements.statement import QueryText, StatementText, TableName, TextRange

__all__ = ["VALUE_PREFIX", "Delete", "RowChange", "RowSelection", "Update"]

VALUE_PREFIX = "__paimon_magics_value_"
"""Begins the names of the columns that a selection adds: one for each assignment, by its number."""


@dataclass(frozen=True, slots=True)
class RowSelection:
    """The rows of a table that a statement changes, as a query.

    With `replacements`, the statement's text is a query that returns all columns of the target's
    rows that meet the condition, and a column `VALUE_PREFIX…` for each assignment. `query` has the
    references in that text; the one whose name begins at `target_position` is the target.
    `condition` is the range of WHERE's, None without one.
    """

    query: QueryText
    target_position: int
    replacements: tuple[tuple[TextRange, str], ...]
    condition: TextRange | None = None


@dataclass(frozen=True, slots=True)
class Delete(StatementText):
    """[WITH …] DELETE FROM target [[AS] alias] [WHERE condition]."""

    target: TableName
    target_position: int
    alias: str | None
    selection: RowSelection


@dataclass(frozen=True, slots=True)
class Update(StatementText):
    """[WITH …] UPDATE target [[AS] alias] SET assignments [WHERE condition]."""

    target: TableName
    target_position: int
    alias: str | None
    assignments: tuple[Assignment, ...]
    selection: RowSelection


RowChange = Delete | Update
"""A statement that changes rows of a table where they meet a condition."""
