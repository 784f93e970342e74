"""The table that a statement writes, changes, creates or describes, and its query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from paimon_magics.statements.copying import CopyIntoFiles, CopyIntoTable
from paimon_magics.statements.definitions import (
    AlterView,
    CreateFunction,
    CreateView,
    DescribeFunction,
    DropFunction,
    DropView,
    ShowFunctions,
)
from paimon_magics.statements.statement import (
    AlterDatabase,
    AnalyzeTable,
    ChangeGrants,
    CreateDatabase,
    CreateTable,
    CreateTemporaryView,
    Delete,
    Describe,
    DescribeDatabase,
    DescribeDetail,
    DescribeHistory,
    DropDatabase,
    DropTable,
    Insert,
    MergeInto,
    PassThrough,
    Query,
    QueryText,
    RefreshTable,
    Refused,
    ShowColumns,
    ShowCreateTable,
    ShowCurrent,
    ShowDatabases,
    ShowGrants,
    ShowOptions,
    ShowPartitions,
    ShowProcedures,
    ShowTableExtended,
    ShowTables,
    ShowViews,
    StatementText,
    TableName,
    TruncateTable,
    Update,
    UseDatabase,
)
from paimon_magics.statements.table_changes import AlterTable
from paimon_magics.statements.version_changes import AlterTags, Call, ShowTags


@dataclass(frozen=True, slots=True)
class Subject:
    """A statement's table and query.

    `table` is None for queries and for statements without a table. `only_tells` is true if the
    statement only describes its table.
    """

    table: TableName | None = None
    query: QueryText | None = None
    only_tells: bool = False

    @property
    def sources(self) -> tuple[TableName, ...]:
        """The tables that the query reads."""
        return () if self.query is None else tuple(r.name for r in self.query.references)


_WithoutTable = (
    AlterDatabase
    | Call
    | ChangeGrants
    | CreateDatabase
    | CreateFunction
    | DescribeDatabase
    | DescribeFunction
    | DropDatabase
    | DropFunction
    | PassThrough
    | ShowCurrent
    | ShowDatabases
    | ShowFunctions
    | ShowGrants
    | ShowProcedures
    | ShowTableExtended
    | ShowTables
    | ShowViews
    | UseDatabase
)


def subject_of(statement: Statement) -> Subject:
    """Return the statement's subject. EXPLAIN has none, because it runs no statement."""
    if isinstance(statement, _WithoutTable):
        return Subject()
    match statement:
        case Query(query=query) | CreateTemporaryView(query=query) | CopyIntoFiles(query=query):
            return Subject(query=query)
        case Insert(target=name, source=query) | MergeInto(target=name, source=query):
            return Subject(name, query)
        case Delete(target=name, selection=selection) | Update(target=name, selection=selection):
            return Subject(name, selection.query)
        case CreateTable(name=name, query=optional_query):
            return Subject(name, optional_query)
        case CreateView(name=name, query=query):
            return Subject(name, query)
        case (
            AlterTable(name=name)
            | AlterTags(name=name)
            | AlterView(name=name)
            | AnalyzeTable(name=name)
            | DropTable(name=name)
            | DropView(name=name)
            | TruncateTable(name=name)
        ):
            return Subject(name)
        case CopyIntoTable(target=name):
            return Subject(name)
        case Refused(name=optional_name):
            return Subject(optional_name)
        case (
            Describe(name=name)
            | ShowColumns(name=name)
            | ShowCreateTable(name=name)
            | ShowOptions(name=name)
            | ShowPartitions(name=name)
            | ShowTags(name=name)
            | DescribeHistory(name=name)
            | DescribeDetail(name=name)
            | RefreshTable(name=name)
        ):
            return Subject(name, only_tells=True)
        case Explain():
            return Subject()
        case _:
            assert_never(statement)


# Every kind of statement, as one closed union.
#
# A `match` on a Statement ends with `assert_never`, so that a kind that is added here fails the
# type check wherever it is not handled.


@dataclass(frozen=True, slots=True)
class Explain(StatementText):
    """EXPLAIN [EXTENDED|FORMATTED|…] of a statement; `mode` is Spark's word, "" without one."""

    mode: str
    inner: Statement


Statement = (
    Query
    | Explain
    | CreateTemporaryView
    | CreateView
    | AlterView
    | DropView
    | CreateFunction
    | DropFunction
    | DescribeFunction
    | ShowFunctions
    | Insert
    | Delete
    | Update
    | MergeInto
    | CopyIntoTable
    | CopyIntoFiles
    | TruncateTable
    | CreateTable
    | DropTable
    | AlterTable
    | AlterTags
    | Call
    | CreateDatabase
    | AlterDatabase
    | DropDatabase
    | UseDatabase
    | ShowDatabases
    | ShowTables
    | ShowViews
    | ShowProcedures
    | ShowGrants
    | ChangeGrants
    | ShowCurrent
    | ShowPartitions
    | ShowCreateTable
    | ShowOptions
    | ShowColumns
    | ShowTags
    | Describe
    | DescribeDatabase
    | DescribeHistory
    | DescribeDetail
    | RefreshTable
    | AnalyzeTable
    | ShowTableExtended
    | Refused
    | PassThrough
)
