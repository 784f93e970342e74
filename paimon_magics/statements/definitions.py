"""Statements on the views and functions that a catalog keeps."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.statements.statement import QueryText, StatementText, TableName


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column in the list of CREATE VIEW, with its position in the text."""

    name: str
    comment: str | None = None
    position: int = 0


@dataclass(frozen=True, slots=True)
class CreateView(StatementText):
    """CREATE [OR REPLACE] VIEW name [(columns)] … AS query. `columns` is None without a list."""

    name: TableName
    name_position: int
    query: QueryText
    or_replace: bool = False
    if_not_exists: bool = False
    columns: tuple[ViewColumn, ...] | None = None
    comment: str | None = None
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SetViewOptions:
    """SET TBLPROPERTIES. The key `comment` is the view's comment."""

    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class UnsetViewOptions:
    """UNSET TBLPROPERTIES [IF EXISTS]."""

    keys: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameView:
    """RENAME TO, also into another database."""

    new_name: TableName


@dataclass(frozen=True, slots=True)
class ReplaceViewQuery:
    """AS query: another query for the same view."""

    query: QueryText


ViewChange = SetViewOptions | UnsetViewOptions | RenameView | ReplaceViewQuery


@dataclass(frozen=True, slots=True)
class AlterView(StatementText):
    """ALTER VIEW."""

    name: TableName
    name_position: int
    change: ViewChange


@dataclass(frozen=True, slots=True)
class DropView(StatementText):
    """DROP VIEW [IF EXISTS]."""

    name: TableName
    name_position: int
    if_exists: bool = False
