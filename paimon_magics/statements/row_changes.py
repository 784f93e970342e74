"""DELETE, UPDATE and MERGE INTO as values.

Both select rows of one table. Spark evaluates the user's own text: `RowSelection` says which
ranges of it are replaced, so that the rest is a query of the selected rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paimon_magics.statements.statement import (
    Assignment,
    QueryText,
    StatementText,
    TableName,
    TextRange,
)

VALUE_PREFIX = "__paimon_magics_value_"
"""Begins the names of the columns that a selection adds: one for each assignment, by its number."""


MatchKind = Literal["MATCHED", "NOT MATCHED", "NOT MATCHED BY SOURCE"]
"""Which rows a clause is about: pairs of a target and a source row, source rows without a target
row, target rows without a source row."""


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


# MERGE INTO as a value: its source, its condition and its clauses, all as texts of the user's.
#
# The clauses stand in the order written. Ranges are offsets into the statement's text.


@dataclass(frozen=True, slots=True)
class UpdateAction:
    """UPDATE SET; `assignments` is None for `UPDATE SET *`."""

    assignments: tuple[Assignment, ...] | None


@dataclass(frozen=True, slots=True)
class InsertAction:
    """INSERT; `assignments` is None for `INSERT *`. Their paths have one part in each column."""

    assignments: tuple[Assignment, ...] | None


@dataclass(frozen=True, slots=True)
class DeleteAction:
    """DELETE."""


MergeAction = UpdateAction | InsertAction | DeleteAction


@dataclass(frozen=True, slots=True)
class MergeClause:
    """WHEN `kind` [AND `condition`] THEN `action`. `position` is where WHEN stands."""

    kind: MatchKind
    condition: TextRange | None
    action: MergeAction
    position: int


@dataclass(frozen=True, slots=True)
class MergeInto(StatementText):
    """MERGE INTO `target` USING `source` ON `condition` and its clauses.

    `target_alias` and `source_alias` are the names of both sides in the clauses: aliases, or the
    last parts of the tables' names. `source` is a query on `source_text`, a text of the same length
    as the statement's in which all but the source (and the WITH before MERGE) is blank: positions
    in one are positions in the other. `within` has the bind names and the tables of subqueries
    between ON and the end; `qualifiers` are ranges there that must become the alias beside them.
    `evolves_schema` is WITH SCHEMA EVOLUTION: the target gets the columns that the source has.
    """

    target: TableName
    target_position: int
    target_alias: str
    source: QueryText
    source_text: str
    source_alias: str
    condition: TextRange
    clauses: tuple[MergeClause, ...]
    within: QueryText
    qualifiers: tuple[tuple[TextRange, str], ...] = ()
    evolves_schema: bool = False

    def of_kind(self, kind: MatchKind) -> tuple[MergeClause, ...]:
        """The clauses of one kind, in the order written."""
        return tuple(clause for clause in self.clauses if clause.kind == kind)
