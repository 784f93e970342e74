"""MERGE INTO as a value: its source, its condition and its clauses, all as texts of the user's.

The clauses stand in the order written. Ranges are offsets into the statement's text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paimon_magics.statements.assignments import Assignment
from paimon_magics.statements.statement import (
    QueryText,
    StatementText,
    TableName,
    TextRange,
)

__all__ = [
    "DeleteAction",
    "InsertAction",
    "MatchKind",
    "MergeAction",
    "MergeClause",
    "MergeInto",
    "UpdateAction",
]

MatchKind = Literal["MATCHED", "NOT MATCHED", "NOT MATCHED BY SOURCE"]
"""Which rows a clause is about: pairs of a target and a source row, source rows without a target
row, target rows without a source row."""


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
