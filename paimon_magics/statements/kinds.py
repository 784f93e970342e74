"""Every kind of statement, as one closed union.

A `match` on a Statement ends with `assert_never`, so that a kind that is added here fails the type
check wherever it is not handled.
"""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.statements.merge_into import MergeInto
from paimon_magics.statements.row_changes import Delete, Update
from paimon_magics.statements.statement import (
    CreateDatabase,
    CreateTable,
    CreateTemporaryView,
    Describe,
    DescribeDatabase,
    DescribeHistory,
    DropDatabase,
    DropTable,
    Insert,
    PassThrough,
    Query,
    Refused,
    ShowColumns,
    ShowCreateTable,
    ShowCurrent,
    ShowDatabases,
    ShowOptions,
    ShowPartitions,
    ShowProcedures,
    ShowTables,
    ShowViews,
    StatementText,
    TruncateTable,
    UseDatabase,
)
from paimon_magics.statements.table_changes import AlterTable
from paimon_magics.statements.version_changes import AlterTags, Call, ShowTags

__all__ = ["Explain", "Statement"]


@dataclass(frozen=True, slots=True)
class Explain(StatementText):
    """EXPLAIN [EXTENDED|FORMATTED|…] of a statement; `mode` is Spark's word, "" without one."""

    mode: str
    inner: Statement


Statement = (
    Query
    | Explain
    | CreateTemporaryView
    | Insert
    | Delete
    | Update
    | MergeInto
    | TruncateTable
    | CreateTable
    | DropTable
    | AlterTable
    | AlterTags
    | Call
    | CreateDatabase
    | DropDatabase
    | UseDatabase
    | ShowDatabases
    | ShowTables
    | ShowViews
    | ShowProcedures
    | ShowCurrent
    | ShowPartitions
    | ShowCreateTable
    | ShowOptions
    | ShowColumns
    | ShowTags
    | Describe
    | DescribeDatabase
    | DescribeHistory
    | Refused
    | PassThrough
)
