"""Statements on the views and functions that a catalog keeps."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.statements.data_types import DataType
from paimon_magics.statements.statement import (
    QueryText,
    StatementText,
    TableName,
    TextRange,
)


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


@dataclass(frozen=True, slots=True)
class FunctionParameter:
    """A parameter of CREATE FUNCTION; `default` is the text of an expression."""

    name: str
    type: DataType
    default: str | None = None
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class CreateFunction(StatementText):
    """CREATE [OR REPLACE] FUNCTION name (parameters) … RETURN body, an expression or a query.

    `head` is the text up to the name's end. `refusal` is the clause that no catalog of Paimon's can
    keep for Spark, None without one: such a statement is for Spark's own catalog alone.
    """

    name: TableName
    name_position: int
    head: TextRange
    parameters: tuple[FunctionParameter, ...]
    returns: DataType | None
    body: TextRange
    is_query: bool
    comment: str | None = None
    or_replace: bool = False
    if_not_exists: bool = False
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class DropFunction(StatementText):
    """DROP FUNCTION [IF EXISTS]."""

    name: TableName
    name_position: int
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DescribeFunction(StatementText):
    """DESCRIBE FUNCTION [EXTENDED]."""

    name: TableName
    name_position: int
    is_extended: bool = False


@dataclass(frozen=True, slots=True)
class ShowFunctions(StatementText):
    """SHOW [USER|SYSTEM|ALL] FUNCTIONS; `kind` is the word, ALL without one."""

    kind: str
    database: str | None = None
    pattern: str | None = None
